// Numbers (base/human.hpp) and tables for people.
#pragma once

#include "base/human.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

using spp::human;
using spp::human_count;
using spp::human_tokens;

/// Columns of text, aligned; the first row is the heading. Widths count characters, not bytes.
struct Table {
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> right;  // right-aligned columns
  [[nodiscard]] std::vector<std::string> lines() const;
};

/// Breaks text at spaces so that lines, `indent` included, have at most `width` characters.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width = 100);

/// Characters of UTF-8 text.
std::size_t width_of(std::string_view text);

/// The first `width` characters, the last one an ellipsis if something was cut.
std::string shortened(std::string_view text, std::size_t width);

}  // namespace spp::cli
