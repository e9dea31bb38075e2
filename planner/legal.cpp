// Which plans are legal: the enumeration behind plan(), and the plan that given choices describe.
#include "parallel/attention/attention_mesh.hpp"
#include "planner/framework.hpp"
#include "planner/plan.hpp"

#include <algorithm>
#include <set>

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

/// What the strategy can take of its own on a ring of so many ranks, with what is given.
std::vector<ParameterValues> own_values(const Strategy& s, const Request& request, int ring) {
  ParameterValues given;
  for (const auto& [parameter, value] : request.fixed.own) {
    given.set(*parameter, value);
  }
  std::vector<ParameterValues> result{given};
  for (const Parameter* parameter : s.parameters) {
    if (request.fixed.own.contains(parameter)) {
      continue;
    }
    const std::vector<int> choices = parameter->choices(ring);
    std::vector<ParameterValues> longer;
    for (const ParameterValues& values : result) {
      for (const int choice : choices) {
        longer.emplace_back(values).set(*parameter, choice);
      }
    }
    result = std::move(longer);
  }
  return result;
}

/// Layouts worth trying: under the full mask all do the same work, so the first one stands for
/// them.
std::vector<Layout> layouts(const Strategy& s, const Request& request, int ring) {
  if (request.fixed.layout) {
    return {*request.fixed.layout};
  }
  if (s.for_sparse_masks) {
    // Under a window all contiguous chunks have the same work. Of balanced ones nearly every rank
    // needs some of every other: a longer ring has more messages than a search has time for. Of
    // whole documents few do.
    constexpr int longest = 16;
    constexpr int longest_of_documents = 64;
    const Mask& mask = request.problem.mask;
    const bool packed = !mask.document_ends.empty();
    std::vector<Layout> result{Layout::contiguous};
    if ((packed || mask.kind != MaskKind::window) && ring <= longest) {
      result.push_back(Layout::balanced);
    }
    if (packed && ring <= longest_of_documents) {
      result.push_back(Layout::whole_documents);
    }
    return result;
  }
  if (request.problem.mask == Mask{.kind = MaskKind::full}) {  // documents balance differently
    return {std::ranges::find(s.layouts, Layout::contiguous) != s.layouts.end() ? Layout::contiguous
                                                                                : s.layouts[0]};
  }
  std::vector<Layout> result(s.layouts.begin(), s.layouts.end());
  if (request.problem.mask.document_ends.empty()) {  // zigzag chunks have the same work
    std::erase_if(result, [](Layout layout) {
      return needs_documents(layout) || layout == Layout::balanced;
    });
  }
  return result;
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
    for (const ParameterValues& own : own_values(s, request_, ring)) {
      for (const HeadPolicy heads : policies(request_, ulysses)) {
        for (const Layout layout : layouts(s, request_, ring)) {
          try_orders(s, {.strategy = std::string(s.name),
                         .ulysses = ulysses,
                         .ring = ring,
                         .own = own,
                         .layout = layout,
                         .heads = heads});
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
    if (request_.gpus == 1) {
      return {};  // on one rank all do the same
    }
    if (WhyNot reason = why_not_sinks(s); request_.traits.sinks && !reason.legal()) {
      return reason;
    }
    if (request_.framework != nullptr) {
      const Framework& f = *request_.framework;
      if (std::ranges::find(f.ways, s.name, &Way::strategy) == f.ways.end()) {
        return why_not_of(no_way(f, s.name));
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
    const std::vector<Cannot> reasons =
        cannot(*request_.framework, plan, request_.problem, request_.traits);
    return reasons.empty() ? WhyNot{} : why_not_of(reasons.front());
  }

  void try_orders(const Strategy& s, SequencePlan plan) {
    if (const WhyNot reason = request_.traits.picks ? why_not_picked(plan) : WhyNot{};
        !reason.legal()) {
      reject(plan, reason);
      return;
    }
    if (const WhyNot reason = why_not(s, request_.problem, plan); !reason.legal()) {
      reject(plan, reason);
      return;
    }
    for (const AttentionBeside& beside : request_.beside) {
      if (by_work(plan.layout) && beside.problem.mask != request_.problem.mask) {
        reject(plan, why_not_by_work(plan.layout));
        return;
      }
      if (const WhyNot reason =
              why_not(s, beside.problem, plan_beside(beside.problem, request_.problem, plan));
          !reason.legal()) {
        reject(plan, reason);
        return;
      }
    }
    const auto orders =
        request_.fixed.order ? std::vector{*request_.fixed.order} : distinct_orders(plan);
    const WhyNot dealt = why_not(request_.fixed.rank_order.value_or(RankOrder::cyclic),
                                 *request_.cluster, request_.gpus);
    std::vector<RankOrder> rank_orders{RankOrder::block};
    if (request_.fixed.rank_order) {
      if (!dealt.legal()) {
        reject(plan, dealt);
        return;
      }
      rank_orders = {*request_.fixed.rank_order};
    } else if (dealt.legal() && request_.cluster->nodes() > 1 && orders.size() == 1) {
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
    const bool others = request_.problem.function == AttentionFunction::softmax;
    if (reason.rule == "strategy" && !request_.fixed.strategy && others) {
      return;  // other degrees are another strategy's: nobody asked for this one
    }
    const std::string key = fmt::format("{} {}", degrees_name(plan), reason.rule);
    if (rejected_ != nullptr && seen_.insert(key).second) {
      rejected_->push_back(
          {.plan = {.attention = plan}, .rule = reason.rule, .detail = reason.detail});
    }
  }

  /// Whatever the degrees: said once.
  void reject_strategy(const SequencePlan& plan, const WhyNot& reason) {
    if (rejected_ != nullptr &&
        seen_.insert(fmt::format("{} {}", plan.strategy, reason.rule)).second) {
      rejected_->push_back(
          {.plan = {.attention = plan}, .rule = reason.rule, .detail = reason.detail});
    }
  }

  const Request& request_;
  std::vector<Rejected>* rejected_;
  std::vector<SequencePlan> plans_;
  std::set<std::string> seen_;
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
    // Where every rank needs nearly all keys, others do as well; only who asked for it is told.
    const Mask& mask = request.problem.mask;
    const bool dense = mask.document_ends.empty() && mask.kind != MaskKind::window;
    if (!request.fixed.strategy && s->for_sparse_masks && dense) {
      continue;
    }
    // What splits another attention is no plan for this one; only who asked for it is told.
    if (!request.fixed.strategy && s->function != request.problem.function) {
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

WhyNot why_not(RankOrder order, const sim::Cluster& cluster, int ranks) {
  if (order == RankOrder::block || ranks == cluster.nodes() * cluster.gpus_per_node()) {
    return {};
  }
  return {.rule = "rank-order",
          .detail = fmt::format("cyclic needs whole nodes; {} GPUs are not {} nodes of {}", ranks,
                                cluster.nodes(), cluster.gpus_per_node())};
}

WhyNot why_not(const Strategy& strategy, StepPhase phase) {
  const bool forward_alone = phase == StepPhase::forward || phase == StepPhase::prefill;
  return why_not(strategy, forward_alone ? Phase::forward : Phase::backward);
}

namespace {

/// The first strategy that takes what the plan has of its own; none if it has nothing.
const Strategy* first_with(const SequencePlan& plan) {
  if (plan.own.values().empty()) {
    return nullptr;
  }
  for (const Strategy* s : strategies::all()) {
    const bool takes_all = std::ranges::all_of(plan.own.values(), [&](const auto& own) {
      return std::ranges::find(s->parameters, own.parameter) != s->parameters.end();
    });
    if (takes_all && (s->degrees.ulysses || plan.ulysses == 1)) {
      return s;
    }
  }
  return nullptr;
}

}  // namespace

SequencePlan plan_beside(const Problem& beside, const Problem& problem, SequencePlan plan) {
  if (beside.kv_heads != problem.kv_heads && plan.heads == HeadPolicy::replicate &&
      beside.kv_heads % plan.ulysses == 0) {
    plan.heads = HeadPolicy::divide;
  }
  return plan;
}

SequencePlan default_plan(const Request& request) {
  const FixedChoices& f = request.fixed;
  SequencePlan plan;
  for (const auto& [parameter, value] : f.own) {
    plan.own.set(*parameter, value);
  }
  plan.ulysses = f.ulysses.value_or(f.ring                    ? std::max(1, request.gpus / *f.ring)
                                    : f.strategy == "ulysses" ? request.gpus
                                                              : 1);
  plan.ring = f.ring.value_or(std::max(1, request.gpus / std::max(1, plan.ulysses)));
  const bool causal = request.problem.mask.kind != MaskKind::full;
  const Layout preferred = causal ? Layout::zigzag : Layout::contiguous;
  if (f.strategy) {
    plan.strategy = *f.strategy;
  } else if (request.traits.picks && request.gpus > 1) {
    plan.strategy = strategies::gathering().name;
  } else if (const Strategy* s = first_with(plan); s != nullptr) {
    plan.strategy = s->name;
  } else if (request.problem.function != AttentionFunction::softmax) {
    plan.strategy =
        (*std::ranges::find(strategies::all(), request.problem.function, &Strategy::function))
            ->name;
  } else {
    plan.layout = plan.ring > 1 ? f.layout.value_or(preferred) : Layout::contiguous;
    const Strategy* simplest = strategies::simplest(plan);
    plan.strategy =
        simplest != nullptr ? simplest->name : "usp";  // and why_not() says what is wrong
  }
  const Strategy& s = strategies::by_name(plan.strategy, "--strategy");
  const bool has_preferred =
      !s.for_sparse_masks && std::ranges::find(s.layouts, preferred) != s.layouts.end();
  plan.layout = f.layout.value_or(has_preferred ? preferred : s.layouts[0]);
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
    if (size_of(plan, axis) > 1) {
      used.push_back(axis);
    }
  }
  return used;
}

std::string degrees_name(const SequencePlan& plan) {
  std::string text = fmt::format("{} U{}xR{}", plan.strategy, plan.ulysses, plan.ring);
  for (const auto& [parameter, value] : plan.own.values()) {
    text += fmt::format(" {}{}", parameter->symbol, value);
  }
  return text;
}

std::string short_name(const SequencePlan& plan) {
  std::string text = fmt::format("{} {}", degrees_name(plan), to_string(plan.layout));
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
