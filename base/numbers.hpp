// Quantities with unit, source and spread, written: what the readers of base/json.hpp read.
#pragma once

#include "base/json.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace spp {

/// A fitted number.
struct Fitted {
  double value = 0;
  double spread = 0;
  std::int64_t samples = 0;  // 0: assumed
};

class Numbers {
 public:
  /// `date`: of the measurements.
  explicit Numbers(std::string date) : date_(std::move(date)) {}

  [[nodiscard]] const std::string& date() const { return date_; }
  [[nodiscard]] Json quantity(double value, std::string_view unit, std::string source,
                              double spread) const;
  [[nodiscard]] Json counted(std::int64_t value, std::string source,
                             std::string_view unit = "count") const;
  [[nodiscard]] Json assumed(double value, std::string_view unit, std::string_view why,
                             double spread = 0.3) const;
  /// `what`: of which samples.
  [[nodiscard]] Json fitted(const Fitted& f, double scale, std::string_view unit,
                            std::string_view what) const;

  /// A number that came with its source.
  [[nodiscard]] Json taken(const Sourced<double>& number, std::string_view unit = "fraction") const;

 private:
  std::string date_;
};

/// Five digits: more is noise.
double rounded(double value);

}  // namespace spp
