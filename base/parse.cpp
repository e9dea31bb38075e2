#include "base/parse.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string>

namespace spp {
namespace {

struct UnitScale {
  std::string_view name;
  double scale;
};

constexpr std::array<UnitScale, 9> byte_units{{{"B", 1},
                                               {"KB", 1e3},
                                               {"MB", 1e6},
                                               {"GB", 1e9},
                                               {"TB", 1e12},
                                               {"KiB", 1024.0},
                                               {"MiB", 1048576.0},
                                               {"GiB", 1073741824.0},
                                               {"TiB", 1099511627776.0}}};
constexpr std::array<UnitScale, 7> rate_units{{{"KB/s", 1e3},
                                               {"MB/s", 1e6},
                                               {"GB/s", 1e9},
                                               {"TB/s", 1e12},
                                               {"Mb/s", 0.125e6},
                                               {"Gb/s", 0.125e9},
                                               {"Tb/s", 0.125e12}}};
constexpr std::array<UnitScale, 4> time_units{{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}};
constexpr std::array<UnitScale, 3> flop_units{
    {{"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}}};

const UnitScale& unit_of(double value, std::string_view unit, std::span<const UnitScale> table,
                         std::string_view where) {
  std::vector<std::string> names;
  for (const UnitScale& entry : table) {
    if (entry.name == unit) {
      return entry;
    }
    names.emplace_back(entry.name);
  }
  throw InputError(
      where, unit.empty()
                 ? fmt::format("{} is a number without its unit{}", value, did_you_mean("", names))
                 : fmt::format("unknown unit '{}'{}", unit, did_you_mean(unit, names)));
}

double positive(double value, std::string_view where) {
  if (!std::isfinite(value) || value <= 0) {
    throw InputError(where, fmt::format("{} is not a positive number", value));
  }
  return value;
}

struct NumberAndUnit {
  double value;
  std::string_view unit;
};

NumberAndUnit number_and_unit(std::string_view text, std::string_view where) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (ec != std::errc() || (unit.empty() && !std::isfinite(value))) {
    throw InputError(where, fmt::format("'{}' is not a number with a unit", text));
  }
  while (unit.starts_with(' ')) {
    unit.remove_prefix(1);
  }
  return {value, unit};
}

/// `value` of `unit` in base units, if that is in [least, most].
double in_range(double value, const UnitScale& unit, double least, double most,
                std::string_view where) {
  const double scaled = positive(value, where) * unit.scale;
  if (!(scaled >= least && scaled <= most)) {
    throw InputError(where,
                     fmt::format("{} {} is out of range ({:.3g} to {:.3g} {})", value, unit.name,
                                 least / unit.scale, most / unit.scale, unit.name));
  }
  return scaled;
}

}  // namespace

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

std::int64_t parse_int(std::string_view text, std::string_view where, std::int64_t min,
                       std::int64_t max) {
  std::int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec == std::errc::invalid_argument || end != text.data() + text.size()) {
    throw InputError(where, fmt::format("'{}' is not a whole number ({} to {})", text, min, max));
  }
  if (ec == std::errc::result_out_of_range || value < min || value > max) {
    throw InputError(where, fmt::format("{} is out of range ({} to {})", text, min, max));
  }
  return value;
}

double parse_double(std::string_view text, std::string_view where) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    throw InputError(where, fmt::format("'{}' is not a number", text));
  }
  return value;
}

std::int64_t parse_tokens(std::string_view text, std::string_view where) {
  constexpr std::int64_t most = std::int64_t{1} << 31;  // so that pairs of tokens fit in 63 bits
  std::string_view digits = text;
  int shift = 0;
  if (digits.ends_with('K') || digits.ends_with('k')) {
    shift = 10;
  } else if (digits.ends_with('M') || digits.ends_with('m')) {
    shift = 20;
  }
  if (shift != 0) {
    digits.remove_suffix(1);
  }
  std::int64_t value = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (ec == std::errc::invalid_argument || end != digits.data() + digits.size()) {
    throw InputError(where,
                     fmt::format("'{}' is not a number of tokens (such as 4096, 32K, 1M)", text));
  }
  if (ec == std::errc::result_out_of_range || value < 1 || value > (most >> shift)) {
    throw InputError(where, fmt::format("{} tokens is out of range (1 to 2^31)", text));
  }
  return value << shift;
}

Bytes parse_bytes(std::string_view text, std::string_view where) {
  const NumberAndUnit n = number_and_unit(text, where);
  return bytes_from(n.value, n.unit, where);
}

Bandwidth parse_bandwidth(std::string_view text, std::string_view where) {
  const NumberAndUnit n = number_and_unit(text, where);
  return bandwidth_from(n.value, n.unit, where);
}

Bandwidth bandwidth_from(double value, std::string_view unit, std::string_view where) {
  return Bandwidth(in_range(value, unit_of(value, unit, rate_units, where), least_bandwidth.value(),
                            most_bandwidth.value(), where));
}

Bytes bytes_from(double value, std::string_view unit, std::string_view where) {
  return Bytes(std::llround(
      in_range(value, unit_of(value, unit, byte_units, where), 1, most_bytes.as_double(), where)));
}

Seconds seconds_from(double value, std::string_view unit, std::string_view where) {
  const UnitScale& scale = unit_of(value, unit, time_units, where);
  if (value == 0) {
    return Seconds(0);
  }
  if (!std::isfinite(value) || value < 0) {
    throw InputError(where, fmt::format("{} is not a time", value));
  }
  return Seconds(in_range(value, scale, least_seconds.count(), most_seconds.count(), where));
}

FlopRate flop_rate_from(double value, std::string_view unit, std::string_view where) {
  return FlopRate(in_range(value, unit_of(value, unit, flop_units, where), least_flop_rate.value(),
                           most_flop_rate.value(), where));
}

Seconds measured_from(double value, std::string_view unit, std::string_view where) {
  return Seconds(in_range(value, unit_of(value, unit, time_units, where), least_measured.count(),
                          most_seconds.count(), where));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const std::size_t at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) {
      return pieces;
    }
    text.remove_prefix(at + 1);
  }
}

}  // namespace spp
