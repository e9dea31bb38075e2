#include "samples/statistics.hpp"

#include "base/median.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace spp {

double spread_of(const std::vector<double>& values) {
  if (values.empty()) {
    return 0;
  }
  const double middle = median_of(values);
  std::vector<double> deviations;
  for (const double v : values) {
    deviations.push_back(std::abs(v - middle));
  }
  return middle > 0 ? median_of(deviations) / middle : 0;
}

double error_of_median(const std::vector<double>& values) {
  const auto n = static_cast<double>(std::max<std::size_t>(1, values.size()));
  return 1.2533 * 1.4826 * spread_of(values) / std::sqrt(n);
}

double slow_part(const std::vector<double>& samples) {
  if (samples.empty()) {
    return 0;
  }
  const double limit = 1.1 * median_of(samples);
  const auto slow = std::ranges::count_if(samples, [&](double s) { return s > limit; });
  return static_cast<double>(slow) / static_cast<double>(samples.size());
}

}  // namespace spp
