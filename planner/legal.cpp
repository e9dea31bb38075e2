// Which plans are legal: the enumeration behind plan(), and the plan that given choices describe.
#include "parallel/attention/attention_mesh.hpp"
#include "planner/framework.hpp"
#include "planner/plan.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace spp {
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

/// Orders that differ in the axes that the plan uses.
std::vector<std::array<Axis, 3>> distinct_orders(SequencePlan plan) {
  plan.order = {Axis::ulysses, Axis::team, Axis::ring};
  std::vector<std::array<Axis, 3>> result;
  std::set<std::vector<Axis>> seen;
  do {
    if (seen.insert(axes_of(plan)).second) {
      result.push_back(plan.order);
    }
  } while (std::ranges::next_permutation(plan.order).found);
  return result;
}

/// Head policies that can apply: the plain one if it can, else the ways around it.
std::vector<HeadPolicy> policies(const Request& request, int ulysses) {
  if (request.fixed.heads) {
    return {*request.fixed.heads};
  }
  std::vector<HeadPolicy> result;
  for (const HeadPolicy p :
       {HeadPolicy::divide, HeadPolicy::replicate, HeadPolicy::uneven, HeadPolicy::pad}) {
    if (HeadSplit::why_not(request.problem, ulysses, p).empty()) {
      result.push_back(p);
    }
  }
  // Padding beyond the query heads computes zeros on whole ranks: refused, and named as such.
  std::erase_if(result, [&](HeadPolicy p) {
    return p == HeadPolicy::pad && ulysses > request.problem.q_heads;
  });
  return result.empty() ? std::vector{HeadPolicy::divide} : result;
}

std::vector<int> windows(const Strategy& s, const Request& request, int ring) {
  if (request.fixed.window) {
    return {*request.fixed.window};
  }
  if (!s.degrees.window) {
    return {1};
  }
  std::vector<int> result = divisors(ring);
  std::erase_if(result, [&](int w) { return w == 1 || w == ring; });
  return result;
}

std::vector<int> teams(const Strategy& s, const Request& request, int ring) {
  if (request.fixed.team) {
    return {*request.fixed.team};
  }
  if (!s.degrees.team) {
    return {1};
  }
  std::vector<int> result;
  for (int c = 2; std::int64_t{c} * c <= ring; ++c) {
    if (ring % (c * c) == 0) {
      result.push_back(c);
    }
  }
  return result;
}

/// Layouts worth trying: under the full mask all do the same work, so the first one stands for
/// them.
std::vector<Layout> layouts(const Strategy& s, const Request& request) {
  if (request.fixed.layout) {
    return {*request.fixed.layout};
  }
  if (request.problem.mask == Mask{.kind = MaskKind::full}) {  // documents balance differently
    return {std::ranges::find(s.layouts, Layout::contiguous) != s.layouts.end() ? Layout::contiguous
                                                                                : s.layouts[0]};
  }
  return {s.layouts.begin(), s.layouts.end()};
}

WhyNot why_not_of(const Cannot& reason) {
  return {.rule = reason.rule, .detail = fmt::format("{} ({})", reason.what, reason.source)};
}

class Collector {
 public:
  Collector(const Request& request, std::vector<Rejected>* rejected)
      : request_(request), rejected_(rejected) {}

  void try_all(const Strategy& s, int ulysses, int ring) {
    if (const WhyNot reason = not_here(s); !reason.legal()) {
      reject_strategy({.strategy = std::string(s.name), .ulysses = ulysses, .ring = ring}, reason);
      return;
    }
    for (const int team : teams(s, request_, ring)) {
      for (const int window : windows(s, request_, ring)) {
        for (const HeadPolicy heads : policies(request_, ulysses)) {
          for (const Layout layout : layouts(s, request_)) {
            try_orders(s, {.strategy = std::string(s.name),
                           .ulysses = ulysses,
                           .ring = ring,
                           .team = team,
                           .window = window,
                           .layout = layout,
                           .heads = heads});
          }
        }
      }
    }
  }
  std::vector<SequencePlan> take() { return std::move(plans_); }

 private:
  /// A strategy that lacks a phase, or that the software which runs the plan does not have.
  [[nodiscard]] WhyNot not_here(const Strategy& s) const {
    if (WhyNot reason = why_not(s, request_.phase); !reason.legal()) {
      return reason;
    }
    if (request_.framework != nullptr) {
      const Framework& f = *request_.framework;
      if (std::ranges::find(f.ways, s.name, &Way::strategy) == f.ways.end()) {
        return why_not_of(cannot(f, {.strategy = std::string(s.name)}, request_.problem).front());
      }
    } else if (const StackSpec* stack = request_.stack;
               stack != nullptr && !stack->strategies.empty() &&
               std::ranges::find(stack->strategies, s.name) == stack->strategies.end()) {
      return {.rule = "stack", .detail = fmt::format("{} does not have {}", stack->name, s.name)};
    }
    return {};
  }

  /// What the framework cannot run of a plan, the first reason.
  [[nodiscard]] WhyNot not_run(const SequencePlan& plan) const {
    if (request_.framework == nullptr) {
      return {};
    }
    const std::vector<Cannot> reasons = cannot(*request_.framework, plan, request_.problem);
    return reasons.empty() ? WhyNot{} : why_not_of(reasons.front());
  }

  void try_orders(const Strategy& s, SequencePlan plan) {
    if (const WhyNot reason = why_not(s, request_.problem, plan); !reason.legal()) {
      reject(plan, reason);
      return;
    }
    const auto orders =
        request_.fixed.order ? std::vector{*request_.fixed.order} : distinct_orders(plan);
    const bool whole_nodes =
        request_.gpus == request_.cluster->nodes() * request_.cluster->gpus_per_node();
    std::vector<RankOrder> rank_orders{RankOrder::block};
    if (request_.fixed.rank_order) {
      rank_orders = {*request_.fixed.rank_order};
    } else if (whole_nodes && request_.cluster->nodes() > 1 && orders.size() == 1) {
      rank_orders.push_back(
          RankOrder::cyclic);  // with two axes their order reaches the same mappings
    }
    for (const auto& order : orders) {
      for (const RankOrder rank_order : rank_orders) {
        plan.order = order;
        plan.rank_order = rank_order;
        if (const WhyNot reason = not_run(plan); !reason.legal()) {
          reject(plan, reason);
          continue;
        }
        plans_.push_back(plan);
      }
    }
  }

  void reject(const SequencePlan& plan, const WhyNot& reason) {
    if (reason.rule == "strategy" && !request_.fixed.strategy) {
      return;  // other degrees are another strategy's: nobody asked for this one
    }
    const auto key =
        std::tuple(plan.strategy, plan.ulysses, plan.ring, plan.team, plan.window, reason.rule);
    if (rejected_ != nullptr && seen_.insert(key).second) {
      rejected_->push_back(
          {.plan = {.attention = plan}, .rule = reason.rule, .detail = reason.detail});
    }
  }

  /// Whatever the degrees: said once.
  void reject_strategy(const SequencePlan& plan, const WhyNot& reason) {
    if (rejected_ != nullptr && seen_.insert({plan.strategy, 0, 0, 0, 0, reason.rule}).second) {
      rejected_->push_back(
          {.plan = {.attention = plan}, .rule = reason.rule, .detail = reason.detail});
    }
  }

  const Request& request_;
  std::vector<Rejected>* rejected_;
  std::vector<SequencePlan> plans_;
  std::set<std::tuple<std::string, int, int, int, int, std::string>> seen_;
};

}  // namespace

std::vector<SequencePlan> legal_plans(const Request& request, std::vector<Rejected>* rejected) {
  if (request.framework != nullptr) {
    const std::vector<Cannot> reasons = cannot(*request.framework, request);
    if (!reasons.empty()) {
      if (rejected != nullptr) {
        for (const Cannot& reason : reasons) {
          const WhyNot why = why_not_of(reason);
          rejected->push_back({.plan = {.attention = default_plan(request)},
                               .rule = why.rule,
                               .detail = why.detail});
        }
      }
      return {};
    }
  }
  Collector collector(request, rejected);
  for (const Strategy* s : strategies::all()) {
    if (request.fixed.strategy && s->name != *request.fixed.strategy) {
      continue;
    }
    for (const int ulysses : divisors(request.gpus)) {
      const int ring = request.gpus / ulysses;
      const bool wanted = (!request.fixed.ulysses || *request.fixed.ulysses == ulysses) &&
                          (!request.fixed.ring || *request.fixed.ring == ring);
      // Degrees that the strategy has no use for are not plans of it; nothing to report.
      const bool usable = (s->degrees.ulysses || ulysses == 1) && (s->degrees.ring || ring == 1);
      if (wanted && usable) {
        collector.try_all(*s, ulysses, ring);
      }
    }
  }
  return collector.take();
}

WhyNot why_not(const Strategy& strategy, StepPhase phase) {
  const bool forward_alone = phase == StepPhase::forward || phase == StepPhase::prefill;
  return why_not(strategy, forward_alone ? Phase::forward : Phase::backward);
}

SequencePlan default_plan(const Request& request) {
  const FixedChoices& f = request.fixed;
  SequencePlan plan;
  plan.team = f.team.value_or(1);
  plan.window = f.window.value_or(1);
  plan.ulysses = f.ulysses.value_or(f.ring                    ? std::max(1, request.gpus / *f.ring)
                                    : f.strategy == "ulysses" ? request.gpus
                                                              : 1);
  plan.ring = f.ring.value_or(std::max(1, request.gpus / std::max(1, plan.ulysses)));
  const bool causal = request.problem.mask.kind != MaskKind::full;
  if (f.strategy) {
    plan.strategy = *f.strategy;
  } else if (plan.team > 1) {
    plan.strategy = plan.ulysses > 1 ? "ulysses-startrail" : "startrail";
  } else if (plan.window > 1) {
    plan.strategy = "double-ring";
  } else if (plan.ring == 1) {
    plan.strategy = "ulysses";
  } else if (plan.ulysses > 1) {
    plan.strategy = "usp";
  } else {
    const Layout layout = f.layout.value_or(causal ? Layout::zigzag : Layout::contiguous);
    plan.strategy = layout == Layout::zigzag    ? "zigzag-ring"
                    : layout == Layout::striped ? "striped-ring"
                                                : "ring";
  }
  const Strategy& s = strategies::by_name(plan.strategy, "--strategy");
  const Layout preferred = causal ? Layout::zigzag : Layout::contiguous;
  plan.layout = f.layout.value_or(
      std::ranges::find(s.layouts, preferred) != s.layouts.end() ? preferred : s.layouts[0]);
  plan.heads = policies(request, plan.ulysses).front();
  plan.order = f.order.value_or(plan.order);
  plan.rank_order = f.rank_order.value_or(plan.rank_order);
  return plan;
}

std::vector<std::vector<int>> groups_of(const SequencePlan& plan, Axis axis) {
  const AttentionMesh mesh(plan);
  std::vector<std::vector<int>> result;
  for (int r = 0; r < mesh.size(); ++r) {
    const RankGroup group = mesh.group(Rank(r), axis);
    if (group.first == r) {
      std::vector<int>& members = result.emplace_back();
      for (int i = 0; i < group.size; ++i) {
        members.push_back(group.rank(i).value);
      }
    }
  }
  return result;
}

std::vector<Axis> axes_of(const SequencePlan& plan) {
  std::vector<Axis> used;
  for (const Axis axis : plan.order) {
    const int size = axis == Axis::ulysses ? plan.ulysses
                     : axis == Axis::team  ? plan.team
                                           : plan.ring / (plan.team * plan.team);
    if (size > 1) {
      used.push_back(axis);
    }
  }
  return used;
}

std::string short_name(const SequencePlan& plan) {
  std::string text = fmt::format("{} U{}xR{}", plan.strategy, plan.ulysses, plan.ring);
  if (plan.team > 1) {
    text += fmt::format(" C{}", plan.team);
  }
  if (plan.window > 1) {
    text += fmt::format(" w{}", plan.window);
  }
  text += fmt::format(" {}", to_string(plan.layout));
  if (plan.heads != HeadPolicy::divide) {
    text += fmt::format(" {} heads", to_string(plan.heads));
  }
  if (const std::vector<Axis> axes = axes_of(plan); axes.size() > 1) {
    text += fmt::format(" ({} innermost)", to_string(axes[0]));
  }
  if (plan.rank_order == RankOrder::cyclic) {
    text += " cyclic ranks";
  }
  return text;
}

}  // namespace spp
