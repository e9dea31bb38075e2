#include "runtime/kernels/tiles.hpp"

#include <algorithm>

namespace spp::runtime {
namespace {

/// From the first to the last row that sees any of `keys`, in multiples of `grain` as far as there
/// are rows.
Interval rows_that_see(const SeenTile& tile, const Interval& keys, std::int64_t grain) {
  const auto sees = [&](const Interval& row) {
    return std::max(row.begin, keys.begin) < std::min(row.end, keys.end);
  };
  const auto first = std::ranges::find_if(tile.rows, sees);
  if (first == tile.rows.end()) {
    return {};
  }
  const auto last = std::ranges::find_if(tile.rows.rbegin(), tile.rows.rend(), sees);
  const std::int64_t begin = first - tile.rows.begin();
  const std::int64_t end = tile.rows.rend() - last;
  return {.begin = begin / grain * grain,
          .end = std::min((end + grain - 1) / grain * grain, std::ssize(tile.rows))};
}

}  // namespace

std::vector<KeyTile> key_tiles(std::span<const TokenRange> keys, std::int64_t size) {
  std::vector<KeyTile> tiles;
  std::int64_t row = 0;
  for (std::size_t r = 0; r < keys.size(); ++r) {
    const std::int64_t count = keys[r].count;
    for (std::int64_t begin = 0; begin < count; begin += size) {
      const std::int64_t end = std::min(begin + size, count);
      tiles.push_back({.row = row + begin, .range = r, .positions = {.begin = begin, .end = end}});
    }
    row += count;
  }
  return tiles;
}

SeenKeys::SeenKeys(const Visibility& visible) {
  const std::vector<TokenRange> ranges = cut_at_chunks(visible.k_tokens, visible.mask);
  ranges_ = ranges.size();
  seen_.reserve(static_cast<std::size_t>(visible.q_tokens.count()) * ranges_);
  for (const TokenRange& queries : visible.q_tokens.ranges()) {
    for (std::int64_t i = 0; i < queries.count; ++i) {
      for (const TokenRange& keys : ranges) {
        seen_.push_back(visible_keys(queries.at(i), keys, visible.mask, visible.seq));
      }
    }
  }
}

SeenTile SeenKeys::of(const Interval& queries, const KeyTile& tile) {
  rows_.resize(static_cast<std::size_t>(queries.count()));
  const Interval* seen =
      seen_.data() + static_cast<std::size_t>(queries.begin) * ranges_ + tile.range;
  bool any = false;
  for (Interval& row : rows_) {
    const Interval& keys = *seen;
    seen += ranges_;
    row = {.begin = std::max(keys.begin, tile.positions.begin) - tile.positions.begin,
           .end = std::min(keys.end, tile.positions.end) - tile.positions.begin};
    row = row.empty() ? Interval{} : row;
    any |= !row.empty();
  }
  return {.rows = rows_, .any = any};
}

std::span<const Piece> SeenKeys::pieces(const Interval& queries, const KeyTile& tile,
                                        const Grain& grain) {
  constexpr double worth_it = 0.8;  // of the scores of all; slices are slower by score
  pieces_.clear();
  const SeenTile seen = of(queries, tile);
  if (!seen.any) {
    return pieces_;
  }
  std::int64_t scores = 0;
  for (std::int64_t begin = 0; begin < tile.count(); begin += grain.keys) {
    const Interval keys{.begin = begin, .end = std::min(begin + grain.keys, tile.count())};
    const Interval rows = rows_that_see(seen, keys, grain.queries);
    if (rows.empty()) {
      continue;
    }
    pieces_.push_back(
        {.keys = {.row = tile.row + begin,
                  .range = tile.range,
                  .positions = {.begin = tile.positions.begin + begin,
                                .end = tile.positions.begin + keys.end}},
         .slice = static_cast<std::size_t>(begin / grain.keys),
         .queries = {.begin = queries.begin + rows.begin, .end = queries.begin + rows.end}});
    scores += rows.count() * keys.count();
  }
  const Interval rows = rows_that_see(seen, {.begin = 0, .end = tile.count()}, grain.queries);
  if (static_cast<double>(scores) > worth_it * static_cast<double>(rows.count() * tile.count())) {
    pieces_ = {{.keys = tile,
                .slice = std::nullopt,
                .queries = {.begin = queries.begin + rows.begin, .end = queries.begin + rows.end}}};
  }
  return pieces_;
}

}  // namespace spp::runtime
