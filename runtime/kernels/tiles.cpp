#include "runtime/kernels/tiles.hpp"

#include <algorithm>

namespace spp::runtime {

std::vector<KeyTile> key_tiles(const TokenSet& keys, std::int64_t size) {
  std::vector<KeyTile> tiles;
  std::int64_t row = 0;
  for (std::size_t r = 0; r < keys.ranges().size(); ++r) {
    const std::int64_t count = keys.ranges()[r].count;
    for (std::int64_t begin = 0; begin < count; begin += size) {
      const std::int64_t end = std::min(begin + size, count);
      tiles.push_back({.row = row + begin, .range = r, .positions = {.begin = begin, .end = end}});
    }
    row += count;
  }
  return tiles;
}

SeenKeys::SeenKeys(const Visibility& visible) {
  seen_.reserve(static_cast<std::size_t>(visible.q_tokens.count()));
  for (const TokenRange& queries : visible.q_tokens.ranges()) {
    for (std::int64_t i = 0; i < queries.count; ++i) {
      std::array<Interval, 2>& seen = seen_.emplace_back();
      const auto ranges = visible.k_tokens.ranges();
      for (std::size_t r = 0; r < ranges.size(); ++r) {
        seen.at(r) = visible_keys(queries.at(i), ranges[r], visible.mask, visible.seq);
      }
    }
  }
}

SeenTile SeenKeys::of(std::int64_t from, std::int64_t count, const KeyTile& tile) {
  rows_.resize(static_cast<std::size_t>(count));
  const std::array<Interval, 2>* seen = seen_.data() + from;
  bool any = false;
  for (Interval& row : rows_) {
    const Interval& keys = (*seen++)[tile.range];
    row = {.begin = std::max(keys.begin, tile.positions.begin) - tile.positions.begin,
           .end = std::min(keys.end, tile.positions.end) - tile.positions.begin};
    row = row.empty() ? Interval{} : row;
    any |= !row.empty();
  }
  return {.rows = rows_, .any = any};
}

}  // namespace spp::runtime
