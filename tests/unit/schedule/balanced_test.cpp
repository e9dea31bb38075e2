#include "schedule/balanced.hpp"

#include "tests/support/catch.hpp"

#include <algorithm>
#include <numeric>

namespace spp {
namespace {

constexpr std::int64_t seq = 4096;
constexpr int ranks = 8;

Mask packed(MaskKind kind) {
  return {.kind = kind, .window = 100, .document_ends = {1700, 1701, 2900, 3100, 4000}};
}

std::vector<std::int64_t> pairs_of(const Problem& problem, const std::vector<TokenSet>& tiles) {
  const TokenSet all({.begin = 0, .count = problem.seq});
  std::vector<std::int64_t> pairs;
  for (const TokenSet& tile : tiles) {
    pairs.push_back(allowed_pairs(tile, all, problem.mask));
  }
  return pairs;
}

TEST_CASE("balanced chunks give every token to one rank, and as many to each") {
  for (const MaskKind kind : {MaskKind::full, MaskKind::causal, MaskKind::window}) {
    const std::vector<TokenSet> tiles = balanced_chunks({.seq = seq, .mask = packed(kind)}, ranks);
    std::vector<int> holders(seq, 0);
    for (const TokenSet& tile : tiles) {
      CHECK(tile.count() == seq / ranks);
      for (const TokenRange& range : tile.ranges()) {
        CHECK(range.stride == 1);
        for (std::int64_t i = 0; i < range.count; ++i) {
          ++holders[static_cast<std::size_t>(range.at(i))];
        }
      }
      CHECK(std::ranges::is_sorted(tile.ranges()));
    }
    CHECK(std::ranges::all_of(holders, [](int n) { return n == 1; }));
  }
}

TEST_CASE("the busiest rank of balanced chunks has at most one chunk's pairs more than the mean") {
  // Greedy, largest first: a chunk goes to whoever has least, as long as nobody is full.
  for (const MaskKind kind : {MaskKind::full, MaskKind::causal, MaskKind::window}) {
    const Problem problem{.seq = seq, .mask = packed(kind)};
    const std::vector<std::int64_t> pairs = pairs_of(problem, balanced_chunks(problem, ranks));
    const std::int64_t mean = std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0}) / ranks;
    std::int64_t largest = 0;
    for (const TokenSet& chunk : chunks_of(problem, Layout::contiguous, ranks * 8)) {
      largest = std::max(largest, pairs_of(problem, {chunk}).front());
    }
    CHECK(*std::ranges::max_element(pairs) <= mean + largest);
  }
}

TEST_CASE("balanced chunks of a causal sequence are as even as zigzag's, within 1 %") {
  const Problem problem{.seq = seq};
  const std::vector<std::int64_t> pairs = pairs_of(problem, balanced_chunks(problem, ranks));
  const double mean =
      static_cast<double>(std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0})) / ranks;
  CHECK(static_cast<double>(*std::ranges::max_element(pairs)) < 1.01 * mean);
}

TEST_CASE("chunks of other layouts are those that the length tells") {
  const std::vector<TokenSet> chunks = chunks_of({.seq = 64}, Layout::zigzag, 4);
  REQUIRE(chunks.size() == 4);
  CHECK(chunks[1] == chunk_tokens(64, Layout::zigzag, 1, 4));
}

}  // namespace
}  // namespace spp
