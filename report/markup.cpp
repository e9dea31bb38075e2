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

std::size_t characters_within(double pixels, Lettering letters) {
  const double widest = letters.bold ? 0.7 : 0.64;  // of DejaVu Sans, a character on average, in em
  constexpr double margin = 1.25;
  return static_cast<std::size_t>(std::max(1.0, pixels / (margin * widest * letters.pixels)));
}

std::vector<std::string> lines_within(std::string_view text, double pixels, Lettering letters) {
  const std::size_t most = characters_within(pixels, letters);
  const auto length = [](std::string_view s) {
    return static_cast<std::size_t>(std::ranges::count_if(s, begins));
  };
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::size_t end = 0;    // bytes of this line
    std::size_t space = 0;  // the last place to break at
    for (std::size_t seen = 0; end < text.size(); ++end) {
      if (begins(text[end]) && ++seen > most) {
        break;
      }
      if (text[end] == ' ') {
        space = end;
      }
    }
    if (length(text) > most && space > 0 && text[end] != ' ') {
      end = space;
    }
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ', end)));
  }
  return lines;
}

std::string lines_svg(const std::vector<std::string>& lines, std::string_view style,
                      std::string_view x, double y, std::string_view anchor) {
  std::string svg;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    svg += fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>", style,
                       x, coordinate(y + line_height * static_cast<double>(i)), anchor,
                       escaped(lines[i]));
  }
  return svg;
}

std::string short_number(double value) { return fmt::format("{:.3g}", value); }

}  // namespace spp::report
