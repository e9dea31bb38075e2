// What sharing weights between ranks costs a step: gradients that are reduced, parameters that are
// gathered (ZeRO: Rajbhandari et al., arXiv:1910.02054, section 7).
//
//   stage 0    all-reduce of the gradients, behind the last backward
//   stage 1    reduce-scatter of the gradients, all-gather of what the optimizer updated
//   stage 2    the same, the gradients of every micro-batch by themselves
//   stage 3    layer by layer: parameters are gathered before the forward and again before the
//   backward,
//              gradients reduced behind it (FSDP). Under a pipeline parameters are gathered once a
//              step (torchtitan: reshard_after_forward is off there).
//
// One stream. A gather starts when the layer before begins (two gathered layers are alive), a
// reduction when its layer's backward ends; what has not arrived when it is needed is exposed.
#pragma once

#include "step/passes.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace spp {

/// What a layer's weights move: seconds alone.
struct WeightTimes {
  double gather = 0, reduce = 0;
};

/// Of a chunk of layers of which each takes that long, with its weights moved beside it.
struct LayerWork {
  double forward = 0, backward = 0;
  WeightTimes weights;
};
struct Sharded {
  double forward_exposed = 0, backward_exposed = 0;
  double forward_hidden = 0, backward_hidden = 0;
};
/// Stage 3 over the layers of a chunk, first to last.
Sharded gather_and_reduce(std::span<const LayerWork> layers);

/// Layers whose backward ends at these times, and how long their reduction takes: seconds that
/// reductions go on behind `end`.
struct Reduction {
  double ready = 0, seconds = 0;
};
double left_over(std::span<const Reduction> reductions, double end);

}  // namespace spp
