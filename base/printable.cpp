#include "base/printable.hpp"

#include "base/utf8.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace spp {
namespace {

/// What a terminal would obey, or hide, instead of showing it.
bool is_control(std::uint32_t code) {
  const auto between = [code](std::uint32_t first, std::uint32_t last) {
    return code >= first && code <= last;
  };
  return code < 0x20 || between(0x7f, 0x9f) || between(0x200b, 0x200f) || between(0x2028, 0x202e) ||
         between(0x2060, 0x206f) || code == 0xfeff || code == 0x61c ||
         (code & 0xfffeU) == 0xfffeU;  // of no character: XML takes none of them
}

void append_escaped(std::uint32_t code, std::string& out) {
  if (code == '\t') {
    out += "\\t";
  } else if (code == '\n') {
    out += "\\n";
  } else if (code == '\r') {
    out += "\\r";
  } else if (code < 0x80) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", code);
  } else {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
  }
}

/// Bytes at the beginning of `text` that stay as they are.
using Kept = std::size_t (*)(std::string_view text);

std::string escaped(std::string_view text, Kept kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character c = first_character(text);
    std::size_t bytes = kept(text);
    if (bytes > 0 || (c.bytes > 0 && !is_control(c.code))) {
      bytes = std::max(bytes, c.bytes);
      out += text.substr(0, bytes);
    } else if (c.bytes > 0) {
      bytes = c.bytes;
      append_escaped(c.code, out);
    } else {
      bytes = 1;
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[0]));
    }
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace

std::string printable_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  return escaped(line, [](std::string_view) -> std::size_t { return 0; });
}

std::string printable_page(std::string_view text) {
  return escaped(text, [](std::string_view rest) -> std::size_t {
    if (rest.front() == '\n') {
      return 1;
    }
    for (const std::string_view style : {"\x1b[0m", "\x1b[1m", "\x1b[2m"}) {
      if (rest.starts_with(style)) {
        return style.size();
      }
    }
    // Black letters on a coloured ground.
    constexpr std::string_view on_ground = "\x1b[30;";
    if (rest.starts_with(on_ground)) {
      const std::size_t end = rest.find_first_not_of("0123456789", on_ground.size());
      const bool ground = end != std::string_view::npos && rest[end] == 'm' &&
                          end - on_ground.size() >= 2 && end - on_ground.size() <= 3;
      return ground ? end + 1 : 0;
    }
    return 0;
  });
}

}  // namespace spp
