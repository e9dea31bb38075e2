// From values to places: linear and logarithmic scales, and where their ticks stand.
#pragma once

#include <string>
#include <vector>

namespace spp::report {

struct Scale {
  double from = 0, to = 1;  // values at the places 0 and 1; from < to
  bool logarithmic = false;
  /// The place of a value; outside of the scale below 0 or above 1.
  [[nodiscard]] double at(double value) const;
};

/// 1, 2 or 5 times a power of ten apart, within [from, to], about so many.
std::vector<double> nice_ticks(double from, double to, int about);

/// Powers of ten within [from, to], thinned out to about so many; where there are fewer than two of
/// them 1, 2, 5 times those. from > 0.
std::vector<double> log_ticks(double from, double to, int about);

/// From 0 to a nice number at or above the largest value.
Scale from_zero(double largest);

/// A logarithmic scale around positive values, with a little air at both ends.
Scale logarithmic_around(double least, double most);

/// The scale's own ticks.
std::vector<double> ticks_of(const Scale& scale, int about);

}  // namespace spp::report
