#include "base/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace spp {

double rounded(double value) { return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr); }

Json Numbers::quantity(double value, std::string_view unit, std::string source,
                       double spread) const {
  return {{"value", rounded(value)},
          {"unit", unit},
          {"source", std::move(source)},
          {"spread", rounded(std::clamp(spread, 0.0, 2.0))}};
}

Json Numbers::counted(std::int64_t value, std::string source, std::string_view unit) const {
  return {{"value", value}, {"unit", unit}, {"source", std::move(source)}};
}

Json Numbers::assumed(double value, std::string_view unit, std::string_view why,
                      double spread) const {
  Json json = quantity(value, unit, fmt::format("assumed: {}", why), spread);
  json["assumed"] = true;
  return json;
}

Json Numbers::fitted(const Fitted& f, double scale, std::string_view unit,
                     std::string_view what) const {
  if (f.samples == 0) {
    return assumed(f.value * scale, unit, fmt::format("{}, not measured", what), f.spread);
  }
  return quantity(f.value * scale, unit,
                  fmt::format("measured, of {} samples, {}, {}", f.samples, date_, what),
                  std::max(f.spread, 0.005));
}

Json Numbers::taken(const Sourced<double>& number, std::string_view unit) const {
  Json json = quantity(number.value, unit, number.source, number.spread);
  if (number.source.starts_with("assumed")) {
    json["assumed"] = true;
  }
  return json;
}

}  // namespace spp
