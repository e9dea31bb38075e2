// The frame that 1F1B and its descendants share: forwards to warm up, then a forward and a backward
// in turns, then the backwards that are left.
#pragma once

#include "parallel/pipeline/pipeline.hpp"

#include <algorithm>

namespace spp {

/// A rank has begun as many micro-batches as there are stages behind it, and its own.
inline int in_flight_in_turns(const PipelineShape& shape, int rank) {
  return std::min(shape.stages - rank, shape.micro_batches);
}

/// `forward(i)` and `backward(i)` append the i-th of `all`, i rising, of which `warm_up` forwards
/// come first.
template <class Forward, class Backward>
void alternate(int all, int warm_up, const Forward& forward, const Backward& backward) {
  for (int i = 0; i < warm_up; ++i) {
    forward(i);
  }
  for (int i = warm_up; i < all; ++i) {
    forward(i);
    backward(i - warm_up);
  }
  for (int i = all - warm_up; i < all; ++i) {
    backward(i);
  }
}

}  // namespace spp
