// A whole step, predicted: time by part, and memory by stage.
//
// Blocks in blocks. A layer's pass is its kernels and transfers one after the other (passes.hpp),
// with its attention as simulated; a chunk is its layers with their weights moved beside them
// (weights.hpp); a pipeline is its chunks and micro-batches in the order of its ranks
// (parallel/pipeline), walked op by op. Behind the slowest rank come its gradients, the optimizer,
// and the parameters that it updated.
#pragma once

#include "step/common.hpp"
#include "step/memory.hpp"
#include "step/timeline.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace spp {

/// One attention call by kind of layer, as layer_runs() numbers them.
using AttentionCosts = std::span<const AttentionCost>;

struct StepCost {
  StepSeconds parts;
  double hidden = 0;
  int slowest = 0;  // its stage
  [[nodiscard]] double total() const { return parts.total(); }
};

/// Of sequences of `seq` tokens, padded for the plan, which is legal (why_not). InputError if the
/// machine cannot run it.
StepCost step_cost(StepCommon& common, const StepPlan& plan, std::int64_t seq,
                   AttentionCosts attention);

/// What a rank of a stage sends in such a step.
SentBytes step_sent(StepCommon& common, const StepPlan& plan, std::int64_t seq,
                    AttentionCosts attention, int stage);

/// The same laid out in time, of a training step: it ends when the cost says.
StepTimeline step_timeline(StepCommon& common, const StepPlan& plan, std::int64_t seq,
                           AttentionCosts attention);

/// Of each stage's fullest rank.
std::vector<MemoryBytes> step_memory(StepCommon& common, const StepPlan& plan, std::int64_t seq,
                                     AttentionCosts attention);
/// That whose tensors need most: what an allocator holds beside them fills up what is left.
MemoryBytes fullest(std::span<const MemoryBytes> stages);

}  // namespace spp
