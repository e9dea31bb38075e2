// A file as the readers of other people's formats see it, and the words they share.
#pragma once

#include "machine/import/facts.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp::imports {

struct Source {
  std::string file;
  std::string text;
  std::vector<std::string> lines;        // as a terminal shows them; of XML none
  std::vector<std::size_t> line_starts;  // in text
  bool xml = false;                      // the text begins with '<'

  [[nodiscard]] Place at(std::size_t line_index) const { return {file, line_index + 1}; }
  [[nodiscard]] Place at_offset(std::size_t offset) const;
};

/// Beyond these a file is no description of a machine.
constexpr std::size_t most_import_text = 16'000'000;
constexpr std::size_t most_import_line = 100'000;

/// InputError(file) if it is too large, or has lines that no program writes.
Source source_of(std::string text, std::string file);

/// Words between blanks.
std::vector<std::string> words_of_line(std::string_view line);
/// Without blanks at both ends.
std::string_view trimmed(std::string_view text);
/// The text of "key:   text" or "key=text" at the start of a line, whatever its indent; else
/// nothing.
std::optional<std::string> value_of(std::string_view line, std::string_view key);
/// A whole number at the start of `text`, digits only, at most 9; -1 if there is none.
int leading_int(std::string_view text);

}  // namespace spp::imports
