#include "planner/plan.hpp"

#include "base/suggest.hpp"
#include "planner/evaluator.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace spp {
namespace {

template <class E, std::size_t N>
std::string_view name_in(E value, const std::array<std::string_view, N>& names) {
  return names.at(static_cast<std::size_t>(value));
}

template <class E, std::size_t N>
E parse_in(std::string_view text, std::string_view where, const std::array<std::string_view, N>& names) {
  const auto it = std::ranges::find(names, text);
  if (it == names.end()) {
    const std::vector<std::string> all(names.begin(), names.end());
    throw InputError(where, fmt::format("unknown value '{}'{}", text, did_you_mean(text, all)));
  }
  return static_cast<E>(it - names.begin());
}

constexpr std::array<std::string_view, 5> phase_names{"fwd", "bwd", "fwd+bwd", "prefill", "train"};
constexpr std::array<std::string_view, 3> convention_names{"causal-halved", "full", "model-6N"};
constexpr std::array<std::string_view, 3> objective_names{"time", "tokens_per_s", "memory"};
constexpr std::array<std::string_view, components> component_names{
    "attention kernels", "small kernels", "GEMMs", "exposed intra-node communication", "exposed inter-node communication", "launches"};

/// Mechanisms that a plan needs; of two plans that tie, the one with fewer is recommended.
int complexity(const SequencePlan& p) {
  const auto count = [](bool used) { return used ? 1 : 0; };
  return count(p.ulysses > 1) + count(p.ring > 1) + 2 * count(p.team > 1) + count(p.window > 1) +
         count(p.heads != HeadPolicy::divide) + count(p.rank_order != RankOrder::block) +
         count(p.layout == Layout::striped);
}

/// Whether the constants' spreads allow that `a` is not slower than `b` after all. Plans share their
/// constants, so an error moves both: only the difference of each component is uncertain.
bool within_reach(const Prediction& a, const Prediction& b, const ComponentSeconds& spreads) {
  constexpr double least = 0.005;  // of the step: below what any run repeats to
  double variance = 0;
  for (std::size_t i = 0; i < components; ++i) {
    variance += std::pow((a.parts[i] - b.parts[i]) * spreads[i], 2);
  }
  const double difference = std::abs(a.step.count() - b.step.count());
  return difference <= std::max(std::sqrt(variance), least * std::min(a.step.count(), b.step.count()));
}

std::string percent_faster(const Prediction& a, const Prediction& b) {
  return fmt::format("{:.1f} %", (b.step.count() / a.step.count() - 1) * 100);
}

/// One sentence: what the best has over the one it is compared with.
std::string reason_against(const Candidate& best, const Candidate& other, int ties) {
  const Prediction& a = best.predicted;
  const Prediction& b = other.predicted;
  if (a.step > b.step) {
    return fmt::format("within the model's error of {} ({} faster) and the simplest of the {} plans that tie", short_name(other.plan),
                       percent_faster(b, a), ties);
  }
  std::size_t decides = 0;
  for (std::size_t i = 1; i < components; ++i) {
    if (b.parts[i] - a.parts[i] > b.parts[decides] - a.parts[decides]) {
      decides = i;
    }
  }
  return fmt::format("{} faster than {}: {} take {:.4g} s against {:.4g} s{}", percent_faster(a, b), short_name(other.plan),
                     component_names[decides], a.parts[decides], b.parts[decides],
                     ties > 1 ? fmt::format("; {} plans are within the model's error", ties) : "");
}

struct Ranked {
  SequencePlan plan;
  const Strategy* strategy = nullptr;
  double bound = 0;
  Bytes memory{};
};

/// Legal plans with bound and memory, most promising first.
std::vector<Ranked> by_promise(const Request& request, const Evaluator& evaluator, const std::vector<SequencePlan>& legal) {
  std::vector<Ranked> ranked;
  ranked.reserve(legal.size());
  for (const SequencePlan& p : legal) {
    const Strategy& s = strategies::by_name(p.strategy, "strategy");
    ranked.push_back({.plan = p, .strategy = &s, .bound = evaluator.lower_bound(p, s), .memory = evaluator.least_memory(p, s)});
  }
  std::ranges::stable_sort(ranked, [&](const Ranked& a, const Ranked& b) {
    return request.objective == Objective::memory && a.memory != b.memory ? a.memory < b.memory : a.bound < b.bound;
  });
  return ranked;
}

/// Sorts simulated candidates, finds the ties of the best and puts the simplest of them first.
void rank(PlanResult& result, const Request& request, const ComponentSeconds& spreads) {
  auto& list = result.candidates;
  const auto faster = [](const Candidate& a, const Candidate& b) { return a.predicted.step < b.predicted.step; };
  if (request.objective == Objective::memory) {
    std::ranges::stable_sort(list, [&](const Candidate& a, const Candidate& b) {
      const Bytes x = a.predicted.memory.total();
      const Bytes y = b.predicted.memory.total();
      return x != y ? x < y : faster(a, b);
    });
  } else {
    std::ranges::stable_sort(list, faster);
    const Prediction fastest = list[0].predicted;
    std::size_t simplest = 0;
    result.ties = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (within_reach(fastest, list[i].predicted, spreads)) {
        ++result.ties;
        simplest = complexity(list[i].plan) < complexity(list[simplest].plan) ? i : simplest;
      }
    }
    std::rotate(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(simplest), list.begin() + static_cast<std::ptrdiff_t>(simplest) + 1);
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::size_t other = i == 0 ? 1 : 0;
    if (other < list.size()) {
      list[i].why = i == 0 ? reason_against(list[0], list[1], result.ties)
                           : fmt::format("{} slower than the recommended plan", percent_faster(list[0].predicted, list[i].predicted));
    }
  }
  if (list.size() == 1) {
    list[0].why = "the only legal plan that fits";
  }
}

/// Whether the plans from `next` on can still matter for the first `top` ones.
bool settled(const PlanResult& result, const Request& request, double next_bound) {
  if (static_cast<int>(result.candidates.size()) < request.top) {
    return false;
  }
  if (request.objective == Objective::memory) {
    return true;
  }
  std::vector<double> steps;
  for (const Candidate& c : result.candidates) {
    steps.push_back(c.predicted.step.count());
  }
  const auto nth = steps.begin() + (request.top - 1);
  std::ranges::nth_element(steps, nth);
  return next_bound > *nth;
}

}  // namespace

std::string_view to_string(StepPhase v) { return name_in(v, phase_names); }
std::string_view to_string(FlopsConvention v) { return name_in(v, convention_names); }
std::string_view to_string(Objective v) { return name_in(v, objective_names); }
std::string_view to_string(Component v) { return name_in(v, component_names); }
StepPhase parse_step_phase(std::string_view s, std::string_view where) { return parse_in<StepPhase>(s, where, phase_names); }
FlopsConvention parse_flops_convention(std::string_view s, std::string_view where) {
  return parse_in<FlopsConvention>(s, where, convention_names);
}
Objective parse_objective(std::string_view s, std::string_view where) { return parse_in<Objective>(s, where, objective_names); }

FlopCount counted_flops(const Request& request) {
  const Problem& p = request.problem;
  if (request.model && (request.phase == StepPhase::train || request.phase == StepPhase::prefill)) {
    const StepKind kind = request.phase == StepPhase::train ? StepKind::train : StepKind::prefill;
    const ModelFlops flops = model_flops(*request.model, {.seq = p.seq, .batch = p.batch, .mask = p.mask, .step = kind});
    switch (request.flops_convention) {
      case FlopsConvention::causal_halved:
        return flops.causal_halved;
      case FlopsConvention::full:
        return flops.full;
      case FlopsConvention::model_6n:
        return flops.model_6n;
    }
  }
  // corpus convention: forward 4*B*H*d*N^2, backward 2.5 times that; causal counts half.
  const auto seq = static_cast<double>(p.seq);
  double flops = 4.0 * static_cast<double>(p.batch) * p.q_heads * p.head_dim * seq * seq;
  if (p.mask.kind != MaskKind::full && request.flops_convention != FlopsConvention::full) {
    flops /= 2;
  }
  const double factor = request.phase == StepPhase::backward ? 2.5 : request.phase == StepPhase::forward ? 1.0 : 3.5;
  return FlopCount(flops * factor);
}

PlanResult plan(const Request& request, const Progress& progress) {
  PlanResult result;
  const std::vector<SequencePlan> legal = legal_plans(request, &result.rejected);
  result.searched = static_cast<std::int64_t>(legal.size());
  const Evaluator evaluator(request);
  const std::vector<Ranked> ranked = by_promise(request, evaluator, legal);
  const Ranked* leanest = nullptr;
  std::int64_t done = 0;
  for (const Ranked& r : ranked) {
    leanest = leanest == nullptr || r.memory < leanest->memory ? &r : leanest;
    if (r.memory > request.memory) {
      result.rejected.push_back({.plan = r.plan, .rule = "memory",
                                 .detail = fmt::format("needs {:.1f} GB of the {:.1f} GB that one GPU offers", r.memory.as_double() / 1e9,
                                                       request.memory.as_double() / 1e9)});
      continue;
    }
    if (settled(result, request, r.bound)) {
      break;
    }
    result.candidates.push_back(evaluator.evaluate(r.plan, *r.strategy, {}).candidate);
    if (progress) {
      progress(++done, result.searched);
    }
  }
  result.simulated = static_cast<std::int64_t>(result.candidates.size());
  if (result.candidates.empty()) {
    result.any_fits = false;
    if (leanest != nullptr) {
      result.candidates.push_back(evaluator.evaluate(leanest->plan, *leanest->strategy, {}).candidate);
    }
    return result;
  }
  rank(result, request, evaluator.spreads());
  if (static_cast<int>(result.candidates.size()) > request.top) {
    result.candidates.resize(static_cast<std::size_t>(request.top));
  }
  return result;
}

Evaluation evaluate(const Request& request, const SequencePlan& plan, const EvaluationOptions& options) {
  const Strategy& strategy = strategies::by_name(plan.strategy, "--strategy");
  if (plan.ranks() != request.gpus) {
    throw InputError("plan", fmt::format("ulysses {} x ring {} is not the {} GPUs of the group", plan.ulysses, plan.ring, request.gpus));
  }
  if (const WhyNot reason = why_not(strategy, request.problem, plan); !reason.legal()) {
    throw InputError("plan", fmt::format("{} (rule: {})", reason.detail, reason.rule));
  }
  return Evaluator(request).evaluate(plan, strategy, options);
}

}  // namespace spp
