#include "base/human.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace spp {
namespace {

/// Three significant digits: 4.21, 42.1, 421; 4.21e+08 from a million on.
std::string three_digits(double value) {
  const double size = std::abs(value);
  constexpr double a_million = 1e6;
  if (size >= a_million) {
    return fmt::format("{:.2e}", value);
  }
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

struct Scale {
  double from;
  std::string_view unit;
};

template <std::size_t N>
std::string scaled(double value, const std::array<Scale, N>& scales) {
  for (const Scale& s : scales) {
    if (value >= s.from * 0.9995) {
      return fmt::format("{} {}", three_digits(value / s.from), s.unit);
    }
  }
  return fmt::format("{} {}", three_digits(value / scales.back().from), scales.back().unit);
}

}  // namespace

std::string human(Seconds seconds) {
  return seconds.count() == 0
             ? "0"
             : scaled(seconds.count(),
                      std::array<Scale, 3>{{{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}}});
}

std::string human(Bytes bytes) {
  if (bytes == Bytes{}) {
    return "0";
  }
  return scaled(
      bytes.as_double(),
      std::array<Scale, 5>{{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}, {1, "B"}}});
}

std::string human(Bandwidth rate) {
  return scaled(rate.value(), std::array<Scale, 3>{{{1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}}});
}

std::string human_count(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::size_t at = digits.size(); at > 3 && digits[at - 4] != '-'; at -= 3) {
    digits.insert(at - 3, ",");
  }
  return digits;
}

std::string human_tokens(std::int64_t count) {
  constexpr std::int64_t k = 1024;
  if (count >= k * k && count % (k * k) == 0) {
    return fmt::format("{}M", count / (k * k));
  }
  return count >= k && count % k == 0 ? fmt::format("{}K", count / k) : human_count(count);
}

std::string human_count(std::int64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", human_count(count), thing, count == 1 ? "" : "s");
}

}  // namespace spp
