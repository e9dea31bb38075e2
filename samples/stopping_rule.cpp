#include "samples/stopping_rule.hpp"

#include "samples/statistics.hpp"

#include <algorithm>
#include <cmath>

namespace spp {

int Patient::repetitions(double seconds) const {
  const double wanted = sample.count() / std::max(seconds, 1e-9);
  return static_cast<int>(std::clamp(std::ceil(wanted), 1.0, 1024.0));
}

bool Patient::satisfied_with(const std::vector<double>& samples) const {
  return spread_of(samples) < spread;
}

}  // namespace spp
