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
  double seconds = 0;  // of a call, forward and backward
};

class StepAttention {
 public:
  /// `spent`: of request.most.ops, by whoever searches; what is spent here is added. Both must
  /// outlive this.
  StepAttention(const Request& request, double& spent) : request_(request), spent_(spent) {}

  /// Whether the point's shape has been searched.
  [[nodiscard]] bool knows(const StepPoint& point) const {
    return choices_.contains(shape_of(point));
  }
  /// The best of the two or three best pairs of degrees, fastest first, and a leaner one. Those of
  /// one micro-batch are taken for all, each with its own time. None if there are none, or too
  /// little is left to spend.
  const std::vector<AttentionChoice>& choices_of(const StepPoint& point);
  /// The leanest plan of a few that may be simulated with so many ops; or none.
  std::vector<AttentionChoice> leanest_of(const StepPoint& point, double ops);

 private:
  /// Tensor, sequence, micro-batch; whether attention has all GPUs.
  using Shape = std::tuple<int, int, std::int64_t, bool>;
  [[nodiscard]] Shape shape_of(const StepPoint& point) const {
    return {point.tensor, point.sequence, point.micro_batch, point.sequence == request_.gpus};
  }
  std::vector<AttentionChoice> searched(const StepPoint& point);
  std::vector<AttentionChoice> searched(const Request& call);
  /// Those that may be simulated.
  std::vector<AttentionChoice> timed(const std::vector<SequencePlan>& plans, const Request& call);
  /// Seconds of a call; nothing: too much.
  std::optional<double> simulated(const SequencePlan& plan, const Evaluator& evaluator,
                                  const Effort& most);
  /// Of the legal plans that take less memory than all choices, the leanest that may be simulated.
  void add_leaner(const Request& call, std::vector<AttentionChoice>& choices);

  const Request& request_;
  double& spent_;
  std::map<Shape, std::vector<AttentionChoice>> choices_;
  std::map<std::pair<int, int>, std::vector<SequencePlan>> known_;  // by tensor and sequence degree
};

}  // namespace spp
