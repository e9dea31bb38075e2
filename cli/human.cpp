#include "cli/human.hpp"

#include "base/parse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace spp::cli {
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

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string shortened(std::string_view text, std::size_t width) {
  if (width_of(text) <= width) {
    return std::string(text);
  }
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xC0U) != 0x80U;
    if (begins && ++seen == width) {
      break;
    }
  }
  return std::string(text.substr(0, end)) + "…";
}

std::vector<std::string> Table::lines() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], width_of(row[c]));
    }
  }
  std::vector<std::string> result;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string gap(widths[c] - width_of(row[c]), ' ');
      line += c == 0 ? "" : "  ";
      line += c < right.size() && right[c] ? gap + row[c] : row[c] + gap;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result.push_back(std::move(line));
  }
  return result;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string result;
  std::string line;
  const auto flush = [&] {
    result += std::string(indent, ' ') + line + '\n';
    line.clear();
  };
  for (const std::string_view word : split(text, ' ')) {
    if (!line.empty() && indent + width_of(line) + 1 + width_of(word) > width) {
      flush();
    }
    line += line.empty() ? "" : " ";
    line += word;
  }
  flush();
  return result;
}

}  // namespace spp::cli
