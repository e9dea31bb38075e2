// UTF-8, character by character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spp {

struct Utf8Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

/// The character that `text`, which is not empty, begins with. Overlong forms, surrogates and what
/// lies beyond Unicode are not UTF-8.
Utf8Character first_character(std::string_view text);

/// Where `text` has its first byte that is not UTF-8; npos: nowhere.
std::size_t find_not_utf8(std::string_view text);

}  // namespace spp
