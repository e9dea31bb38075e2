// Rotary embedding of one head on the host (Su et al., arXiv:2104.09864, eq. 34).
#pragma once

#include "runtime/kernels/row_floats.hpp"

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace spp::runtime {

/// Turns of pairs, from radians in fp64: a position times a frequency needs its digits.
class Rotation {
 public:
  /// Of `width` numbers; `sign` -1: back.
  Rotation(int width, double theta, int sign)
      : frequencies_(static_cast<std::size_t>(width / 2)), cos_(floats(width / 2)), sin_(cos_) {
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
      frequencies_[i] = sign * std::pow(theta, -2.0 * static_cast<double>(i) / width);
    }
  }
  void turn_to(std::int64_t position) {
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
      const double angle = static_cast<double>(position) * frequencies_[i];
      cos_[i] = static_cast<float>(std::cos(angle));
      sin_[i] = static_cast<float>(std::sin(angle));
    }
  }
  /// Of one head, or its part that is turned: pairs (i, i + width / 2).
  void apply(std::span<float> head) const {
    const std::span<float> first = head.first(cos_.size());
    const std::span<float> second = head.last(cos_.size());
    for (std::size_t i = 0; i < cos_.size(); ++i) {
      const float x = first[i];
      first[i] = x * cos_[i] - second[i] * sin_[i];
      second[i] = second[i] * cos_[i] + x * sin_[i];
    }
  }

 private:
  std::vector<double> frequencies_;
  std::vector<float> cos_, sin_;
};

}  // namespace spp::runtime
