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
  add_leaner(question.request, choices);
  return choices;
}

std::vector<AttentionChoice> StepAttention::searched(const StepPoint& point) {
  AttentionQuestion question = attention_of(request_, point);
  Request& call = question.request;
  call.objective = Objective::time;
  call.top = call.beside.empty() ? 3 : 12;  // layers of other kinds may like others
  // Long rings take more than all else together: no shape takes more than its part.
  constexpr double part = 1.0 / 32;
  call.most = {.ops = part * std::max(0.0, request_.most.ops - spent_),
               .memory = request_.most.memory};
  std::vector<SequencePlan>& known = known_[{point.tensor, point.sequence}];
  if (!known.empty()) {
    return timed(known, call);
  }
  std::vector<AttentionChoice> choices = searched(call);
  if (request_.model->linear && !call.fixed.layout && point.sequence > 1) {
    // Softmax attention may like other layouts, but linear layers hand their states on where a
    // rank's tokens stand together.
    call.fixed.layout = Layout::contiguous;
    for (AttentionChoice& choice : searched(call)) {
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

std::vector<AttentionChoice> StepAttention::searched(const Request& call) {
  const PlanResult best = plan(call);
  spent_ += best.spent;
  struct Tried {
    AttentionChoice choice;
    double all = 0;  // seconds, with what layers of other kinds take
  };
  std::vector<Tried> tried;
  for (const Candidate& c : best.candidates) {
    if (!c.simulated) {
      continue;
    }
    Tried& t = tried.emplace_back(
        AttentionChoice{.plan = c.plan.attention, .seconds = c.predicted.step.count()});
    t.all = t.choice.seconds;
    for (const AttentionBeside& beside : call.beside) {
      Request other = call;
      other.problem = beside.problem;
      const auto seconds = simulated(plan_beside(beside.problem, call.problem, t.choice.plan),
                                     Evaluator(other), call.most);
      t.all += beside.calls * seconds.value_or(0);
    }
  }
  std::ranges::stable_sort(tried, {}, &Tried::all);
  std::vector<AttentionChoice> choices;
  for (const Tried& t : tried) {
    const bool other = std::ranges::none_of(choices, [&](const AttentionChoice& choice) {
      return choice.plan.ulysses == t.choice.plan.ulysses;
    });
    constexpr std::size_t most = 3;
    if (other && choices.size() < most) {
      choices.push_back(t.choice);
    }
  }
  if (!choices.empty()) {
    add_leaner(call, choices);
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

void StepAttention::add_leaner(const Request& call, std::vector<AttentionChoice>& choices) {
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
    if (const Bytes needed = memory(p); needed < least) {
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
