#include "planner/search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace spp {
namespace {

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

/// Slower than this a plan is neither among the first `top` nor, if these are asked for, may it tie
/// with the fastest; infinite until there are as many.
double limit_of(const PlanResult& result, const Request& request) {
  constexpr double none = std::numeric_limits<double>::infinity();
  const auto seconds = [](const Prediction& p) { return p.step.count(); };
  if (request.objective == Objective::memory || result.candidates.empty()) {
    return none;
  }
  const double last = last_of_the_first(result, request, seconds).value_or(none);
  if (!request.finds_ties) {
    return last;
  }
  double fastest = none;
  for (const Candidate& c : result.candidates) {
    fastest = std::min(fastest, seconds(c.predicted));
  }
  return std::max((1 + most_slower) * fastest, last);
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
  return {.plan = {.attention = plan},
          .rule = "memory",
          .detail = fmt::format("needs {:.1f} GB of the {:.1f} GB that one GPU offers",
                                memory.as_double() / 1e9, request.memory.as_double() / 1e9)};
}

/// The search: a heap of plans, the most promising first, and what it may still spend.
class Search {
 public:
  Search(const Request& request, const Evaluator& evaluator, const Watch& watch,
         const OnSimulated& on_simulated, PlanResult& result)
      : request_(request),
        evaluator_(evaluator),
        watch_(watch),
        on_simulated_(on_simulated),
        result_(result) {}

  void add(const Ranked& plan) { queue_.push_back(plan); }
  [[nodiscard]] std::vector<Candidate> run();
  /// Simulates one plan if that is not too much; else bounds it.
  [[nodiscard]] Candidate simulated_or_bounded(const Ranked& r);
  [[nodiscard]] double spent() const;

 private:
  /// Says whether there is as much left, and takes it.
  bool spend(double ops) {
    if (spent_ + ops > request_.most.ops) {
      return false;
    }
    spent_ += ops;
    return true;
  }
  /// Takes plans from the queue until none matters. Those whose bounds would be tightened beyond
  /// `most` ops are left `waiting_`. Says whether it came on.
  bool go_through(double most);
  /// Tightens the bound; false: too much.
  bool walk(Ranked& r, double most);
  /// Nothing: too much.
  [[nodiscard]] std::optional<sim::Folding> afford(const Ranked& r);
  /// False: too much.
  bool simulate(const Ranked& r);
  /// `running`: ops of the simulation that runs.
  bool go_on(double running);
  [[nodiscard]] std::vector<Candidate> best_of_skipped();

  const Request& request_;
  const Evaluator& evaluator_;
  const Watch& watch_;
  const OnSimulated& on_simulated_;
  PlanResult& result_;
  std::vector<Ranked> queue_;
  std::vector<Ranked> waiting_;
  std::vector<Ranked> skipped_;
  double spent_ = 0;
  bool given_up_ = false;
};

bool Search::go_on(double running) {
  if (watch_ && !given_up_) {
    const double most = request_.most.ops;
    given_up_ = std::isfinite(most) ? !watch_(std::min(spent_ + running, most), most)
                                    : !watch_(static_cast<double>(result_.simulated),
                                              static_cast<double>(result_.searched));
  }
  return !given_up_;
}

bool Search::walk(Ranked& r, double most) {
  if (spent_ > most || !spend(evaluator_.ops_of_asking()) ||
      !spend(evaluator_.ops_of_walk(r.plan, *r.strategy))) {
    return false;
  }
  r.walked = true;
  r.bound = std::max(r.bound, evaluator_.walked_bound(r.plan, *r.strategy));
  return true;
}

std::optional<sim::Folding> Search::afford(const Ranked& r) {
  if (!spend(evaluator_.ops_of_asking()) ||
      spent_ + evaluator_.least_ops(r.plan, *r.strategy) > request_.most.ops ||
      !spend(evaluator_.ops_of_folding(r.plan))) {
    return std::nullopt;
  }
  sim::Folding folding = evaluator_.fold(r.plan, *r.strategy, true);
  const Effort effort = evaluator_.effort(r.plan, *r.strategy, folding);
  return effort.memory <= request_.most.memory && spend(effort.ops)
             ? std::optional(std::move(folding))
             : std::nullopt;
}

bool Search::simulate(const Ranked& r) {
  const double before = spent_;
  const std::optional<sim::Folding> folding = afford(r);
  if (!folding) {
    skipped_.push_back(r);
    return false;
  }
  const double paid = spent_ - before;
  constexpr double begins = 0.1;  // of a simulation: ranks, windows, walks of what is next
  double took = std::max(begins * paid, std::min(paid, 1e4));
  ++result_.simulated;
  bool too_much = false;  // it takes more than was known before, and more than is left
  const EvaluationOptions options{.folding = &*folding, .watch = [&](double done, double of) {
                                    took = std::max(took, paid * done / of);
                                    too_much = spent_ - paid + took > request_.most.ops;
                                    return go_on(took - paid) && !too_much;
                                  }};
  auto evaluation = evaluator_.evaluate(r.plan, *r.strategy, options, limit_of(result_, request_));
  // Slower than the last that is shown, or given up: the rest is left.
  if (!evaluation || took > paid) {
    spent_ += took - paid;
  }
  if (given_up_ || too_much) {
    --result_.simulated;
    skipped_.push_back(r);
  } else if (evaluation) {
    Candidate& c = evaluation->candidate;
    if (c.predicted.fits) {
      if (on_simulated_) {
        on_simulated_(*evaluation);
      }
      result_.candidates.push_back(std::move(c));
    } else {  // only because ops overlap
      result_.rejected.push_back(too_large(c.plan.attention, c.predicted.memory.total(), request_));
    }
  }
  return true;
}

bool Search::go_through(double most) {
  const auto later = [&](const Ranked& a, const Ranked& b) {
    return less_promising(request_, a, b);
  };
  bool came_on = false;
  std::ranges::make_heap(queue_, later);
  while (!queue_.empty() && go_on(0) && !settled(result_, request_, queue_.front())) {
    std::ranges::pop_heap(queue_, later);
    Ranked& r = queue_.back();
    if (r.walked || request_.objective == Objective::memory) {
      came_on = simulate(r) || came_on;
    } else if (walk(r, most)) {
      came_on = true;
      std::ranges::push_heap(queue_, later);
      continue;
    } else {
      waiting_.push_back(r);
    }
    queue_.pop_back();
  }
  return came_on;
}

std::vector<Candidate> Search::run() {
  // Each bound that a walk raises brings the next plan to the front: without an end to it, nothing
  // might be simulated.
  constexpr double walks = 0.5;  // of what is left
  bool came_on = true;
  do {
    came_on = go_through(spent_ + walks * (request_.most.ops - spent_));
    if (given_up_) {
      skipped_.insert(skipped_.end(), queue_.begin(), queue_.end());
    }
    queue_ = std::exchange(waiting_, {});
  } while (came_on && !queue_.empty() && !given_up_);
  skipped_.insert(skipped_.end(), queue_.begin(), queue_.end());
  return best_of_skipped();
}

std::vector<Candidate> Search::best_of_skipped() {
  std::erase_if(skipped_, [&](const Ranked& r) { return settled(result_, request_, r); });
  std::ranges::stable_sort(
      skipped_, [&](const Ranked& a, const Ranked& b) { return less_promising(request_, b, a); });
  result_.unsettled = static_cast<std::int64_t>(skipped_.size());
  std::vector<Candidate> best;
  for (const Ranked& r : skipped_) {
    if (static_cast<int>(best.size()) == request_.top) {
      break;
    }
    best.push_back(evaluator_.bounded(r.plan, *r.strategy, r.bound));
  }
  return best;
}

double Search::spent() const { return spent_; }

Candidate Search::simulated_or_bounded(const Ranked& r) {
  const std::optional<sim::Folding> folding = afford(r);
  auto evaluation =
      folding ? evaluator_.evaluate(
                    r.plan, *r.strategy,
                    {.folding = &*folding,
                     .watch = [&](double done,
                                  double /*of*/) { return go_on(0) && done <= request_.most.ops; }})
              : std::nullopt;
  return evaluation ? std::move(evaluation->candidate)
                    : evaluator_.bounded(r.plan, *r.strategy, r.bound);
}

}  // namespace

std::vector<Candidate> search(const Request& request, const Evaluator& evaluator,
                              const std::vector<SequencePlan>& legal, const Watch& watch,
                              PlanResult& result, const OnSimulated& on_simulated) {
  Search plans(request, evaluator, watch, on_simulated, result);
  std::optional<Ranked> leanest;
  for (const Ranked& r : candidates_of(evaluator, legal)) {
    leanest = !leanest || r.memory < leanest->memory ? r : *leanest;
    if (r.memory <= request.memory) {
      plans.add(r);
      continue;
    }
    result.rejected.push_back(too_large(r.plan, r.memory, request));
  }
  std::vector<Candidate> bounded = plans.run();
  if (result.candidates.empty() && bounded.empty()) {
    result.any_fits = false;
    if (leanest) {
      result.candidates.push_back(plans.simulated_or_bounded(*leanest));
    }
  }
  result.spent += plans.spent();
  return bounded;
}

}  // namespace spp
