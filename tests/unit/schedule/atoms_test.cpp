#include "schedule/atoms.hpp"

#include "tests/support/catch.hpp"

#include <set>

using namespace spp;

namespace {

AtomSet set_of(std::initializer_list<std::size_t> members) {
  AtomSet set;
  for (const std::size_t m : members) {
    set.insert(m);
  }
  return set;
}

/// Every rank declares one tile.
AtomGrid grid_of(const Problem& problem, const std::vector<TokenSet>& tiles,
                 const Grain& grain = {}) {
  Schedule schedule;
  schedule.contract.attention = problem;
  schedule.grain = grain;
  std::vector<Buffer> buffers;
  for (const TokenSet& tile : tiles) {
    buffers.push_back({.name = "q", .role = BufferRole::input, .head_range = {}, .tile = tile});
  }
  std::vector<std::span<const Buffer>> ranks;
  for (const Buffer& buffer : buffers) {
    ranks.emplace_back(&buffer, 1);
  }
  return {schedule, ranks};
}

/// The chunks of a layout, one a rank.
std::vector<TokenSet> chunks(std::int64_t seq, Layout layout, int ranks) {
  std::vector<TokenSet> tiles;
  for (int r = 0; r < ranks; ++r) {
    tiles.push_back(chunk_tokens(seq, layout, r, ranks));
  }
  return tiles;
}

TokenSet range(std::int64_t begin, std::int64_t count, std::int64_t stride = 1) {
  return TokenSet({.begin = begin, .count = count, .stride = stride});
}

}  // namespace

TEST_CASE("sets of atoms unite, intersect and differ across words") {
  const AtomSet a = set_of({1, 63, 64, 200});
  const AtomSet b = set_of({63, 65});
  CHECK(a.members() == std::vector<int>{1, 63, 64, 200});
  CHECK(a.intersects(b));
  CHECK(a.intersection(b) == set_of({63}));
  CHECK(a.minus(b) == set_of({1, 64, 200}));
  AtomSet both = b;
  both.unite(a);
  CHECK(both == set_of({1, 63, 64, 65, 200}));
}

TEST_CASE("sets that lost their highest members equal sets that never had them") {
  CHECK(set_of({1, 200}).minus(set_of({200})) == set_of({1}));
  CHECK(set_of({200}).intersection(set_of({1})).empty());
}

TEST_CASE("sets of high numbers hold what lies between the least and the greatest") {
  AtomSet set = set_of({6400, 6465});
  set.unite(set_of({130, 9000}));
  set.unite(AtomSet());
  CHECK(set.members() == std::vector<int>{130, 6400, 6465, 9000});
  CHECK(set.intersects(set_of({6465})));
  CHECK_FALSE(set.intersects(set_of({6466})));
  CHECK(set.minus(set_of({130, 9000})) == set_of({6400, 6465}));
  CHECK(set.intersection(set_of({0, 6400})) == set_of({6400}));
  CHECK(set.minus(set) == AtomSet());
  CHECK_FALSE(AtomSet().intersects(set));
}

TEST_CASE("only atoms of one micro-batch are pairs") {
  const Problem problem{.seq = 64, .mask = {.kind = MaskKind::full}, .micro_batches = 3};
  std::vector<TokenSet> tiles;
  for (int m = 0; m < 3; ++m) {
    for (int rank = 0; rank < 2; ++rank) {
      tiles.push_back(range(m * 64 + rank * 32, 32));
    }
  }
  const AtomGrid grid = grid_of(problem, tiles);
  REQUIRE(grid.token_atoms() == 6);
  CHECK(grid.pairs() == 3 * 2 * 2);
  std::set<std::size_t> numbers;
  for (int q = 0; q < 6; ++q) {
    CHECK(grid.beside(q).begin == q / 2 * 2);
    CHECK(grid.beside(q).end == q / 2 * 2 + 2);
    for (int k = 0; k < 6; ++k) {
      CHECK(grid.allowed(0, q, k) == (q / 2 == k / 2));
      if (q / 2 == k / 2) {
        numbers.insert(grid.pair(q, k));
      }
    }
  }
  CHECK(numbers.size() == grid.pairs());
  CHECK(*numbers.rbegin() == grid.pairs() - 1);
}

TEST_CASE("token atoms are what ranks hold; other sets must be unions of them") {
  const AtomGrid grid = grid_of({.seq = 64}, chunks(64, Layout::contiguous, 4));
  CHECK(grid.token_atoms() == 4);
  REQUIRE(grid.tokens(range(16, 32)) != nullptr);
  CHECK(*grid.tokens(range(16, 32)) == std::vector<int>{1, 2});
  CHECK(grid.tokens(range(16, 24)) == nullptr);
  CHECK(grid.tokens(range(0, 32, 2)) == nullptr);
  CHECK(grid.tokens(TokenSet()) == nullptr);
}

TEST_CASE("zigzag atoms are chunks, also where two chunks of a rank continue each other") {
  const AtomGrid grid =
      grid_of({.seq = 64}, chunks(64, Layout::zigzag, 2), {.tokens = 16, .heads = {}});
  CHECK(grid.token_atoms() == 4);  // rank 1 holds 16:32, two chunks of 16
  CHECK(*grid.tokens(range(16, 16)) == std::vector<int>{1});
  CHECK(grid.tokens_text(std::vector<int>{0, 1, 3}) == "0:32+48:16");
}

TEST_CASE("striped atoms make up plain ranges") {
  const AtomGrid grid = grid_of({.seq = 64}, chunks(64, Layout::striped, 4));
  CHECK(*grid.tokens(range(1, 16, 4)) == std::vector<int>{1});
  CHECK(grid.tokens(range(0, 64))->size() == 4);
  CHECK(grid.tokens_text(std::vector<int>{1}) == "1:16/4");
}

TEST_CASE("head atoms follow the Ulysses split; replicated KV heads serve several query atoms") {
  const Problem problem{.seq = 64, .q_heads = 8, .kv_heads = 2};
  const AtomGrid grid = grid_of(problem, chunks(64, Layout::contiguous, 4),
                                {.heads = HeadSplit(problem, 4, HeadPolicy::replicate)});
  CHECK(grid.query_atoms() == 4);
  CHECK(grid.head_atoms(Tensor::d_k) == 2);
  CHECK(grid.kv_of(1) == 0);
  CHECK(grid.kv_of(2) == 1);
  CHECK(grid.heads({2, 6}, Tensor::q) == HeadAtoms{.begin = 1, .end = 3});
  CHECK(grid.heads({1, 2}, Tensor::k) == HeadAtoms{.begin = 1, .end = 2});
  CHECK_FALSE(grid.heads({1, 4}, Tensor::q));
}

TEST_CASE("contributions are complete when the mask allows no others") {
  // Two ranks, causal: queries 0:32 see keys 0:32; keys 0:32 are seen by all queries.
  const AtomGrid grid = grid_of({.seq = 64}, chunks(64, Layout::contiguous, 2));
  CHECK(grid.complete(Tensor::out, {.tokens = 0, .heads = 0}) == set_of({0}));
  CHECK(grid.complete(Tensor::d_q, {.tokens = 1, .heads = 0}) == set_of({0, 1}));
  CHECK(grid.complete(Tensor::d_k, {.tokens = 0, .heads = 0}) == set_of({0, 1}));
  CHECK(grid.complete(Tensor::d_v, {.tokens = 1, .heads = 0}) == set_of({1}));
}

TEST_CASE("tiles that are made up of others cut nothing; what is cut into no whole is said") {
  std::vector<TokenSet> tiles = chunks(64, Layout::contiguous, 4);
  tiles.push_back(range(0, 32));
  CHECK(grid_of({.seq = 64}, tiles).token_atoms() == 4);
  CHECK(grid_of({.seq = 64}, tiles).flaw().empty());
  tiles.erase(tiles.begin() + 3);  // nobody holds 48:16
  CHECK_THAT(grid_of({.seq = 64}, tiles).flaw(),
             Catch::Matchers::ContainsSubstring("48 tokens in all, not 64"));
}
