#include "planner/step_attention.hpp"

#include <algorithm>
#include <memory>

namespace spp {

namespace {

/// Attention of all kinds of layers of a step, which one plan splits.
class KindsOfLayers {
 public:
  explicit KindsOfLayers(const Request& call) : call_(call) {
    kinds_.push_back(std::make_unique<Kind>(call, call.problem));
    for (const AttentionBeside& beside : call.beside) {
      kinds_.push_back(std::make_unique<Kind>(call, beside.problem));
    }
  }

  /// Of the call's own.
  [[nodiscard]] const Evaluator& own() const { return kinds_.front()->evaluator; }

  /// do_it(evaluator, calls for each of the call's own, the plan there).
  template <class F>
  void for_each_beside(const SequencePlan& plan, F&& do_it) const {
    for (std::size_t k = 0; k < call_.beside.size(); ++k) {
      const AttentionBeside& beside = call_.beside[k];
      do_it(kinds_[k + 1]->evaluator, beside.calls,
            plan_beside(beside.problem, call_.problem, plan));
    }
  }

  /// The few legal plans that may take least time over all of them.
  [[nodiscard]] std::vector<SequencePlan> least_bounds() const {
    struct Bounded {
      SequencePlan plan;
      double bound = 0;
    };
    std::vector<Bounded> bounded;
    for (SequencePlan& p : legal_plans(call_, nullptr)) {
      const Strategy& strategy = strategies::by_name(p.strategy, "strategy");
      double bound = own().lower_bound(p, strategy);
      for_each_beside(p, [&](const Evaluator& evaluator, double calls, const SequencePlan& plan) {
        bound += calls * evaluator.lower_bound(plan, strategy);
      });
      bounded.push_back({.plan = std::move(p), .bound = bound});
    }
    std::ranges::stable_sort(bounded, {}, &Bounded::bound);
    constexpr std::size_t few = 8;
    std::vector<SequencePlan> least;
    for (std::size_t i = 0; i < std::min(few, bounded.size()); ++i) {
      least.push_back(std::move(bounded[i].plan));
    }
    return least;
  }

 private:
  struct Kind {
    Kind(const Request& call, const Problem& problem)
        : request(of_kind(call, problem)), evaluator(request) {}
    Request request;
    Evaluator evaluator;
  };
  static Request of_kind(Request call, const Problem& problem) {
    call.problem = problem;
    return call;
  }

  const Request& call_;
  std::vector<std::unique_ptr<Kind>> kinds_;
};

}  // namespace

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
  call.finds_ties = false;
  call.top = call.beside.empty() ? 3 : 6;  // layers of other kinds may like others
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
  struct Tried {
    AttentionChoice choice;
    double all = 0;  // seconds, with what layers of other kinds take
  };
  std::vector<Tried> tried;
  const PlanResult best = plan(call);
  spent_ += best.spent;
  for (const Candidate& c : best.candidates) {
    if (c.simulated) {
      const double seconds = c.predicted.step.count();
      tried.push_back({.choice = {.plan = c.plan.attention, .seconds = seconds}, .all = seconds});
    }
  }
  if (!call.beside.empty()) {
    const KindsOfLayers kinds(call);
    for (const SequencePlan& liked : kinds.least_bounds()) {
      if (std::ranges::none_of(tried, [&](const Tried& t) { return t.choice.plan == liked; })) {
        if (const auto seconds = simulated(liked, kinds.own(), call.most)) {
          tried.push_back({.choice = {.plan = liked, .seconds = *seconds}, .all = *seconds});
        }
      }
    }
    for (Tried& t : tried) {
      kinds.for_each_beside(
          t.choice.plan, [&](const Evaluator& evaluator, double calls, const SequencePlan& plan) {
            const auto seconds = simulated(plan, evaluator, call.most);
            const Strategy& strategy = strategies::by_name(plan.strategy, "strategy");
            t.all += calls * seconds.value_or(evaluator.lower_bound(plan, strategy));
          });
    }
    std::ranges::stable_sort(tried, {}, &Tried::all);
  }
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
