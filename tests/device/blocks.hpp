// Blocks of attention that tests run over: token sets of all layouts, and masks.
#pragma once

#include "schedule/tokens.hpp"

#include <string_view>
#include <vector>

namespace spp::test {

struct Block {
  std::string_view name;
  TokenSet queries, keys;
};

inline TokenSet tokens(std::int64_t begin, std::int64_t count, std::int64_t stride = 1) {
  return TokenSet({.begin = begin, .count = count, .stride = stride});
}

inline const std::vector<Block>& blocks() {
  static const std::vector<Block> all = {
      {"the same tokens", tokens(0, 24), tokens(0, 24)},
      {"keys behind all queries", tokens(0, 9), tokens(20, 11)},
      {"striped", tokens(1, 12, 4), tokens(3, 10, 4)},
      {"zigzag", TokenSet({.begin = 8, .count = 8}, {.begin = 40, .count = 8}),
       TokenSet({.begin = 0, .count = 8}, {.begin = 44, .count = 8})}};
  return all;
}

inline const std::vector<Mask>& masks() {
  static const std::vector<Mask> all = {{.kind = MaskKind::full},
                                        {.kind = MaskKind::causal},
                                        {.kind = MaskKind::window, .window = 5},
                                        {.kind = MaskKind::causal, .document_ends = {7, 22, 46}}};
  return all;
}

inline constexpr std::int64_t seq = 46;  // keys from here on are padding

}  // namespace spp::test
