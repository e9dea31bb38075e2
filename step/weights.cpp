#include "step/weights.hpp"

#include <algorithm>

namespace spp {

namespace {

/// A pass from when to when: before and behind it nothing else moves.
struct Beside {
  double begins = 0, ends = 0;
  LayerPass pass;
};

/// Of its speed alone, what the pass leaves a transfer.
double speed_beside(const LayerPass& pass, const WeightTransfer& transfer) {
  double speed = 1;
  for (std::size_t level = 0; level < sim::link_levels; ++level) {
    const double needed = transfer.links[level];
    if (needed > 0 && pass.seconds > 0) {
      const double free = std::max(0.0, 1 - pass.links[level] / pass.seconds);
      speed = std::min(speed, free * transfer.seconds / needed);
    }
  }
  return speed;
}

/// When a transfer is over that begins at `from`, which is not behind the pass.
double moved_by(double from, const WeightTransfer& transfer, const Beside& beside) {
  const double before = std::max(0.0, beside.begins - from);
  if (transfer.seconds <= before) {
    return from + transfer.seconds;
  }
  const double start = std::max(from, beside.begins);
  const double left = transfer.seconds - before;
  const double speed = speed_beside(beside.pass, transfer);
  const double room = speed * std::max(0.0, beside.ends - start);
  return left < room ? start + left / speed : std::max(start, beside.ends) + left - room;
}

}  // namespace

Sharded gather_and_reduce(std::span<const LayerWork> layers) {
  Sharded result;
  double network = 0;  // when it is free
  double moved = 0;
  // Forward: gather i + 1 is issued as layer i begins.
  Beside layer;
  double work = 0;
  for (const LayerWork& next : layers) {
    network = moved_by(std::max(network, layer.begins), next.weights.gather, layer);
    moved += next.weights.gather.seconds;
    const double begins = std::max(layer.ends, network);
    layer = {.begins = begins, .ends = begins + next.forward.seconds, .pass = next.forward};
    work += next.forward.seconds;
  }
  result.forward_exposed = layer.ends - work;
  result.forward_hidden = std::max(0.0, moved - result.forward_exposed);
  // Backward: the same from the last layer on, whose weights are still there; gradients go behind
  // it.
  network = work = moved = 0;
  layer = {};
  double there = 0;        // when the layer's weights are
  WeightTransfer reduced;  // of the layer behind it
  for (std::size_t i = layers.size(); i-- > 0;) {
    const LayerPass& pass = layers[i].backward;
    const double ready = layer.ends;
    const double begins = std::max(layer.ends, there);
    layer = {.begins = begins, .ends = begins + pass.seconds, .pass = pass};
    work += pass.seconds;
    network = moved_by(std::max(network, ready), reduced, layer);
    if (i > 0) {
      const WeightTransfer& gather = layers[i - 1].weights.gather;
      network = moved_by(std::max(network, begins), gather, layer);
      moved += gather.seconds;
      there = network;
    }
    reduced = layers[i].weights.reduce;
    moved += reduced.seconds;
  }
  network = std::max(network, layer.ends) + reduced.seconds;
  result.backward_exposed = network - work;
  result.backward_hidden = std::max(0.0, moved - result.backward_exposed);
  return result;
}

double move_gradients(std::span<Reduction> reductions, double from, double end,
                      const LayerPass& beside) {
  const Beside passes{.begins = 0, .ends = end, .pass = beside};
  for (Reduction& r : reductions) {
    r.begin = std::max(from, r.ready);
    r.end = from = moved_by(r.begin, r.transfer, passes);
  }
  return std::max(0.0, from - end);
}

}  // namespace spp
