#include "planner/step_attention.hpp"

#include <algorithm>

namespace spp {

const std::vector<AttentionChoice>& StepAttention::choices_of(const StepPoint& point) {
  const auto [at, fresh] = choices_.try_emplace(shape_of(point));
  if (fresh) {
    at->second = searched(point);
  }
  return at->second;
}

std::vector<AttentionChoice> StepAttention::leanest_of(const StepPoint& point, double ops) {
  AttentionQuestion question = attention_of(request_, point);
  question.request.most.ops = ops;
  std::vector<AttentionChoice> choices;
  add_leaner(point, question.request, choices);
  return choices;
}

bool StepAttention::legal_everywhere(const StepPoint& point, const SequencePlan& plan) const {
  const StepPlan step = plan_of(request_, point, plan, 0);
  return std::ranges::all_of(layer_runs(*request_.model), [&](const LayerRun& run) {
    const Problem whole = problem_of(run, request_);
    return why_not(strategies::by_name(plan.strategy, "strategy"),
                   attention_problem(request_, step, whole), plan_for(whole, request_, step))
        .legal();
  });
}

std::vector<AttentionChoice> StepAttention::searched(const StepPoint& point) {
  AttentionQuestion question = attention_of(request_, point);
  Request& call = question.request;
  call.objective = Objective::time;
  call.top = 3;
  // Long rings take more than all else together: no shape takes more than its part.
  constexpr double part = 1.0 / 32;
  call.most = {.ops = part * std::max(0.0, request_.most.ops - spent_),
               .memory = request_.most.memory};
  std::vector<SequencePlan>& known = known_[{point.tensor, point.sequence}];
  if (!known.empty()) {
    return timed(known, call);
  }
  std::vector<AttentionChoice> choices = searched(point, call);
  if (request_.model->linear && !call.fixed.layout && point.sequence > 1) {
    // Softmax attention may like other layouts, but linear layers hand their states on where a
    // rank's tokens stand together.
    call.fixed.layout = Layout::contiguous;
    for (AttentionChoice& choice : searched(point, call)) {
      if (std::ranges::find(choices, choice.plan, &AttentionChoice::plan) == choices.end()) {
        choices.push_back(std::move(choice));
      }
    }
  }
  for (const AttentionChoice& choice : choices) {
    known.push_back(choice.plan);
  }
  return choices;
}

std::vector<AttentionChoice> StepAttention::searched(const StepPoint& point, const Request& call) {
  const PlanResult best = plan(call);
  spent_ += best.spent;
  std::vector<AttentionChoice> choices;
  for (const Candidate& c : best.candidates) {
    const bool other = std::ranges::none_of(choices, [&](const AttentionChoice& choice) {
      return choice.plan.ulysses == c.plan.attention.ulysses;
    });
    constexpr std::size_t most = 3;
    if (c.simulated && other && choices.size() < most &&
        legal_everywhere(point, c.plan.attention)) {
      choices.push_back({.plan = c.plan.attention, .seconds = c.predicted.step.count()});
    }
  }
  if (!choices.empty()) {
    add_leaner(point, call, choices);
  }
  return choices;
}

std::vector<AttentionChoice> StepAttention::timed(const std::vector<SequencePlan>& plans,
                                                  const Request& call) {
  const Evaluator evaluator(call);
  std::vector<AttentionChoice> choices;
  for (const SequencePlan& plan : plans) {
    if (const auto seconds = simulated(plan, evaluator, call.most)) {
      choices.push_back({.plan = plan, .seconds = *seconds});
    }
  }
  return choices;
}

std::optional<double> StepAttention::simulated(const SequencePlan& plan, const Evaluator& evaluator,
                                               const Effort& most) {
  const Strategy& strategy = strategies::by_name(plan.strategy, "strategy");
  spent_ += evaluator.ops_of_asking();
  if (evaluator.least_ops(plan, strategy) > most.ops) {
    return std::nullopt;
  }
  spent_ += evaluator.ops_of_folding(plan);
  const sim::Folding folding = evaluator.fold(plan, strategy, true);
  const Effort effort = evaluator.effort(plan, strategy, folding);
  if (effort.ops > most.ops || effort.memory > most.memory) {
    return std::nullopt;
  }
  spent_ += effort.ops;
  const auto e = evaluator.evaluate(plan, strategy, {.folding = &folding});
  return e->candidate.predicted.step.count();
}

void StepAttention::add_leaner(const StepPoint& point, const Request& call,
                               std::vector<AttentionChoice>& choices) {
  const Evaluator evaluator(call);
  const auto memory = [&](const SequencePlan& p) {
    return evaluator.least_memory(p, strategies::by_name(p.strategy, "strategy"));
  };
  Bytes least(INT64_MAX);
  for (const AttentionChoice& c : choices) {
    least = std::min(least, memory(c.plan));
  }
  struct Lean {
    SequencePlan plan;
    Bytes memory;
  };
  std::vector<Lean> leaner;
  for (const SequencePlan& p : legal_plans(call, nullptr)) {
    if (const Bytes needed = memory(p); needed < least && legal_everywhere(point, p)) {
      leaner.push_back({p, needed});
    }
  }
  std::ranges::stable_sort(leaner, {}, &Lean::memory);
  constexpr std::size_t tries = 4;
  for (std::size_t i = 0; i < std::min(tries, leaner.size()); ++i) {
    if (const auto seconds = simulated(leaner[i].plan, evaluator, call.most)) {
      choices.push_back({.plan = leaner[i].plan, .seconds = *seconds});
      return;
    }
  }
}

}  // namespace spp
