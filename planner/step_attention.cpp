// One class in one file: what is known of a shape's attention, and what may still be spent on it.
#include "planner/step_attention.hpp"

#include "planner/search.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace spp {

namespace {

double in_step(const std::optional<sim::Simulation>& simulation) {
  if (!simulation) {
    return 0;
  }
  const Breakdown& b = simulation->breakdown;
  return (b.attention + b.other_kernels + b.exposed + b.imbalance).count();
}

AttentionChoice choice_of(const Evaluation& simulated) {
  const double forward = in_step(simulated.forward);
  const auto issue = [](const std::optional<sim::Simulation>& simulation) {
    return simulation ? simulation->issue.count() : 0.0;
  };
  return {.plan = simulated.candidate.plan.attention,
          .takes = {.all = forward + in_step(simulated.backward), .forward = forward},
          .issue = issue(simulated.forward) + issue(simulated.backward)};
}

/// Whether the host may take longer for a step with it than the GPU. It depends on what is around
/// attention, too, in which points of a shape differ: where GPUs have little to do it is likely.
bool may_wait_for_host(const AttentionChoice& choice) {
  constexpr double little = 8;  // times what the host takes
  return choice.takes.all < little * choice.issue;
}

bool has(const std::vector<AttentionChoice>& choices, const SequencePlan& plan) {
  return std::ranges::find(choices, plan, &AttentionChoice::plan) != choices.end();
}

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

class StepAttention::Asked {
 public:
  Asked(StepAttention& of, const StepPoint& point)
      : of_(of), point_(point), question_(attention_of(of.request_, point)), evaluator_(call()) {
    call().objective = Objective::time;
    call().finds_ties = false;
    call().top = call().beside.empty() ? 3 : 6;  // layers of other kinds may like others
    // Long rings take more than all else together: no shape takes more than its part.
    constexpr double part = 1.0 / 32;
    call().most = {.ops = part * std::max(0.0, of.request_.most.ops - of.spent_),
                   .memory = of.request_.most.memory};
  }

  /// The best of the two or three best pairs of degrees.
  [[nodiscard]] AttentionChoices search();
  /// All that are legal, of attention that is no call.
  [[nodiscard]] AttentionChoices untimed();
  /// Those of the plans that may be simulated.
  [[nodiscard]] std::vector<AttentionChoice> timed(const std::vector<SequencePlan>& plans);
  /// The leanest few of the plans that take less memory, leanest first.
  [[nodiscard]] std::vector<SequencePlan> leanest(Bytes below);
  /// A few that take less memory, none of which another one beats in both memory and bound: those
  /// that may be fastest.
  [[nodiscard]] std::vector<SequencePlan> fastest_lean(Bytes below);
  /// The first that may be simulated.
  [[nodiscard]] std::optional<AttentionChoice> first_of(const std::vector<SequencePlan>& plans);
  [[nodiscard]] AttentionSeconds lower_bound(const SequencePlan& plan) const {
    const Strategy& strategy = strategies::by_name(plan.strategy, "strategy");
    return {.all = evaluator_.lower_bound(plan, strategy),
            .forward = evaluator_.lower_bound(plan, strategy, Phase::forward)};
  }
  /// `least` to the least bounds of these.
  void lower(AttentionSeconds& least, const std::vector<SequencePlan>& plans) const {
    for (const SequencePlan& plan : plans) {
      const AttentionSeconds bound = lower_bound(plan);
      least.all = std::min(least.all, bound.all);
      least.forward = std::min(least.forward, bound.forward);
    }
  }
  [[nodiscard]] Bytes least_memory(const SequencePlan& plan) const {
    return evaluator_.least_memory(plan, strategies::by_name(plan.strategy, "strategy"));
  }
  void spend_at_most(double ops) { call().most.ops = ops; }
  [[nodiscard]] double may_spend() { return call().most.ops; }

 private:
  struct Lean {
    SequencePlan plan;
    Bytes memory;
  };
  /// Legal plans that take less memory, leanest first.
  [[nodiscard]] std::vector<Lean> lean_plans(Bytes below);
  [[nodiscard]] Request& call() { return question_.request; }
  [[nodiscard]] AttentionChoices best();
  /// Of legal plans, the few of fewest ops.
  [[nodiscard]] std::vector<SequencePlan> fewest_ops();
  /// Nothing: too much.
  std::optional<AttentionChoice> simulated(const SequencePlan& plan);
  /// The same of any kind of layers; nothing: too much.
  std::optional<Evaluation> evaluation(const SequencePlan& plan, const Evaluator& evaluator);
  void tell(const Evaluation& simulated) {
    of_.evaluator_.know(plan_of(of_.request_, point_, simulated.candidate.plan.attention, 0),
                        call(), simulated);
  }

  StepAttention& of_;
  const StepPoint& point_;
  AttentionQuestion question_;
  Evaluator evaluator_;
};

AttentionChoices StepAttention::Asked::search() {
  AttentionChoices choices = best();
  if (of_.request_.model->linear && !call().fixed.layout && point_.sequence > 1) {
    // Softmax attention may like other layouts, but linear layers hand their states on where a
    // rank's tokens stand together.
    call().fixed.layout = Layout::contiguous;
    AttentionChoices contiguous = best();
    choices.settled = choices.settled && contiguous.settled;
    for (AttentionChoice& choice : contiguous.plans) {
      if (!has(choices.plans, choice.plan)) {
        choices.plans.push_back(std::move(choice));
      }
    }
  }
  return choices;
}

AttentionChoices StepAttention::Asked::untimed() {
  AttentionChoices choices;
  for (SequencePlan& plan : legal_plans(call(), nullptr)) {
    if (why_not(*of_.request_.model, plan_of(of_.request_, point_, plan, 0)).legal()) {
      choices.plans.push_back({.plan = std::move(plan), .takes = {}});
    }
  }
  return choices;
}

AttentionChoices StepAttention::Asked::best() {
  struct Tried {
    AttentionChoice choice;
    double all = 0;  // seconds, with what layers of other kinds take
  };
  std::vector<Tried> tried;
  PlanResult best;
  std::map<SequencePlan, AttentionChoice> simulations;
  spp::search(call(), evaluator_, legal_plans(call(), nullptr), {}, best,
              [&](const Evaluation& simulated) {
                tell(simulated);
                const AttentionChoice choice = choice_of(simulated);
                simulations.emplace(choice.plan, choice);
              });
  of_.spent_ += best.spent;
  if (best.any_fits && !best.candidates.empty()) {
    rank(best, call(), evaluator_.spreads());
  }
  for (const Candidate& c : best.candidates) {
    const auto choice = simulations.find(c.plan.attention);
    if (choice != simulations.end() && std::ssize(tried) < call().top) {
      tried.push_back({.choice = choice->second, .all = c.predicted.step.count()});
    }
  }
  if (!call().beside.empty()) {
    const KindsOfLayers kinds(call());
    for (const SequencePlan& liked : kinds.least_bounds()) {
      if (std::ranges::none_of(tried, [&](const Tried& t) { return t.choice.plan == liked; })) {
        if (const auto choice = simulated(liked)) {
          tried.push_back({.choice = *choice, .all = choice->takes.all});
        }
      }
    }
    for (Tried& t : tried) {
      kinds.for_each_beside(
          t.choice.plan, [&](const Evaluator& evaluator, double calls, const SequencePlan& plan) {
            const Strategy& strategy = strategies::by_name(plan.strategy, "strategy");
            const auto found = evaluation(plan, evaluator);
            t.all += calls * (found ? found->candidate.predicted.step.count()
                                    : evaluator.lower_bound(plan, strategy));
          });
    }
    std::ranges::stable_sort(tried, {}, &Tried::all);
  }
  AttentionChoices choices{.plans = {}, .settled = best.unsettled == 0};
  for (const Tried& t : tried) {
    const bool other = std::ranges::none_of(choices.plans, [&](const AttentionChoice& choice) {
      return choice.plan.ulysses == t.choice.plan.ulysses &&
             choice.plan.heads == t.choice.plan.heads;
    });
    constexpr std::size_t most = 3;
    if (other && choices.plans.size() < most) {
      choices.plans.push_back(t.choice);
    }
  }
  if (!choices.plans.empty() && may_wait_for_host(choices.plans.front())) {
    for (const SequencePlan& plan : fewest_ops()) {
      const auto choice = has(choices.plans, plan) ? std::nullopt : simulated(plan);
      if (choice && choice->issue < choices.plans.front().issue) {
        choices.plans.push_back(*choice);
      }
    }
  }
  return choices;
}

std::vector<SequencePlan> StepAttention::Asked::fewest_ops() {
  struct Few {
    SequencePlan plan;
    double ops = 0, bound = 0;
  };
  std::vector<Few> all;
  for (SequencePlan& plan : legal_plans(call(), nullptr)) {
    const Strategy& strategy = strategies::by_name(plan.strategy, "strategy");
    of_.spent_ += evaluator_.ops_of_asking();
    const double ops = evaluator_.ops_of_walk(plan, strategy);
    const double bound = lower_bound(plan).all;
    all.push_back({.plan = std::move(plan), .ops = ops, .bound = bound});
  }
  std::ranges::stable_sort(all, {}, [](const Few& f) { return std::pair(f.ops, f.bound); });
  constexpr std::size_t few = 2;
  std::vector<SequencePlan> fewest;
  for (std::size_t i = 0; i < std::min(few, all.size()); ++i) {
    fewest.push_back(std::move(all[i].plan));
  }
  return fewest;
}

std::vector<AttentionChoice> StepAttention::Asked::timed(const std::vector<SequencePlan>& plans) {
  std::vector<AttentionChoice> choices;
  for (const SequencePlan& plan : plans) {
    if (auto choice = simulated(plan)) {
      choices.push_back(std::move(*choice));
    }
  }
  return choices;
}

std::optional<Evaluation> StepAttention::Asked::evaluation(const SequencePlan& plan,
                                                           const Evaluator& evaluator) {
  const Strategy& strategy = strategies::by_name(plan.strategy, "strategy");
  const Effort& most = call().most;
  of_.spent_ += evaluator.ops_of_asking();
  if (evaluator.least_ops(plan, strategy) > most.ops) {
    return std::nullopt;
  }
  of_.spent_ += evaluator.ops_of_folding(plan);
  const sim::Folding folding = evaluator.fold(plan, strategy, true);
  const Effort effort = evaluator.effort(plan, strategy, folding);
  if (effort.ops > most.ops || effort.memory > most.memory) {
    return std::nullopt;
  }
  double took = effort.ops;
  auto found = evaluator.evaluate(plan, strategy,
                                  {.folding = &folding, .watch = [&](double done, double /*of*/) {
                                     took = std::max(took, done);
                                     return took <= most.ops;
                                   }});
  of_.spent_ += took;
  return found;
}

std::optional<AttentionChoice> StepAttention::Asked::simulated(const SequencePlan& plan) {
  const auto found = evaluation(plan, evaluator_);
  if (!found) {
    return std::nullopt;
  }
  tell(*found);
  return choice_of(*found);
}

std::vector<SequencePlan> StepAttention::Asked::leanest(Bytes below) {
  constexpr std::size_t few = 4;
  std::vector<SequencePlan> leanest;
  for (Lean& l : lean_plans(below)) {
    if (leanest.size() < few) {
      leanest.push_back(std::move(l.plan));
    }
  }
  return leanest;
}

std::vector<SequencePlan> StepAttention::Asked::fastest_lean(Bytes below) {
  constexpr std::size_t few = 3;
  std::vector<SequencePlan> front;  // each faster than all that are leaner
  double fastest = std::numeric_limits<double>::infinity();
  for (Lean& l : lean_plans(below)) {
    if (const double bound = lower_bound(l.plan).all; bound < fastest) {
      fastest = bound;
      front.push_back(std::move(l.plan));
    }
  }
  std::ranges::reverse(front);
  front.resize(std::min(few, front.size()));
  return front;
}

std::vector<StepAttention::Asked::Lean> StepAttention::Asked::lean_plans(Bytes below) {
  std::vector<Lean> lean;
  for (SequencePlan& p : legal_plans(call(), nullptr)) {
    if (const Bytes needed = least_memory(p); needed < below) {
      lean.push_back({std::move(p), needed});
    }
  }
  std::ranges::stable_sort(lean, {}, &Lean::memory);
  return lean;
}

std::optional<AttentionChoice> StepAttention::Asked::first_of(
    const std::vector<SequencePlan>& plans) {
  for (const SequencePlan& plan : plans) {
    if (auto choice = simulated(plan)) {
      return choice;
    }
  }
  return std::nullopt;
}

const AttentionChoices& StepAttention::choices_of(const StepPoint& point) {
  const auto [at, fresh] = choices_.try_emplace(shape_of(point));
  Known& shape = at->second;
  if (!fresh) {
    return shape.choices;
  }
  Asked asked(*this, point);
  if (request_.model->indexer) {
    shape = {.choices = asked.untimed(), .searched = request_.most.ops};
    return shape.choices;
  }
  if (const Degrees& degrees = degrees_[{point.tensor, point.sequence}]; !degrees.known.empty()) {
    shape.choices = {.plans = asked.timed(degrees.known), .settled = degrees.settled};
    if (shape.choices.plans.empty()) {
      shape.choices.settled = false;
      if (auto lean = asked.first_of(asked.leanest(Bytes(INT64_MAX)))) {
        shape.choices.plans.push_back(std::move(*lean));
      }
    }
    return shape.choices;
  }
  shape = {.choices = asked.search(), .searched = asked.may_spend()};
  remember(point, shape.choices);
  return shape.choices;
}

void StepAttention::remember(const StepPoint& point, const AttentionChoices& choices) {
  Degrees& degrees = degrees_[{point.tensor, point.sequence}];
  degrees = {.known = {}, .settled = choices.settled};
  for (const AttentionChoice& choice : choices.plans) {
    degrees.known.push_back(choice.plan);
  }
}

bool StepAttention::may_search_again(const StepPoint& point, double ops) const {
  constexpr double more = 2;
  const auto at = choices_.find(shape_of(point));
  return at != choices_.end() && (at->second.searched == 0 || (!at->second.choices.settled &&
                                                               ops > more * at->second.searched));
}

const AttentionChoices& StepAttention::search_again(const StepPoint& point, double ops) {
  Asked asked(*this, point);
  asked.spend_at_most(ops);
  Known& shape = choices_.at(shape_of(point));
  AttentionChoices found = asked.search();
  for (AttentionChoice& before : shape.choices.plans) {
    if (!has(found.plans, before.plan)) {
      found.plans.push_back(std::move(before));
    }
  }
  shape = {.choices = std::move(found), .searched = ops};
  remember(point, shape.choices);
  return shape.choices;
}

StepAttention::Leaner& StepAttention::leaner_plans(const StepPoint& point) {
  const auto [at, fresh] = leaner_.try_emplace(shape_of(point));
  Leaner& leaner = at->second;
  if (fresh) {
    const std::vector<AttentionChoice>& choices = choices_of(point).plans;
    Asked asked(*this, point);
    Bytes least(INT64_MAX);
    for (const AttentionChoice& choice : choices) {
      least = std::min(least, asked.least_memory(choice.plan));
    }
    if (!choices.empty() && !request_.model->indexer) {  // then none is left
      leaner.plans = asked.leanest(least);
      leaner.below = least;
    }
    constexpr double none = std::numeric_limits<double>::infinity();
    leaner.least = {.all = none, .forward = none};
    asked.lower(leaner.least, leaner.plans);
  }
  return leaner;
}

std::optional<AttentionSeconds> StepAttention::leaner_takes(const StepPoint& point, bool between) {
  Leaner& leaner = leaner_plans(point);
  if (between && !leaner.plans.empty() && !std::exchange(leaner.knows_between, true)) {
    Asked asked(*this, point);
    leaner.between = asked.fastest_lean(leaner.below);
    asked.lower(leaner.least, leaner.between);
  }
  return leaner.plans.empty() ? std::nullopt : std::optional(leaner.least);
}

const std::optional<AttentionChoice>& StepAttention::leaner_of(const StepPoint& point) {
  Leaner& leaner = leaner_plans(point);
  if (!std::exchange(leaner.tried, true)) {
    leaner.found = Asked(*this, point).first_of(leaner.plans);
  }
  return leaner.found;
}

const std::vector<AttentionChoice>& StepAttention::between_of(const StepPoint& point) {
  Leaner& leaner = leaner_plans(point);
  if (!std::exchange(leaner.tried_between, true)) {
    leaner.found_between = Asked(*this, point).timed(leaner.between);
  }
  return leaner.found_between;
}

std::optional<AttentionChoice> StepAttention::leanest_of(const StepPoint& point, double ops) {
  if (request_.model->indexer) {
    const std::vector<AttentionChoice>& choices = choices_of(point).plans;
    return choices.empty() ? std::nullopt : std::optional(choices.front());
  }
  Asked asked(*this, point);
  asked.spend_at_most(ops);
  return asked.first_of(asked.leanest(Bytes(INT64_MAX)));
}

}  // namespace spp
