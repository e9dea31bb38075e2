#include "tests/support/plans.hpp"

#include "parallel/attention/attention_mesh.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace spp::test {
namespace {

std::vector<int> divisors(int n) {
  std::vector<int> result;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) {
      result.push_back(d);
    }
  }
  return result;
}

/// One of all orders that give the same mesh: axes of size 1 stand at the end.
std::vector<std::array<Axis, 3>> orders(const SequencePlan& plan) {
  const auto trivial = [&](Axis axis) { return size_of(plan, axis) == 1; };
  std::vector<std::array<Axis, 3>> result;
  std::array<Axis, 3> order{Axis::ulysses, Axis::team, Axis::ring};
  do {
    const auto first_trivial = std::ranges::find_if(order, trivial);
    if (std::all_of(first_trivial, order.end(), trivial) &&
        std::is_sorted(first_trivial, order.end())) {
      result.push_back(order);
    }
  } while (std::ranges::next_permutation(order).found);
  return result;
}

/// The plan under every layout, head policy and order that is legal.
void add_variants(const Strategy& strategy, const Problem& problem, SequencePlan plan,
                  std::vector<SequencePlan>& plans) {
  for (const Layout layout :
       {Layout::contiguous, Layout::zigzag, Layout::striped, Layout::document_zigzag,
        Layout::document_contiguous, Layout::balanced, Layout::whole_documents}) {
    for (const HeadPolicy heads :
         {HeadPolicy::divide, HeadPolicy::replicate, HeadPolicy::pad, HeadPolicy::uneven}) {
      plan.layout = layout;
      plan.heads = heads;
      if (!why_not(strategy, problem, plan).legal()) {
        continue;
      }
      for (const auto& order : orders(plan)) {
        plan.order = order;
        plans.push_back(plan);
      }
    }
  }
}

}  // namespace

std::vector<SequencePlan> legal_plans(int ranks, const Problem& problem) {
  std::vector<SequencePlan> plans;
  for (const Strategy* strategy : strategies::all()) {
    for (const int ulysses : divisors(ranks)) {
      const int ring = ranks / ulysses;
      std::vector<ParameterValues> owns{{}};
      for (const Parameter* parameter : strategy->parameters) {
        std::vector<ParameterValues> longer;
        for (const ParameterValues& own : owns) {
          for (const int choice : divisors(ring)) {
            longer.emplace_back(own).set(*parameter, choice);
          }
        }
        owns = std::move(longer);
      }
      for (const ParameterValues& own : owns) {
        add_variants(
            *strategy, problem,
            {.strategy = std::string(strategy->name), .ulysses = ulysses, .ring = ring, .own = own},
            plans);
      }
    }
  }
  return plans;
}

std::string describe(const SequencePlan& plan) {
  std::string own;
  for (const auto& [parameter, value] : plan.own.values()) {
    own += fmt::format("{}={} ", parameter->symbol, value);
  }
  return fmt::format("{} U={} R={} {}{} {} order={}", plan.strategy, plan.ulysses, plan.ring, own,
                     to_string(plan.layout), to_string(plan.heads), to_string(plan.order));
}

std::string describe(const Problem& p) {
  return fmt::format("seq={} cached={} batch={} heads={}/{}x{} {} {} {}", p.seq, p.cached, p.batch,
                     p.q_heads, p.kv_heads, p.head_dim, to_string(p.mask), to_string(p.dtype),
                     to_string(p.function));
}

}  // namespace spp::test
