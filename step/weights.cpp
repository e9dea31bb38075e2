#include "step/weights.hpp"

#include <algorithm>

namespace spp {

Sharded gather_and_reduce(std::span<const LayerWork> layers) {
  Sharded result;
  double network = 0;  // when it is free
  double moved = 0;
  // Forward: gather i + 1 is issued as layer i begins.
  double begins = 0;
  double ends = 0;
  double work = 0;
  for (const LayerWork& layer : layers) {
    network = std::max(network, begins) + layer.weights.gather;
    moved += layer.weights.gather;
    begins = std::max(ends, network);
    ends = begins + layer.forward;
    work += layer.forward;
  }
  result.forward_exposed = ends - work;
  result.forward_hidden = std::max(0.0, moved - result.forward_exposed);
  // Backward: the same from the last layer on, whose weights are still there; gradients go behind
  // it.
  network = ends = work = moved = 0;
  double there = 0;  // when the layer's weights are
  for (std::size_t i = layers.size(); i-- > 0;) {
    const LayerWork& layer = layers[i];
    begins = std::max(ends, there);
    ends = begins + layer.backward;
    work += layer.backward;
    if (i > 0) {
      network = std::max(network, begins) + layers[i - 1].weights.gather;
      moved += layers[i - 1].weights.gather;
      there = network;
    }
    network = std::max(network, ends) + layer.weights.reduce;
    moved += layer.weights.reduce;
  }
  result.backward_exposed = std::max(ends, network) - work;
  result.backward_hidden = std::max(0.0, moved - result.backward_exposed);
  return result;
}

double left_over(std::span<const Reduction> reductions, double end) {
  double network = 0;
  for (const Reduction& r : reductions) {
    network = std::max(network, r.ready) + r.seconds;
  }
  return std::max(0.0, network - end);
}

}  // namespace spp
