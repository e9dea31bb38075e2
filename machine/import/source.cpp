#include "machine/import/source.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp::imports {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }
bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

/// A line as a terminal shows it: escape sequences (ESC [ … letter) and other control characters
/// are left out, blanks of other alphabets (no-break space) are blanks.
std::string shown_line(std::string_view line) {
  constexpr char escape = '\x1b';
  std::string shown;
  shown.reserve(line.size());
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == escape && i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && (line[i] < '@' || line[i] > '~')) {
        ++i;
      }
    } else if (c == '\xc2' && i + 1 < line.size() && line[i + 1] == '\xa0') {
      shown += ' ';
      ++i;
    } else if (c == '\t' || static_cast<unsigned char>(c) >= ' ') {
      shown += c;
    }
  }
  return shown;
}

}  // namespace

std::string to_string(const Place& place) {
  return place.line == 0 ? place.file : fmt::format("{}:{}", place.file, place.line);
}

std::string to_string(const Between& between) {
  switch (between.way) {
    case Way::unknown:
      return "unknown";
    case Way::nvlink:
      return fmt::format("NV{}", between.nvlinks);
    case Way::pix:
      return "PIX";
    case Way::pxb:
      return "PXB";
    case Way::phb:
      return "PHB";
    case Way::node:
      return "NODE";
    case Way::sys:
      return "SYS";
  }
  throw InternalError("unknown way between GPUs");
}

Source source_of(std::string text, std::string file) {
  if (text.size() > most_import_text) {
    throw InputError(file, fmt::format("{} bytes; what describes a machine has at most {}",
                                       text.size(), most_import_text));
  }
  Source source{.file = std::move(file),
                .text = std::move(text),
                .lines = {},
                .line_starts = {},
                .xml = false};
  const std::string_view whole = source.text;
  const std::size_t first = whole.find_first_not_of(" \t\r\n");
  source.xml = first != std::string_view::npos && whole[first] == '<';
  for (std::size_t begin = 0; begin < whole.size();) {
    const std::size_t end = std::min(whole.find('\n', begin), whole.size());
    if (end - begin > most_import_line && !source.xml && whole[first] != '{') {
      throw InputError(to_string(source.at(source.lines.size())),
                       fmt::format("a line of {} letters; no program that describes machines "
                                   "writes more than {}",
                                   end - begin, most_import_line));
    }
    source.line_starts.push_back(begin);
    if (!source.xml) {
      source.lines.push_back(shown_line(whole.substr(begin, end - begin)));
    }
    begin = end + 1;
  }
  return source;
}

Place Source::at_offset(std::size_t offset) const {
  const auto after = std::ranges::upper_bound(line_starts, offset);
  return {file, static_cast<std::size_t>(after - line_starts.begin())};
}

std::vector<std::string> words_of_line(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < line.size();) {
    while (i < line.size() && is_blank(line[i])) {
      ++i;
    }
    const std::size_t begin = i;
    while (i < line.size() && !is_blank(line[i])) {
      ++i;
    }
    if (i > begin) {
      words.emplace_back(line.substr(begin, i - begin));
    }
  }
  return words;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_blank(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

std::optional<std::string> value_of(std::string_view line, std::string_view key) {
  line = trimmed(line);
  if (!line.starts_with(key)) {
    return std::nullopt;
  }
  line = trimmed(line.substr(key.size()));
  if (line.empty() || (line.front() != ':' && line.front() != '=')) {
    return std::nullopt;
  }
  return std::string(trimmed(line.substr(1)));
}

int leading_int(std::string_view text) {
  constexpr std::size_t most_digits = 9;
  int value = 0;
  std::size_t digits = 0;
  while (digits < text.size() && is_digit_char(text[digits])) {
    if (++digits > most_digits) {
      return -1;
    }
    value = value * 10 + (text[digits - 1] - '0');
  }
  return digits == 0 ? -1 : value;
}

}  // namespace spp::imports
