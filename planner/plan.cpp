#include "planner/plan.hpp"

#include "base/suggest.hpp"
#include "planner/evaluator.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace spp {
namespace {

template <class E, std::size_t N>
std::string_view name_in(E value, const std::array<std::string_view, N>& names) {
  return names.at(static_cast<std::size_t>(value));
}

template <class E, std::size_t N>
E parse_in(std::string_view text, std::string_view where,
           const std::array<std::string_view, N>& names) {
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
    "attention kernels",
    "small kernels",
    "GEMMs",
    "exposed intra-node communication",
    "exposed inter-node communication",
    "launches"};

/// Mechanisms that a plan needs; of two plans that tie, the one with fewer is recommended.
int complexity(const SequencePlan& p) {
  const auto count = [](bool used) { return used ? 1 : 0; };
  return count(p.ulysses > 1) + count(p.ring > 1) + 2 * count(p.team > 1) + count(p.window > 1) +
         count(p.heads != HeadPolicy::divide) + count(p.rank_order != RankOrder::block) +
         count(p.layout == Layout::striped);
}

/// Seconds squared, of the difference of two plans: a block that both run moves both, others err
/// alone.
double variance_of_measurements(const MeasuredTimes& a, const MeasuredTimes& b) {
  double variance = 0;
  for (const auto& [block, time] : a) {
    const auto same = b.find(block);
    const double seconds = time.seconds - (same == b.end() ? 0 : same->second.seconds);
    variance += std::pow(seconds * time.standard_error, 2);
  }
  for (const auto& [block, time] : b) {
    variance += a.contains(block) ? 0 : std::pow(time.seconds * time.standard_error, 2);
  }
  return variance;
}

/// Whether the constants' spreads and the errors of measured blocks allow that `a` is not slower
/// than `b` after all. Plans share their constants, so an error moves both: only the difference of
/// each component is uncertain.
bool within_reach(const Prediction& a, const Prediction& b, const ComponentSeconds& spreads) {
  constexpr double least = 0.005;  // of the step: below what any run repeats to
  double variance = variance_of_measurements(a.measured, b.measured);
  for (std::size_t i = 0; i < components; ++i) {
    variance += std::pow((a.parts[i] - b.parts[i]) * spreads[i], 2);
  }
  const double difference = std::abs(a.step.count() - b.step.count());
  return difference <=
         std::max(std::sqrt(variance), least * std::min(a.step.count(), b.step.count()));
}

std::string percent_faster(const Prediction& a, const Prediction& b) {
  return fmt::format("{:.1f} %", (b.step.count() / a.step.count() - 1) * 100);
}

/// What makes `a` faster than `b`: the component that differs most.
std::string advantage(const Prediction& a, const Candidate& other) {
  const Prediction& b = other.predicted;
  std::size_t decides = 0;
  for (std::size_t i = 1; i < components; ++i) {
    if (b.parts[i] - a.parts[i] > b.parts[decides] - a.parts[decides]) {
      decides = i;
    }
  }
  return fmt::format("{} faster than {} ({}: {:.4g} s against {:.4g} s)", percent_faster(a, b),
                     short_name(other.plan), component_names[decides], a.parts[decides],
                     b.parts[decides]);
}

/// The plans that the model cannot tell from the fastest, and which of them it recommends.
struct Ties {
  int plans = 1;
  std::size_t chosen = 0;     // its place among the candidates
  bool simpler_ones = false;  // there are, but each is slower than a plan as simple
};

/// `list`: the fastest first.
Ties ties_of(const std::vector<Candidate>& list, const ComponentSeconds& spreads) {
  Ties ties;
  int least = complexity(list[0].plan);  // of the plans so far, ties or not
  for (std::size_t i = 1; i < list.size(); ++i) {
    const int mechanisms = complexity(list[i].plan);
    if (within_reach(list[0].predicted, list[i].predicted, spreads)) {
      ++ties.plans;
      if (mechanisms < least) {
        ties.chosen = i;
        ties.simpler_ones = false;
      } else if (mechanisms < complexity(list[ties.chosen].plan)) {
        ties.simpler_ones = true;
      }
    }
    least = std::min(least, mechanisms);
  }
  return ties;
}

/// One sentence: what the recommended plan has over the others.
std::string reason(const std::vector<Candidate>& list, const Ties& ties,
                   const ComponentSeconds& spreads) {
  const Prediction& best = list[0].predicted;
  std::string text;
  if (ties.plans > 1) {
    const std::string_view what = ties.simpler_ones ? "best" : "simplest";
    const std::string_view why = ties.simpler_ones ? "simpler ones lose to others as simple; " : "";
    const double more = list[1].predicted.step.count() / best.step.count() - 1;
    text =
        fmt::format("the {} of {} plans that the model cannot tell apart ({}next: {}, {:+.1f} %)",
                    what, ties.plans, why, short_name(list[1].plan), more * 100);
  }
  const auto slower = std::ranges::find_if(list, [&](const Candidate& c) {
    return c.predicted.step > best.step && !within_reach(best, c.predicted, spreads);
  });
  if (slower != list.end()) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", advantage(best, *slower));
  }
  return text.empty() ? "the only legal plan that fits" : text;
}

struct Ranked {
  SequencePlan plan;
  const Strategy* strategy = nullptr;
  double bound = 0;
  bool walked = false;  // the bound is the tighter one
  Bytes memory{};
};

std::vector<Ranked> candidates_of(const Evaluator& evaluator,
                                  const std::vector<SequencePlan>& legal) {
  std::vector<Ranked> all;
  all.reserve(legal.size());
  for (const SequencePlan& p : legal) {
    const Strategy& s = strategies::by_name(p.strategy, "strategy");
    all.push_back({.plan = p,
                   .strategy = &s,
                   .bound = evaluator.lower_bound(p, s),
                   .memory = evaluator.least_memory(p, s)});
  }
  return all;
}

/// Heap order of the search: the smallest bound (or memory, if that is wanted) comes first.
bool less_promising(const Request& request, const Ranked& a, const Ranked& b) {
  if (request.objective == Objective::memory && a.memory != b.memory) {
    return a.memory > b.memory;
  }
  return a.bound > b.bound;
}

/// Sorts simulated candidates, finds the ties of the best and puts the simplest of them first,
/// unless a faster plan is as simple.
void rank(PlanResult& result, const Request& request, const ComponentSeconds& spreads) {
  auto& list = result.candidates;
  Ties ties;
  const auto faster = [](const Candidate& a, const Candidate& b) {
    return a.predicted.step < b.predicted.step;
  };
  if (request.objective == Objective::memory) {
    std::ranges::stable_sort(list, [&](const Candidate& a, const Candidate& b) {
      const Bytes x = a.predicted.memory.total();
      const Bytes y = b.predicted.memory.total();
      return x != y ? x < y : faster(a, b);
    });
  } else {
    std::ranges::stable_sort(list, faster);
    ties = ties_of(list, spreads);
    const auto chosen = list.begin() + static_cast<std::ptrdiff_t>(ties.chosen);
    std::rotate(list.begin(), chosen, chosen + 1);
  }
  result.ties = ties.plans;
  list[0].why = reason(list, ties, spreads);
  for (std::size_t i = 1; i < list.size(); ++i) {
    const double more = (list[i].predicted.step.count() / list[0].predicted.step.count() - 1) * 100;
    list[i].why = fmt::format("{:+.1f} % time against the recommended plan", more);
  }
}

/// What the last of the first `top` plans has of what `value` asks for; nothing until there are as
/// many.
template <class Value>
auto last_of_the_first(const PlanResult& result, const Request& request, const Value& value) {
  std::vector<decltype(value(Prediction()))> values;
  for (const Candidate& c : result.candidates) {
    values.push_back(value(c.predicted));
  }
  const auto nth = static_cast<std::size_t>(request.top - 1);
  if (values.size() <= nth) {
    return std::optional<typename decltype(values)::value_type>();
  }
  std::ranges::nth_element(values, values.begin() + (request.top - 1));
  return std::optional(values[nth]);
}

/// Slower than this a plan is not among the first `top`; infinite until there are as many.
double limit_of(const PlanResult& result, const Request& request) {
  constexpr double none = std::numeric_limits<double>::infinity();
  return request.objective == Objective::memory
             ? none
             : last_of_the_first(result, request, [](const Prediction& p) {
                 return p.step.count();
               }).value_or(none);
}

/// Whether the plans from the next one on cannot matter any more: it promises the most of them.
bool settled(const PlanResult& result, const Request& request, const Ranked& next) {
  if (request.objective == Objective::memory) {
    const auto most =
        last_of_the_first(result, request, [](const Prediction& p) { return p.memory.total(); });
    return most && next.memory >= *most;
  }
  return next.bound > limit_of(result, request);
}

Rejected too_large(const SequencePlan& plan, Bytes memory, const Request& request) {
  return {.plan = plan,
          .rule = "memory",
          .detail = fmt::format("needs {:.1f} GB of the {:.1f} GB that one GPU offers",
                                memory.as_double() / 1e9, request.memory.as_double() / 1e9)};
}

}  // namespace

void Request::run_by(const sim::StackSpec& software) {
  stack = &software;
  build.gradient = software.gradient.value_or(problem.dtype);
  build.sections = software.zigzag_sections;
}

std::string_view to_string(StepPhase v) { return name_in(v, phase_names); }
std::string_view to_string(FlopsConvention v) { return name_in(v, convention_names); }
std::string_view to_string(Objective v) { return name_in(v, objective_names); }
std::string_view to_string(Component v) { return name_in(v, component_names); }
StepPhase parse_step_phase(std::string_view s, std::string_view where) {
  return parse_in<StepPhase>(s, where, phase_names);
}
FlopsConvention parse_flops_convention(std::string_view s, std::string_view where) {
  return parse_in<FlopsConvention>(s, where, convention_names);
}
Objective parse_objective(std::string_view s, std::string_view where) {
  return parse_in<Objective>(s, where, objective_names);
}

FlopCount counted_flops(const Request& request) {
  const Problem& p = request.problem;
  if (request.model && (request.phase == StepPhase::train || request.phase == StepPhase::prefill)) {
    const StepKind kind = request.phase == StepPhase::train ? StepKind::train : StepKind::prefill;
    const ModelFlops flops =
        model_flops(*request.model, {.seq = p.seq, .batch = p.batch, .mask = p.mask, .step = kind});
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
  const double factor = request.phase == StepPhase::backward  ? 2.5
                        : request.phase == StepPhase::forward ? 1.0
                                                              : 3.5;
  return FlopCount(flops * factor);
}

PlanResult plan(const Request& request, const Progress& progress) {
  PlanResult result;
  const std::vector<SequencePlan> legal = legal_plans(request, &result.rejected);
  result.searched = static_cast<std::int64_t>(legal.size());
  const Evaluator evaluator(request);
  std::vector<Ranked> queue;
  std::optional<Ranked> leanest;
  for (const Ranked& r : candidates_of(evaluator, legal)) {
    leanest = !leanest || r.memory < leanest->memory ? r : *leanest;
    if (r.memory <= request.memory) {
      queue.push_back(r);
      continue;
    }
    result.rejected.push_back(too_large(r.plan, r.memory, request));
  }
  const auto later = [&](const Ranked& a, const Ranked& b) {
    return less_promising(request, a, b);
  };
  std::ranges::make_heap(queue, later);
  while (!queue.empty() && !settled(result, request, queue.front())) {
    std::ranges::pop_heap(queue, later);
    Ranked& r = queue.back();
    if (!r.walked && request.objective != Objective::memory) {
      r.walked = true;
      r.bound = std::max(r.bound, evaluator.walked_bound(r.plan, *r.strategy));
      std::ranges::push_heap(queue, later);
      continue;
    }
    ++result.simulated;
    if (auto evaluation = evaluator.evaluate(r.plan, *r.strategy, {}, limit_of(result, request))) {
      Candidate& c = evaluation->candidate;
      if (c.predicted.fits) {
        result.candidates.push_back(std::move(c));
      } else {  // only because ops overlap
        result.rejected.push_back(too_large(c.plan, c.predicted.memory.total(), request));
      }
    }
    queue.pop_back();
    if (progress) {
      progress(result.simulated, result.searched);
    }
  }
  if (result.candidates.empty()) {
    result.any_fits = false;
    if (leanest) {
      result.candidates.push_back(
          evaluator.evaluate(leanest->plan, *leanest->strategy, {})->candidate);
    }
    return result;
  }
  rank(result, request, evaluator.spreads());
  if (static_cast<int>(result.candidates.size()) > request.top) {
    result.candidates.resize(static_cast<std::size_t>(request.top));
  }
  return result;
}

Evaluation evaluate(const Request& request, const SequencePlan& plan,
                    const EvaluationOptions& options) {
  const Strategy& strategy = strategies::by_name(plan.strategy, "--strategy");
  if (plan.ranks() != request.gpus) {
    throw InputError("plan", fmt::format("ulysses {} x ring {} is not the {} GPUs of the group",
                                         plan.ulysses, plan.ring, request.gpus));
  }
  if (const WhyNot reason = why_not(strategy, request.problem, plan); !reason.legal()) {
    throw InputError("plan", fmt::format("{} (rule: {})", reason.detail, reason.rule));
  }
  return *Evaluator(request).evaluate(plan, strategy, options);
}

}  // namespace spp
