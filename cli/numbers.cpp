#include "cli/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>

namespace spp::cli {

std::string utc(const char* form) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 64> text{};
  (void)std::strftime(text.data(), text.size(), form, &parts);
  return text.data();
}

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

Json Numbers::taken(const Sourced<double>& fraction) const {
  Json json = quantity(fraction.value, "fraction", fraction.source, fraction.spread);
  if (fraction.source.starts_with("assumed")) {
    json["assumed"] = true;
  }
  return json;
}

Json Numbers::headed(std::string_view kind, std::string_view name) {
  return {{"format", fmt::format("sp-plan/{}", kind)}, {"format_version", "1.0"}, {"name", name}};
}

}  // namespace spp::cli
