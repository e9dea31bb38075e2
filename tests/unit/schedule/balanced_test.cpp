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

TEST_CASE("what is dealt out by work gives every token to one rank, and as many to each") {
  const Layout layout = GENERATE(Layout::balanced, Layout::whole_documents);
  for (const MaskKind kind : {MaskKind::full, MaskKind::causal, MaskKind::window}) {
    const std::vector<TokenSet> tiles =
        *dealt_by_work({.seq = seq, .mask = packed(kind)}, layout, ranks);
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

/// Ranks that hold tokens of each document.
std::vector<int> holders_of(const Mask& mask, const std::vector<TokenSet>& tiles) {
  std::vector<int> holders;
  std::int64_t begin = 0;
  for (const std::int64_t end : mask.document_ends) {
    holders.push_back(static_cast<int>(std::ranges::count_if(tiles, [&](const TokenSet& tile) {
      return std::ranges::any_of(tile.ranges(), [&](const TokenRange& range) {
        return range.begin < end && range.last() >= begin;
      });
    })));
    begin = end;
  }
  return holders;
}

TEST_CASE("a document lies whole on one rank, a longer one on as few as have room for it") {
  // 512 tokens a rank. Of 1,500,000 pairs the first has a million, so three ranks' share; the third
  // finds 178, 179 and 179 free beside it, the others lie whole.
  const Problem problem{
      .seq = 2048, .mask = {.kind = MaskKind::full, .document_ends = {1000, 1500, 2000, 2012}}};
  const std::vector<TokenSet> tiles = whole_documents(problem, 4);
  CHECK(holders_of(problem.mask, tiles) == std::vector{3, 1, 3, 1});
}

TEST_CASE("documents of fewer tokens than pieces are dealt out, too") {
  const Problem problem{.seq = 14, .mask = {.document_ends = {4, 10, 12, 13}}};
  for (const TokenSet& tile : whole_documents(problem, 7)) {
    CHECK(tile.count() == 2);
  }
}

TEST_CASE("whole documents of like lengths have even work, and no rank needs another") {
  std::vector<std::int64_t> ends;
  for (std::int64_t i = 1; i <= 64; ++i) {
    ends.push_back(64 * i);
  }
  const Problem problem{.seq = seq, .mask = {.document_ends = ends}};
  const std::vector<TokenSet> tiles = whole_documents(problem, ranks);
  const std::vector<std::int64_t> pairs = pairs_of(problem, tiles);
  CHECK(std::ranges::count(pairs, pairs.front()) == ranks);
  CHECK(std::ranges::count(holders_of(problem.mask, tiles), 1) == 64);
}

TEST_CASE("one long document among short ones goes to all ranks in even parts") {
  std::vector<std::int64_t> ends{2048};
  while (ends.back() < seq) {
    ends.push_back(ends.back() + 32);
  }
  const Problem problem{.seq = seq, .mask = {.document_ends = ends}};
  const std::vector<TokenSet> tiles = whole_documents(problem, ranks);
  const std::vector<std::int64_t> pairs = pairs_of(problem, tiles);
  const std::int64_t mean = std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0}) / ranks;
  CHECK(static_cast<double>(*std::ranges::max_element(pairs)) < 1.01 * static_cast<double>(mean));
  CHECK(holders_of(problem.mask, tiles).front() == ranks);
}

TEST_CASE("chunks of other layouts are those that the length tells") {
  const std::vector<TokenSet> chunks = chunks_of({.seq = 64}, Layout::zigzag, 4);
  REQUIRE(chunks.size() == 4);
  CHECK(chunks[1] == chunk_tokens(64, Layout::zigzag, 1, 4));
}

}  // namespace
}  // namespace spp
