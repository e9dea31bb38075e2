// Which tiles of scores exist, and which keys each query sees in them: what blocked attention
// kernels need to know of masks and token sets.
#pragma once

#include "runtime/kernels/attention.hpp"

#include <array>
#include <span>
#include <vector>

namespace spp::runtime {

/// Keys that lie next to each other in one range of k_tokens.
struct KeyTile {
  std::int64_t row = 0;   // of the first key, in the rows of k
  std::size_t range = 0;  // of k_tokens
  Interval positions{};   // in that range
  [[nodiscard]] std::int64_t count() const { return positions.count(); }
};
/// Cuts every range of `keys` into tiles of `size`; the last one of a range may be shorter.
std::vector<KeyTile> key_tiles(const TokenSet& keys, std::int64_t size);

/// What some queries see of a tile.
struct SeenTile {
  std::span<const Interval> rows;  // by query, in the tile: [0, tile.count()) is all of it
  bool any = false;
};

/// The visible keys of every query of a block.
class SeenKeys {
 public:
  explicit SeenKeys(const Visibility& visible);
  /// Of queries [from, from + count). The result lives until the next call.
  SeenTile of(std::int64_t from, std::int64_t count, const KeyTile& tile);

 private:
  std::vector<std::array<Interval, 2>> seen_;  // by query and range of k_tokens
  std::vector<Interval> rows_;
};

}  // namespace spp::runtime
