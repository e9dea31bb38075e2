// What samples say together.
#pragma once

#include <vector>

namespace spp {

/// Median absolute deviation from the median, over the median; 0 of nothing.
double spread_of(const std::vector<double>& values);
/// Relative standard error of their median, if they are independent and normally distributed:
/// 1.2533 sigma / sqrt(n), where sigma is 1.4826 median absolute deviations.
double error_of_median(const std::vector<double>& values);

/// Part of the samples in which the machine was more than 10 % slower than in the median.
double slow_part(const std::vector<double>& samples);

}  // namespace spp
