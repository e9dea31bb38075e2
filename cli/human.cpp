#include "cli/human.hpp"

#include "base/parse.hpp"

#include <algorithm>

namespace spp::cli {

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
