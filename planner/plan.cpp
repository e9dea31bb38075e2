#include "planner/plan.hpp"

#include "base/suggest.hpp"
#include "planner/decisions.hpp"
#include "planner/search.hpp"
#include "planner/step_search.hpp"
#include "schedule/counted_flops.hpp"
#include "schedule/measure.hpp"
#include "transformer/model_flops.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

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
    "launches",
    "bubble or imbalance"};

}  // namespace

void Request::run_by(const StackSpec& software) {
  stack = &software;
  practice = &software.step;
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
  return counted_flops(request, request.problem.batch);
}

FlopCount counted_flops(const Request& request, std::int64_t batch) {
  const Problem& p = request.problem;
  if (request.model && request.whole_step()) {
    const StepKind kind = kind_of(request.phase);
    const ModelFlops flops = model_flops(
        *request.model,
        {.seq = p.seq, .batch = batch, .mask = p.mask, .step = kind, .cached = p.cached});
    switch (request.flops_convention) {
      case FlopsConvention::causal_halved:
        return flops.causal_halved;
      case FlopsConvention::full:
        return flops.full;
      case FlopsConvention::model_6n:
        return flops.model_6n;
    }
  }
  const bool forward = request.phase != StepPhase::backward;
  const bool backward = request.phase != StepPhase::forward;
  if (p.function == AttentionFunction::linear) {
    // Of one GPU: chunks under a causal mask, else one state that is made and read.
    const auto of = [&](Phase phase) {
      const double states = phase == Phase::forward ? 2 : 4;
      return p.mask.kind != MaskKind::full
                 ? linear_flops(p.seq, p.head_dim, phase)
                 : 2.0 * static_cast<double>(p.seq) * p.head_dim * p.head_dim * states;
    };
    return FlopCount(((forward ? of(Phase::forward) : 0) + (backward ? of(Phase::backward) : 0)) *
                     p.q_heads * static_cast<double>(batch));
  }
  // No convention halves documents, windows or what is cached: what they allow counts.
  const bool sparse =
      !p.mask.document_ends.empty() || p.mask.kind == MaskKind::window || p.cached > 0;
  if (sparse && request.flops_convention != FlopsConvention::full) {
    const TokenRange queries{.begin = p.cached, .count = p.seq};
    const TokenRange keys{.begin = 0, .count = p.end()};
    const double forwards = (forward ? 1 : 0) + (backward ? 2.5 : 0);
    return FlopCount(flops_per_pair(Phase::forward, p.head_dim, p.v_dim()) *
                     static_cast<double>(batch) * p.q_heads *
                     static_cast<double>(allowed_pairs(queries, keys, p.mask)) * forwards);
  }
  return counted_flops(CountedCall{
      .queries = p.seq,
      .keys = p.end(),
      .batch = batch,
      .heads = p.q_heads,
      .qk_dim = static_cast<double>(p.head_dim),
      .v_dim = static_cast<double>(p.v_dim()),
      .halved = p.mask.kind != MaskKind::full && request.flops_convention != FlopsConvention::full,
      .forward = forward,
      .backward = backward});
}

void add_bounded(PlanResult& result, const Request& request, std::vector<Candidate> bounded) {
  const bool first = result.candidates.empty();
  for (Candidate& c : bounded) {
    if (static_cast<int>(result.candidates.size()) < request.top) {
      c.why = "not simulated: the step takes at least as long as shown";
      result.candidates.push_back(std::move(c));
    }
  }
  if (first && !result.candidates.empty()) {
    result.candidates[0].why = fmt::format(
        "the smallest bound of {} plans, none of which was simulated; a run takes longer",
        result.searched);
  }
}

namespace {

/// The best of the other kind than the first of the ranked plans. Where bounds do not settle which
/// that is, a few more are simulated if they lie in one node. Nothing: there is none, or that did
/// not settle it.
std::optional<Candidate> other_kind(const Request& request, const Evaluator& evaluator,
                                    const std::vector<SequencePlan>& legal,
                                    const std::vector<Candidate>& ranked) {
  const SequencePlan& winner = ranked.front().plan.attention;
  const auto simulated = std::find_if(ranked.begin() + 1, ranked.end(), [&](const Candidate& c) {
    return is_other_kind(c.plan.attention, winner);
  });
  auto best = simulated != ranked.end() ? std::optional(*simulated) : std::nullopt;
  if (request.gpus == 1 || request.objective == Objective::memory) {
    return request.gpus == 1 ? std::nullopt : best;
  }
  std::vector<std::pair<double, const SequencePlan*>> rivals;  // by bound
  for (const SequencePlan& plan : legal) {
    const auto is_plan = [&](const Candidate& c) { return c.plan.attention == plan; };
    if (is_other_kind(plan, winner) && std::ranges::none_of(ranked, is_plan)) {
      const Strategy& strategy = strategies::by_name(plan.strategy, "plan");
      rivals.emplace_back(evaluator.lower_bound(plan, strategy), &plan);
    }
  }
  std::ranges::stable_sort(rivals, {}, [](const auto& rival) { return rival.first; });
  constexpr int most_of_node = 12;
  int left = request.gpus > request.cluster->gpus_per_node() ? 0 : most_of_node;
  for (const auto& [bound, plan] : rivals) {
    const double so_far =
        best ? best->predicted.step.count() : std::numeric_limits<double>::infinity();
    if (bound >= so_far) {
      break;
    }
    if (left-- == 0) {
      return std::nullopt;
    }
    const Strategy& strategy = strategies::by_name(plan->strategy, "plan");
    std::optional<Evaluation> found = evaluator.evaluate(*plan, strategy, {}, so_far);
    if (found && found->candidate.predicted.fits &&
        found->candidate.predicted.step.count() < so_far) {
      best = std::move(found->candidate);
    }
  }
  return best;
}

}  // namespace

PlanResult plan(const Request& request, const Watch& watch) {
  if (request.whole_step()) {
    return plan_step(request, watch);
  }
  PlanResult result;
  const std::vector<SequencePlan> legal = legal_plans(request, &result.rejected);
  result.searched = static_cast<std::int64_t>(legal.size());
  const Evaluator evaluator(request);
  std::vector<Candidate> bounded = search(request, evaluator, legal, watch, result);
  if (!result.candidates.empty() && result.any_fits) {
    rank(result, request, evaluator.spreads());
    if (const auto other = other_kind(request, evaluator, legal, result.candidates)) {
      Candidate& best = result.candidates.front();
      const bool tie = within_reach(best.predicted, other->predicted, evaluator.spreads());
      best.decisions.push_back(why_ulysses(best, *other, tie, request.objective));
      best.why += "; " + best.decisions.back();
    }
    if (static_cast<int>(result.candidates.size()) > request.top) {
      result.candidates.resize(static_cast<std::size_t>(request.top));
    }
  }
  add_bounded(result, request, std::move(bounded));
  for (Candidate& c : result.candidates) {
    c.predicted.max_seq = evaluator.longest(c);
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
  for (const WhyNot& reason :
       {why_not(strategy, request.phase), why_not(strategy, request.problem, plan),
        why_not(plan.rank_order, *request.cluster, plan.ranks())}) {
    if (!reason.legal()) {
      throw InputError("plan", fmt::format("{} (rule: {})", reason.detail, reason.rule));
    }
  }
  return *Evaluator(request).evaluate(plan, strategy, options);
}

std::string not_planned(const Model& model) { return model.not_costed; }

}  // namespace spp
