// Which tiles of scores exist, and which keys each query sees in them: what blocked attention
// kernels need to know of masks and token sets.
#pragma once

#include "runtime/kernels/attention.hpp"

#include <optional>
#include <span>
#include <vector>

namespace spp::runtime {

/// Keys that lie next to each other in one range of cut_at_chunks(k_tokens).
struct KeyTile {
  std::int64_t row = 0;   // of the first key, in the rows of k
  std::size_t range = 0;  // which one
  Interval positions{};   // in that range
  [[nodiscard]] std::int64_t count() const { return positions.count(); }
};
/// Cuts every range of `keys` into tiles of `size`; the last one of a range may be shorter.
std::vector<KeyTile> key_tiles(std::span<const TokenRange> keys, std::int64_t size);

/// What some queries see of a tile.
struct SeenTile {
  std::span<const Interval> rows;  // by query, in the tile: [0, tile.count()) is all of it
  bool any = false;
};

/// A rectangle of scores: a tile or a slice of it, and the queries that see any of its keys.
struct Piece {
  KeyTile keys;
  std::optional<std::size_t> slice;  // which one of the tile; none: all of it
  Interval queries{};                // of the block
};
/// Slices of tiles have `keys` keys; queries come in multiples of `queries`, so that there are few
/// different sizes.
struct Grain {
  std::int64_t keys = 64;
  std::int64_t queries = 64;
};

/// The visible keys of every query of a block.
class SeenKeys {
 public:
  explicit SeenKeys(const Visibility& visible);
  /// What `queries` of the block see. The result lives until the next call.
  SeenTile of(const Interval& queries, const KeyTile& tile);
  /// What covers all that `queries` see of the tile: all of it, or slices where those have much
  /// fewer scores, as where a mask's edge crosses the tile. Lives until the next call.
  std::span<const Piece> pieces(const Interval& queries, const KeyTile& tile, const Grain& grain);

 private:
  std::size_t ranges_ = 0;      // of keys
  std::vector<Interval> seen_;  // by query, then by range
  std::vector<Interval> rows_;
  std::vector<Piece> pieces_;
};

}  // namespace spp::runtime
