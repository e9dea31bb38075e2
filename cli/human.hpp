// Numbers and tables for people: three significant digits with a unit.
#pragma once

#include "base/units.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

std::string human(Seconds seconds);            // "812 ms"
std::string human(Bytes bytes);                // "62.1 GB", powers of 10
std::string human(Bandwidth rate);             // "46.0 GB/s"
std::string human_tokens(std::int64_t count);  // "128K" (1024-based) when whole, else "75,600"
std::string human_count(std::int64_t count);   // "1,234,567"

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
