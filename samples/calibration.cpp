#include "samples/calibration.hpp"

#include "samples/pace.hpp"

#include <fmt/format.h>

namespace spp {

std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::vector<Series> raw_series(const Calibration& calibration) {
  std::vector<Series> all;
  for (const std::string_view suite : calibration_suites) {
    if (const auto it = calibration.series.find(std::string(suite));
        it != calibration.series.end()) {
      all.insert(all.end(), it->second.begin(), it->second.end());
    }
  }
  return all;
}

std::vector<Series> all_series(const Calibration& calibration) {
  return at_one_pace(raw_series(calibration));
}

}  // namespace spp
