#include "parallel/attention/parameter.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace spp {

std::string Parameter::why_not(int value, std::string_view what, std::int64_t n) const {
  const std::int64_t parts = squared ? std::int64_t{value} * value : value;
  if (value >= 1 && n % parts == 0) {
    return "";
  }
  return squared
             ? fmt::format("{} squared is {}, which does not divide {} {}", value, parts, what, n)
             : fmt::format("{} does not divide {} {}", value, what, n);
}

std::vector<int> Parameter::choices(int ring) const {
  std::vector<int> result;
  for (int value = from_one ? 1 : 2; value < ring && value <= most_tried; ++value) {
    if (ring % value == 0 && why_not(value, "", ring).empty()) {
      result.push_back(value);
    }
  }
  return result;
}

ParameterValues::ParameterValues(std::initializer_list<Value> values) {
  for (const Value& v : values) {
    set(*v.parameter, v.value);
  }
}

void ParameterValues::set(const Parameter& parameter, int value) {
  const auto end = values_.begin() + static_cast<std::ptrdiff_t>(count_);
  const auto at =
      std::find_if(values_.begin(), end, [&](const Value& v) { return v.parameter == &parameter; });
  if (at != end) {
    std::move(at + 1, end, at);
    values_.at(--count_) = {};
  }
  if (value == 1) {
    return;
  }
  ensure(count_ < most, "a plan with more parameters than there are");
  const auto behind =
      std::find_if(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(count_),
                   [&](const Value& v) { return parameter.name < v.parameter->name; });
  std::move_backward(behind, values_.begin() + static_cast<std::ptrdiff_t>(count_),
                     values_.begin() + static_cast<std::ptrdiff_t>(count_ + 1));
  *behind = {.parameter = &parameter, .value = value};
  ++count_;
}

}  // namespace spp
