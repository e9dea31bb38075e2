// Walks the orders of all ranks of a pipeline at once: with times it is the simulation of a
// pipeline, without (all equal) its proof.
//
// An op starts when its rank is free and what it needs is there: the forward of the virtual stage
// before, the gradient of the one behind, each a message later; its own forward; a weight gradient
// its input gradient. Messages that a rank sends by the same links do so one after the other; where
// ranks share network cards, all that go out by one, or come in. Where messages do not overlap, the
// sender is busy while it sends.
#pragma once

#include "parallel/pipeline/pipeline.hpp"

#include <span>
#include <string>
#include <vector>

namespace spp {

/// Seconds of one micro-batch in a virtual stage. A backward that is cut takes the sum of its
/// parts.
struct StageTimes {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
  [[nodiscard]] double of(StageWork work) const {
    return (work == StageWork::forward ? forward : 0) +
           (work == StageWork::backward || work == StageWork::input_gradient ? input_gradient : 0) +
           (work == StageWork::backward || work == StageWork::weight_gradient ? weight_gradient
                                                                              : 0);
  }
};

struct PipelineTimes {
  std::vector<StageTimes> stages;  // by virtual stage
  std::vector<double> messages;    // by rank: to the next one, or back; of the last: to the first
  bool overlap = false;            // ranks go on while messages travel
  /// Which of them go from node to node; none: no message does. Those of a rank that do pass its
  /// network cards one after the other, as do those that do not its links inside the node.
  std::vector<bool> across = {};
  /// By rank: which network card they pass there, some the same one; none: each has its own.
  std::vector<int> cards = {};
  /// Of the message that such an op sends.
  [[nodiscard]] double message_of(const PipelineShape& shape, const StageOp& op, int rank) const;
  [[nodiscard]] bool crosses(const PipelineShape& shape, const StageOp& op, int rank) const;
  [[nodiscard]] bool share_cards() const;
};

struct StageInterval {
  StageOp op;
  double begin = 0, end = 0;
  double arrives = 0;  // its message; `end` if it sends none
};

struct PipelineRank {
  std::vector<StageInterval> ops;
  double busy = 0;     // ops
  double sending = 0;  // of messages that do not overlap
  [[nodiscard]] double end() const { return ops.empty() ? 0 : ops.back().end; }
};

struct PipelineWalk {
  std::vector<PipelineRank> ranks;
  std::string stuck;  // who waits for what, if no rank could go on; else ""
  [[nodiscard]] double end() const;
};

/// `times.stages` has an entry for each virtual stage.
PipelineWalk walk(const Pipeline& pipeline, const PipelineShape& shape, const PipelineTimes& times);

/// The same, but for ops before a rank's last forward, which may be missing: where all ranks have
/// come into step, what they repeat for every p micro-batches is walked no more. Sums are of all.
PipelineWalk walk_ends(const Pipeline& pipeline, const PipelineShape& shape,
                       const PipelineTimes& times);

/// Whether another rank waits for what the op gives.
bool sends(const PipelineShape& shape, const StageOp& op, int rank);
/// Who does.
int receiver_of(const PipelineShape& shape, const StageOp& op, int rank);

/// "" if every micro-batch passes every virtual stage exactly once in each direction, both halves
/// of a cut backward included, and no rank waits for ever; else the counter-example, one line.
std::string disproof(const Pipeline& pipeline, const PipelineShape& shape);

/// What a rank holds of a micro-batch in a chunk: behind its forward, and, where its backward is
/// cut, between the halves.
struct HeldByChunk {
  double forward = 0, input_gradient = 0;
};

/// The most that a rank holds at once, by its order alone.
double most_held(std::span<const StageOp> order, std::span<const HeldByChunk> held);
/// Of a rank's whole order, which is looked at only as far as it does not repeat itself.
double most_held(const Pipeline& pipeline, PipelineShape shape, int rank,
                 std::span<const HeldByChunk> held);

}  // namespace spp
