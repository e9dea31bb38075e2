// The streams of a layer's, or a step's, ops.
#pragma once

#include "base/id.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace spp {

struct LayerPlan;

/// Attention's come first.
struct LayerStreams {
  LayerStreams() = default;
  explicit LayerStreams(const LayerPlan& plan);

  static constexpr std::size_t first = 6;
  StreamId compute{0};
  StreamId tensor{first}, weights{first + 1};
  StreamId parameters;  // in shards; none if nothing is
  StreamId copies;      // of sums that are in shards; none if these have no copies
  StreamId experts;     // what tokens bring to experts, and back; none if all are here
  /// Of what the stages of a pipeline send each other, forward and back, from even and from odd
  /// ones: a rank's messages of one direction come and go on different ones.
  StreamId messages[2][2];
  std::vector<std::string> names;  // of those that are not attention's
};

}  // namespace spp
