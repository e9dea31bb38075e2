// When a series is long enough: at least 7 samples, until the median absolute deviation is small
// against the median or the time for it is used up.
#pragma once

#include "base/units.hpp"

#include <vector>

namespace spp {

struct Patient {
  int least = 7;
  int most = 61;
  double spread = 0.02;
  Seconds sample{0.002};  // a sample repeats what is shorter
  Seconds budget{0.1};    // of the whole series; `least` samples are taken whatever it says
  Seconds longest{1e9};   // what a first try and `least` samples would take longer for is left out
  /// Of the work, as far as it is known or foretold: what would take too long is not even tried,
  /// and what is shorter than a sample is timed first, since it is repeated as often as that says.
  Seconds once{};

  /// Work that takes `seconds` is not measured.
  [[nodiscard]] bool leaves_out(double seconds) const {
    return seconds * (1 + least) > longest.count();
  }
  /// How often a sample repeats work that takes `seconds`.
  [[nodiscard]] int repetitions(double seconds) const;
  /// Samples to take before looking at them again, after `taken`.
  [[nodiscard]] int round(int taken) const { return taken < least ? least - taken : 4; }
  /// Samples agree as well as they need to.
  [[nodiscard]] bool satisfied_with(const std::vector<double>& samples) const;
};

}  // namespace spp
