#include "tests/support/plans.hpp"

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
  const int sub_ring = plan.ring / (plan.team * plan.team);
  const auto trivial = [&](Axis axis) {
    return (axis == Axis::ulysses ? plan.ulysses : axis == Axis::team ? plan.team : sub_ring) == 1;
  };
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
  for (const Layout layout : {Layout::contiguous, Layout::zigzag, Layout::striped}) {
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
      for (const int team : divisors(ring)) {
        if (ring % (team * team) != 0) {
          continue;
        }
        for (const int window : divisors(ring)) {
          add_variants(*strategy, problem,
                       {.strategy = std::string(strategy->name),
                        .ulysses = ulysses,
                        .ring = ring,
                        .team = team,
                        .window = window},
                       plans);
        }
      }
    }
  }
  return plans;
}

std::string describe(const SequencePlan& plan) {
  return fmt::format("{} U={} R={} C={} w={} {} {} order={}", plan.strategy, plan.ulysses,
                     plan.ring, plan.team, plan.window, to_string(plan.layout),
                     to_string(plan.heads), to_string(plan.order));
}

std::string describe(const Problem& p) {
  return fmt::format("seq={} batch={} heads={}/{}x{} {} {}", p.seq, p.batch, p.q_heads, p.kv_heads,
                     p.head_dim, to_string(p.mask), to_string(p.dtype));
}

}  // namespace spp::test
