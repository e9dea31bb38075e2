#include "report/markup.hpp"

#include "base/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace spp::report {
namespace {

constexpr std::size_t longest_text = 2000;

/// Whether a byte of UTF-8 text begins a character.
bool begins(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

}  // namespace

std::string cut(std::string_view text, std::size_t characters) {
  std::size_t seen = 0;
  std::size_t last = 0;  // where the last character that has room begins
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (begins(text[i])) {
      if (++seen > characters) {
        return std::string(text.substr(0, last)) + "…";
      }
      last = i;
    }
  }
  return std::string(text);
}

std::string escaped(std::string_view text) {
  // Cut before anything else looks at it: bytes first, so that no text takes long.
  const std::string line = printable_line(text.substr(0, 4 * longest_text));
  std::string out;
  for (const char c : cut(line, longest_text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string coordinate(double value) {
  std::string text = fmt::format("{:.2f}", std::isfinite(value) ? value : 0.0);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) {
    text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

std::string along(double fraction) {
  return coordinate(100 * std::clamp(fraction, -1.0, 2.0)) + "%";
}

std::string percent(double fraction) {
  const double value = 100 * fraction;
  const double size = std::abs(value);
  const int digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return size >= 1e5 ? fmt::format("{:.2g} %", value) : fmt::format("{:.{}f} %", value, digits);
}

std::string signed_percent(double fraction) {
  return (fraction < 0 ? "" : "+") + percent(fraction);
}

std::string short_number(double value) { return fmt::format("{:.3g}", value); }

}  // namespace spp::report
