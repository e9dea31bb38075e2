#include "runtime/kernels/tiles.hpp"

#include "tests/support/catch.hpp"

using namespace spp;
using namespace spp::runtime;

TEST_CASE("key tiles cover the rows in order and cross no border of ranges") {
  const TokenSet keys({.begin = 8, .count = 10}, {.begin = 40, .count = 5});
  const auto tiles = key_tiles(keys, 4);
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
  for (const KeyTile& tile : key_tiles(visible.k_tokens, 7)) {
    const SeenTile part = seen.of(18, 5, tile);  // queries 55, 58, 70, 71, 72
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
