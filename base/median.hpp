// The middle of a set of values: the mean of the two middle ones if their number is even.
#pragma once

#include "base/error.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace spp {

/// Of anything that is ordered, added and halved: numbers, seconds. There must be at least one.
template <class Value>
Value median_of(std::vector<Value> values) {
  ensure(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return values.size() % 2 == 1 ? *middle
                                : (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace spp
