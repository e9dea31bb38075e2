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
// Beside a layer weights move as long as its own transfers leave the links to them: these are what
// its kernels wait for.
#pragma once

#include "step/passes.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace spp {

/// A transfer: seconds alone, and what it takes of links.
struct WeightTransfer {
  double seconds = 0;
  sim::LinkSeconds links;
  /// With one behind it.
  WeightTransfer& operator+=(const WeightTransfer& next) {
    seconds += next.seconds;
    links += next.links;
    return *this;
  }
};
/// What a layer's weights move.
struct WeightTimes {
  WeightTransfer gather, reduce;
};

/// A pass of a layer, and what its own transfers take of links meanwhile.
struct LayerPass {
  double seconds = 0;
  sim::LinkSeconds links;
};
/// Of a chunk of layers of which each takes that long, with its weights moved beside it.
struct LayerWork {
  LayerPass forward, backward;
  WeightTimes weights;
};
struct Sharded {
  double forward_exposed = 0, backward_exposed = 0;
  double forward_hidden = 0, backward_hidden = 0;
};
/// Stage 3 over the layers of a chunk, first to last.
Sharded gather_and_reduce(std::span<const LayerWork> layers);

/// Of a layer's gradients, which are there at `ready`.
struct Reduction {
  double ready = 0;
  WeightTransfer transfer;
  double begin = 0, end = 0;  // when it moves
};
/// Says when they move, one after the other, `from` then on, while such passes run until `end`.
/// Seconds that they go on behind it.
double move_gradients(std::span<Reduction> reductions, double from, double end,
                      const LayerPass& beside);

}  // namespace spp
