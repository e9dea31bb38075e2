// Which plans of attention a step's points are evaluated with: those of one shape (tensor and
// sequence degree, micro-batch) are searched once, for all points that have it.
#pragma once

#include "planner/evaluator.hpp"
#include "planner/step_space.hpp"

#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace spp {

/// A plan of attention that a point may have.
struct AttentionChoice {
  SequencePlan plan;
  AttentionSeconds takes;
  double issue = 0;  // seconds of the host, forward and backward
};
/// Those of a shape.
struct AttentionChoices {
  std::vector<AttentionChoice> plans;
  /// None that was left out may be faster.
  bool settled = true;
};

class StepAttention {
 public:
  /// `evaluator` is told what has been simulated. `spent`: of request.most.ops, by whoever
  /// searches; what is spent here is added. All must outlive this.
  StepAttention(const Request& request, StepEvaluator& evaluator, double& spent)
      : request_(request), evaluator_(evaluator), spent_(spent) {}

  /// Whether the point's shape has been searched.
  [[nodiscard]] bool knows(const StepPoint& point) const {
    return choices_.contains(shape_of(point));
  }
  /// The best of the two or three best pairs of degrees, fastest first; behind them, where the step
  /// waits for the host, those that ask least of it. Those of one micro-batch are taken for all,
  /// each with its own time. None if there are none, or too little is left to spend. Of attention
  /// that no schedule holds (Model::indexer): all legal plans, untimed.
  const AttentionChoices& choices_of(const StepPoint& point);
  /// Whether a search of the point's shape for itself, with so many ops, may find faster plans than
  /// choices_of().
  [[nodiscard]] bool may_search_again(const StepPoint& point, double ops) const;
  /// The plans that it finds with so many ops, which choices_of() gives from now on, too.
  const AttentionChoices& search_again(const StepPoint& point, double ops);
  /// Whether points have the same plans.
  [[nodiscard]] bool same_shape(const StepPoint& a, const StepPoint& b) const {
    return shape_of(a) == shape_of(b);
  }
  /// One for points where these take too much memory: of the plans that take less than all of them
  /// the leanest that may be simulated, if there is one. It is a long ring as often as not, so that
  /// what it takes at least, which needs no simulation, is asked first; nothing: there is none.
  /// `between`: with those of between_of, which are looked for then.
  std::optional<AttentionSeconds> leaner_takes(const StepPoint& point, bool between);
  const std::optional<AttentionChoice>& leaner_of(const StepPoint& point);
  /// Of the same plans a few that need more memory than the leanest, and may be faster: where those
  /// of choices_of do not fit, one of them may.
  const std::vector<AttentionChoice>& between_of(const StepPoint& point);
  /// The leanest plan of a few that may be simulated with so many ops; or none.
  std::optional<AttentionChoice> leanest_of(const StepPoint& point, double ops);

 private:
  /// Tensor, sequence, micro-batch; whether attention has all GPUs.
  using Shape = std::tuple<int, int, std::int64_t, bool>;
  [[nodiscard]] Shape shape_of(const StepPoint& point) const {
    return {point.tensor, point.sequence, point.micro_batch, point.sequence == request_.gpus};
  }
  /// A point's question while it is answered.
  class Asked;
  struct Leaner {
    std::vector<SequencePlan> plans;    // leanest first
    std::vector<SequencePlan> between;  // that need more, and may be faster
    Bytes below{};                      // what they need less than
    AttentionSeconds least;             // of all that are known
    bool knows_between = false, tried = false, tried_between = false;
    std::optional<AttentionChoice> found;  // the first of `plans` that may be simulated
    std::vector<AttentionChoice> found_between;
  };
  Leaner& leaner_plans(const StepPoint& point);

  const Request& request_;
  StepEvaluator& evaluator_;
  double& spent_;
  struct Known {
    AttentionChoices choices;
    double searched = 0;  // ops that its own search might take; 0: others' plans were taken
  };
  std::map<Shape, Known> choices_;
  std::map<Shape, Leaner> leaner_;
  /// What the last search of any micro-batch found.
  struct Degrees {
    std::vector<SequencePlan> known;
    bool settled = true;
  };
  void remember(const StepPoint& point, const AttentionChoices& choices);
  std::map<std::pair<int, int>, Degrees> degrees_;  // tensor and sequence
};

}  // namespace spp
