#include "runtime/kernels/cudnn/sections.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <limits>
#include <random>

using namespace spp;
using namespace spp::runtime;

namespace {

std::vector<std::int64_t> listed(const TokenSet& set) {
  std::vector<std::int64_t> tokens;
  for (const TokenRange& r : set.ranges()) {
    for (std::int64_t i = 0; i < r.count; ++i) {
      tokens.push_back(r.at(i));
    }
  }
  return tokens;
}

/// What cuDNN makes of a call: whether query row i of it sees key row j of it.
bool call_sees(const Section& s, std::int64_t i, std::int64_t j) {
  switch (s.mask) {
    case SdpaMask::none:
      return true;
    case SdpaMask::top_left:
      return j <= i;
    case SdpaMask::bottom_right:
      return j <= i + s.k.count() - s.q.count();
  }
  return false;
}

/// Pairs that sections and the mask see differently; query rows that are not in one section.
std::int64_t differences(const Visibility& visible, const std::vector<Section>& list) {
  const auto queries = listed(visible.q_tokens);
  const auto keys = listed(visible.k_tokens);
  std::int64_t wrong = 0;
  std::int64_t row = 0;
  for (const Section& s : list) {
    wrong += s.q.begin != row || s.q.empty() ? 1 : 0;
    wrong += s.seen == s.k.empty() ? 1 : 0;
    wrong += s.mask == SdpaMask::bottom_right && s.q.count() > s.k.count() ? 1 : 0;
    for (; row < s.q.end; ++row) {
      for (std::int64_t j = 0; j < std::ssize(keys); ++j) {
        const std::int64_t key = keys[static_cast<std::size_t>(j)];
        const bool allowed =
            key < visible.seq && visible.mask.allows(queries[static_cast<std::size_t>(row)], key);
        const bool seen =
            s.seen && j >= s.k.begin && j < s.k.end && call_sees(s, row - s.q.begin, j - s.k.begin);
        wrong += allowed != seen ? 1 : 0;
      }
    }
  }
  return wrong + (row == std::ssize(queries) ? 0 : 1);
}

std::int64_t calls_of(const std::vector<Section>& list) {
  return std::count_if(list.begin(), list.end(), [](const Section& s) { return s.seen; });
}

/// The fewest calls that rows with these visible keys can be cut into, by trying all cuts.
std::int64_t fewest_calls(const Visibility& visible) {
  const auto queries = listed(visible.q_tokens);
  const auto keys = listed(visible.k_tokens);
  std::vector<Interval> seen;
  for (const std::int64_t q : queries) {
    Interval rows;
    for (std::int64_t j = 0; j < std::ssize(keys); ++j) {
      const std::int64_t key = keys[static_cast<std::size_t>(j)];
      if (key < visible.seq && visible.mask.allows(q, key)) {
        rows = rows.empty() ? Interval{j, j + 1} : Interval{rows.begin, j + 1};
      }
    }
    seen.push_back(rows);
  }
  const auto n = std::ssize(seen);
  const auto at = [&](std::int64_t i) { return seen[static_cast<std::size_t>(i)]; };
  const auto cost = [&](std::int64_t from, std::int64_t to) -> std::int64_t {
    bool nothing = true;
    bool stays = true;
    bool rises = true;
    bool top_left = at(from).count() == 1;
    bool rising = true;
    for (std::int64_t i = from; i < to; ++i) {
      nothing = nothing && at(i).empty();
      stays = stays && at(i) == at(from);
      rises = rises && at(i) == Interval{at(from).begin, at(from).end + i - from};
      if (i > from) {
        rising = rising && at(i).end == at(i - 1).end + 1;
        top_left =
            top_left && at(i).begin == at(from).begin && (rising || at(i).end == at(i - 1).end);
      }
    }
    if (nothing) {
      return 0;
    }
    return !at(from).empty() && (stays || rises || top_left) ? 1 : n + 1;
  };
  std::vector<std::int64_t> best(static_cast<std::size_t>(n) + 1, 0);
  for (std::int64_t i = n - 1; i >= 0; --i) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t j = i + 1; j <= n; ++j) {
      least = std::min(least, cost(i, j) + best[static_cast<std::size_t>(j)]);
    }
    best[static_cast<std::size_t>(i)] = least;
  }
  return best.front();
}

Section section(Interval q, Interval k, SdpaMask mask) { return {.q = q, .k = k, .mask = mask}; }

/// Tokens of rank r of R: `chunk` each, as a layout deals them out.
TokenSet zigzag(std::int64_t r, std::int64_t ranks, std::int64_t half) {
  return {{.begin = r * half, .count = half}, {.begin = (2 * ranks - 1 - r) * half, .count = half}};
}
TokenSet striped(std::int64_t r, std::int64_t ranks, std::int64_t count) {
  return TokenSet({.begin = r, .count = count, .stride = ranks});
}

constexpr Mask causal{.kind = MaskKind::causal};

}  // namespace

TEST_CASE("blocks of the layouts are one cuDNN call each") {
  const auto cut = [](const TokenSet& q, const TokenSet& k, std::int64_t seq) {
    const Sections result = sections({.q_tokens = q, .k_tokens = k, .mask = causal, .seq = seq});
    REQUIRE(result.why_not.empty());
    return result.list;
  };
  using List = std::vector<Section>;
  const Interval all{0, 8};
  SECTION("contiguous") {
    const TokenSet mine({.begin = 8, .count = 8});
    CHECK(cut(mine, mine, 32) == List{section(all, all, SdpaMask::top_left)});
    CHECK(cut(mine, TokenSet({.begin = 0, .count = 8}), 32) ==
          List{section(all, all, SdpaMask::none)});
    CHECK(cut(mine, TokenSet({.begin = 0, .count = 16}), 32) ==
          List{section(all, {0, 16}, SdpaMask::bottom_right)});
  }
  SECTION("zigzag") {
    CHECK(cut(zigzag(1, 4, 4), zigzag(1, 4, 4), 32) == List{section(all, all, SdpaMask::top_left)});
    CHECK(cut(zigzag(2, 4, 4), zigzag(1, 4, 4), 32) == List{section(all, {0, 4}, SdpaMask::none)});
    CHECK(cut(zigzag(1, 4, 4), zigzag(2, 4, 4), 32) ==
          List{{.q = {0, 4}, .seen = false}, section({4, 8}, all, SdpaMask::none)});
  }
  SECTION("striped") {
    CHECK(cut(striped(2, 4, 8), striped(1, 4, 8), 32) ==
          List{section(all, all, SdpaMask::top_left)});
    CHECK(cut(striped(1, 4, 8), striped(2, 4, 8), 32) ==
          List{{.q = {0, 1}, .seen = false}, section({1, 8}, {0, 7}, SdpaMask::top_left)});
  }
  SECTION("padded: queries behind the last key join the call") {
    CHECK(cut(striped(2, 4, 8), striped(1, 4, 8), 25) ==
          List{section(all, {0, 6}, SdpaMask::top_left)});
  }
}

TEST_CASE("sections of random blocks see what the mask allows, in the fewest calls") {
  std::mt19937 random(7);
  const auto below = [&](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
  };
  int cut_up = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const std::int64_t ranks = 1 + below(5);
    const std::int64_t size = 1 + below(7);
    const std::int64_t tokens = 2 * ranks * size;
    const std::int64_t q_rank = below(ranks);
    const std::int64_t k_rank = below(ranks);
    Visibility visible{.mask = {.kind = below(4) == 0 ? MaskKind::full : MaskKind::causal},
                       .seq = tokens - below(2 * size)};
    switch (below(4)) {
      case 0:
        visible.q_tokens = TokenSet({.begin = 2 * size * q_rank, .count = 2 * size});
        visible.k_tokens = TokenSet({.begin = 2 * size * k_rank, .count = 2 * size});
        break;
      case 1:
        visible.q_tokens = zigzag(q_rank, ranks, size);
        visible.k_tokens = zigzag(k_rank, ranks, size);
        break;
      case 2:
        visible.q_tokens = striped(q_rank, ranks, 2 * size);
        visible.k_tokens = striped(k_rank, ranks, 2 * size);
        break;
      default:  // anything that rises
        visible.q_tokens = zigzag(q_rank, ranks, size).slice(below(size), 1 + below(size));
        visible.k_tokens = TokenSet({.begin = below(tokens), .count = 1 + below(9)},
                                    {.begin = tokens + below(4), .count = below(3)});
    }
    for (std::int64_t end = below(2 * tokens); end < tokens; end += 1 + below(tokens)) {
      visible.mask.document_ends.push_back(end + 1);
    }
    INFO("queries " << to_string(visible.q_tokens) << " keys " << to_string(visible.k_tokens) << " "
                    << to_string(visible.mask) << " seq " << visible.seq);
    const Sections cut = sections(visible);
    REQUIRE(cut.why_not.empty());
    REQUIRE(differences(visible, cut.list) == 0);
    REQUIRE(calls_of(cut.list) == fewest_calls(visible));
    cut_up += calls_of(cut.list) > 1 ? 1 : 0;
  }
  CHECK(cut_up > 100);
}

TEST_CASE("blocks that cuDNN cannot do are refused with the reason") {
  const TokenSet tokens({.begin = 0, .count = 40});
  CHECK(sections({.q_tokens = tokens,
                  .k_tokens = tokens,
                  .mask = {.kind = MaskKind::window, .window = 4},
                  .seq = 40})
            .why_not == "cuDNN calls are unmasked or causal: window masks are not supported");
  CHECK(sections({.q_tokens = TokenSet({.begin = 0, .count = 20, .stride = 2}),
                  .k_tokens = tokens,
                  .mask = causal,
                  .seq = 40},
                 8)
            .why_not == "queries 0:20/2 against keys 0:40 take 20 cuDNN calls, more than 8");
  CHECK(sections({.q_tokens = TokenSet({.begin = 10, .count = 2}),
                  .k_tokens = TokenSet({.begin = 8, .count = 8}, {.begin = 0, .count = 8}),
                  .mask = causal,
                  .seq = 40})
            .why_not == "the keys that token 10 sees do not lie together in 8:8+0:8");
  // Two documents in 4 pieces: pieces 1 and 2 of the second have the first's piece 2 between them.
  CHECK(sections({.q_tokens = TokenSet({.begin = 30, .count = 10}),
                  .k_tokens = TokenSet({.begin = 10, .count = 20}),
                  .mask = {.kind = MaskKind::causal, .document_ends = {6, 10}, .pieces = 4},
                  .seq = 40})
            .why_not == "the keys that token 30 sees do not lie together in 10:20");
}

TEST_CASE("blocks of two chunks of documents that are dealt out are a call or two of each") {
  // A later chunk's queries see all keys of their document; its own ones a diagonal.
  const Mask mask{.kind = MaskKind::causal, .document_ends = {6, 10}, .pieces = 4};
  const TokenSet chunk({.begin = 10, .count = 10});
  const TokenSet later({.begin = 30, .count = 10});
  for (const TokenSet& q : {chunk, later}) {
    const Visibility visible{.q_tokens = q, .k_tokens = chunk, .mask = mask, .seq = 40};
    const Sections cut = sections(visible);
    REQUIRE(cut.why_not.empty());
    CHECK(differences(visible, cut.list) == 0);
    CHECK(calls_of(cut.list) == 2);
  }
}
