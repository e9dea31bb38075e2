#include "report/scale.hpp"

#include <algorithm>
#include <cmath>

namespace spp::report {
namespace {

/// Every so many of `all`, so that at most `about` remain.
std::vector<double> thinned(const std::vector<double>& all, int about) {
  const auto most = static_cast<std::size_t>(std::max(1, about));
  const std::size_t every = (all.size() + most - 1) / most;
  std::vector<double> kept;
  for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, every)) {
    kept.push_back(all[i]);
  }
  return kept;
}

/// A little beyond the ends: ticks that rounding puts there belong to the scale.
bool within(double value, double from, double to) {
  const double slack = 1e-9 * std::max(std::abs(from), std::abs(to));
  return value >= from - slack && value <= to + slack;
}

}  // namespace

double Scale::at(double value) const {
  if (!logarithmic) {
    return (value - from) / (to - from);
  }
  return value > 0 ? std::log(value / from) / std::log(to / from) : -1;
}

std::vector<double> nice_ticks(double from, double to, int about) {
  if (!(to > from) || !std::isfinite(to - from)) {
    return {from};
  }
  const double rough = (to - from) / std::max(1, about);
  const double decade = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / decade;
  const double step = decade * (digit <= 1.0001   ? 1
                                : digit <= 2.0001 ? 2
                                : digit <= 5.0001 ? 5
                                                  : 10);
  std::vector<double> ticks;
  const double first = std::ceil(from / step - 1e-9);
  for (int i = 0; i <= 2 * about + 2; ++i) {
    const double value = (first + i) * step;
    if (!within(value, from, to)) {
      break;
    }
    if (ticks.empty() || value > ticks.back()) {  // not below what a double tells apart
      ticks.push_back(value);
    }
  }
  return ticks.empty() ? std::vector<double>{from} : ticks;
}

std::vector<double> log_ticks(double from, double to, int about) {
  if (!(from > 0) || !(to > from) || !std::isfinite(to)) {
    return {from};
  }
  std::vector<double> decades;
  std::vector<double> fine;
  for (double e = std::floor(std::log10(from)); e <= std::ceil(std::log10(to)); ++e) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double value = digit * std::pow(10.0, e);
      if (within(value, from, to)) {
        fine.push_back(value);
        if (digit == 1.0) {
          decades.push_back(value);
        }
      }
    }
  }
  if (decades.size() >= 2) {
    return thinned(decades, about);
  }
  return fine.size() >= 2 ? thinned(fine, about) : nice_ticks(from, to, about);
}

Scale from_zero(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) {
    return {.from = 0, .to = 1};
  }
  // Up to the next tenth of a decade's digit: little air, and a round end.
  const double decade = std::pow(10.0, std::floor(std::log10(largest)));
  const double fine = decade / 5;
  return {.from = 0, .to = std::ceil(largest / fine - 1e-9) * fine};
}

Scale logarithmic_around(double least, double most) {
  if (!(least > 0) || !(most >= least) || !std::isfinite(most)) {
    return {.from = 1, .to = 10, .logarithmic = true};
  }
  constexpr double air = 1.25;
  return {.from = least / air, .to = most * air, .logarithmic = true};
}

std::vector<double> ticks_of(const Scale& scale, int about) {
  return scale.logarithmic ? log_ticks(scale.from, scale.to, about)
                           : nice_ticks(scale.from, scale.to, about);
}

}  // namespace spp::report
