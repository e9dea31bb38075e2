#include "runtime/kernels/tiles.hpp"

#include "tests/support/catch.hpp"

#include <string>

using namespace spp;
using namespace spp::runtime;

namespace {

constexpr Mask causal{.kind = MaskKind::causal};

TokenSet range(std::int64_t begin, std::int64_t count, std::int64_t stride = 1) {
  return TokenSet({.begin = begin, .count = count, .stride = stride});
}

/// Scores of all pieces of a query tile.
std::int64_t scores_of(std::span<const Piece> pieces) {
  std::int64_t sum = 0;
  for (const Piece& piece : pieces) {
    sum += piece.queries.count() * piece.keys.count();
  }
  return sum;
}

}  // namespace

TEST_CASE("key tiles cover the rows in order and cross no border of ranges") {
  const TokenSet keys({.begin = 8, .count = 10}, {.begin = 40, .count = 5});
  const auto tiles = key_tiles(keys.ranges(), 4);
  REQUIRE(tiles.size() == 5);
  CHECK(tiles[2].row == 8);
  CHECK(tiles[2].positions == Interval{8, 10});
  CHECK(tiles[3].row == 10);
  CHECK(tiles[3].range == 1);
  CHECK(tiles[3].positions == Interval{0, 4});
  CHECK(tiles[4].count() == 1);
}

TEST_CASE("seen keys of a tile are those that the mask allows") {
  const Visibility visible{
      .q_tokens = TokenSet({.begin = 1, .count = 20, .stride = 3}, {.begin = 70, .count = 9}),
      .k_tokens = TokenSet({.begin = 2, .count = 25, .stride = 2}, {.begin = 60, .count = 15}),
      .mask = {.kind = MaskKind::window, .window = 30},
      .seq = 72};
  SeenKeys seen(visible);
  for (const KeyTile& tile : key_tiles(visible.k_tokens.ranges(), 7)) {
    const SeenTile part = seen.of({18, 23}, tile);  // queries 55, 58, 70, 71, 72
    const std::int64_t queries[] = {55, 58, 70, 71, 72};
    bool any = false;
    REQUIRE(part.rows.size() == 5);
    for (std::size_t q = 0; q < 5; ++q) {
      for (std::int64_t i = 0; i < tile.count(); ++i) {
        const std::int64_t key = visible.k_tokens.ranges()[tile.range].at(tile.positions.begin + i);
        const bool allowed = visible.mask.allows(queries[q], key) && key < visible.seq;
        any = any || allowed;
        REQUIRE((i >= part.rows[q].begin && i < part.rows[q].end) == allowed);
      }
    }
    REQUIRE(part.any == any);
  }
}

TEST_CASE("pieces of a tile: all of it where most is seen, slices at a mask's edge") {
  constexpr Grain grain{.keys = 64, .queries = 64};
  SeenKeys seen({.q_tokens = range(0, 512), .k_tokens = range(0, 512), .mask = causal, .seq = 512});
  const TokenSet keys = range(0, 512);
  const auto tiles = key_tiles(keys.ranges(), 256);
  CHECK(seen.pieces({0, 256}, tiles[1], grain).empty());  // the future
  const auto past = seen.pieces({256, 512}, tiles[0], grain);
  REQUIRE(past.size() == 1);
  CHECK_FALSE(past[0].slice.has_value());
  CHECK(past[0].queries == Interval{256, 512});
  CHECK(past[0].keys.count() == 256);
  const auto edge = seen.pieces({256, 512}, tiles[1], grain);
  REQUIRE(edge.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto from = static_cast<std::int64_t>(256 + 64 * i);
    CHECK(edge[i].slice == i);
    CHECK(edge[i].keys.row == from);
    CHECK(edge[i].queries == Interval{from, 512});
  }
  CHECK(scores_of(edge) == 256 * 256 * 5 / 8);
  // Half as many queries: the first ones see half of the keys; slices would leave the last ones 7/8
  // of all scores, which is not worth it.
  CHECK(scores_of(seen.pieces({256, 384}, tiles[1], grain)) == 64 * (128 + 64));
  CHECK(scores_of(seen.pieces({384, 512}, tiles[1], grain)) == 128 * 256);
}

TEST_CASE("pieces hold every visible score once") {
  const Mask full{.kind = MaskKind::full};
  const Mask window{.kind = MaskKind::window, .window = 90};
  const std::vector<std::pair<std::string, Visibility>> cases = {
      {"causal", {range(0, 300), range(0, 300), causal, 290}},
      {"full", {range(0, 300), range(0, 300), full, 290}},
      {"striped", {range(1, 130, 4), range(3, 130, 4), causal, 1000}},
      {"zigzag", {{{0, 70}, {350, 70}}, {{70, 70}, {280, 70}}, causal, 420}},
      {"window", {range(100, 200), range(50, 260), window, 1000}},
      {"nothing", {range(0, 50), range(60, 50), causal, 1000}}};
  for (const auto& [name, visible] : cases) {
    CAPTURE(name);
    for (const Grain grain : {Grain{.keys = 16, .queries = 8}, Grain{.keys = 64, .queries = 64}}) {
      SeenKeys seen(visible);
      const std::int64_t queries = visible.q_tokens.count();
      for (const KeyTile& tile : key_tiles(visible.k_tokens.ranges(), 100)) {
        for (std::int64_t from = 0; from < queries; from += 64) {
          const Interval some{from, std::min(from + 64, queries)};
          const SeenTile whole = seen.of(some, tile);
          const std::vector<Interval> wanted(whole.rows.begin(), whole.rows.end());
          std::vector<std::vector<int>> met(
              wanted.size(), std::vector<int>(static_cast<std::size_t>(tile.count())));
          for (const Piece& piece : seen.pieces(some, tile, grain)) {
            REQUIRE(piece.queries.begin >= some.begin);
            REQUIRE(piece.queries.end <= some.end);
            const std::int64_t shift = piece.keys.row - tile.row;
            const SeenTile part = seen.of(piece.queries, piece.keys);
            REQUIRE(part.any);
            for (std::int64_t q = piece.queries.begin; q < piece.queries.end; ++q) {
              const Interval& keys = part.rows[static_cast<std::size_t>(q - piece.queries.begin)];
              for (std::int64_t k = keys.begin; k < keys.end; ++k) {
                ++met[static_cast<std::size_t>(q - from)][static_cast<std::size_t>(k + shift)];
              }
            }
          }
          for (std::size_t q = 0; q < wanted.size(); ++q) {
            for (std::int64_t k = 0; k < tile.count(); ++k) {
              REQUIRE(met[q][static_cast<std::size_t>(k)] ==
                      (k >= wanted[q].begin && k < wanted[q].end ? 1 : 0));
            }
          }
        }
      }
    }
  }
}
