#include "schedule/tokens.hpp"

#include "base/error.hpp"
#include "schedule/problem.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <random>
#include <utility>
#include <vector>

using namespace spp;
using spp::test::message_of;

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

/// The definition, pair by pair.
std::int64_t pairs_by_hand(const TokenSet& queries, const TokenSet& keys, const Mask& mask) {
  std::int64_t pairs = 0;
  for (const std::int64_t q : listed(queries)) {
    for (const std::int64_t k : listed(keys)) {
      pairs += mask.allows(q, k) ? 1 : 0;
    }
  }
  return pairs;
}

class Random {
 public:
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution(low, high)(engine_);
  }
  TokenRange range() {
    return {.begin = between(0, 40), .count = between(0, 12), .stride = between(1, 7)};
  }
  TokenSet set() { return between(0, 1) == 0 ? TokenSet(range()) : TokenSet(range(), range()); }
  Mask mask() {
    switch (between(0, 2)) {
      case 0:
        return {.kind = MaskKind::full};
      case 1:
        return {.kind = MaskKind::causal};
      default:
        return {.kind = MaskKind::window, .window = between(1, 60)};
    }
  }

 private:
  std::mt19937_64 engine_{20240703};
};

}  // namespace

TEST_CASE("allowed pairs of random strided sets are those that the mask allows one by one") {
  Random random;
  for (int i = 0; i < 20'000; ++i) {
    const TokenSet q = random.set();
    const TokenSet k = random.set();
    const Mask mask = random.mask();
    const std::int64_t expected = pairs_by_hand(q, k, mask);
    if (allowed_pairs(q, k, mask) != expected) {
      CAPTURE(to_string(q), to_string(k), static_cast<int>(mask.kind), mask.window);
      REQUIRE(allowed_pairs(q, k, mask) == expected);
    }
    REQUIRE(allows_any(q, k, mask) == (expected > 0));
  }
}

TEST_CASE("the visible keys of a query are those that the mask allows one by one") {
  Random random;
  for (int i = 0; i < 5'000; ++i) {
    const TokenRange keys = random.range();
    const std::int64_t query = random.between(0, 100);
    const std::int64_t seq = random.between(0, 120);
    const Mask mask = random.mask();
    const Interval seen = visible_keys(query, keys, mask, seq);
    bool right = seen.begin >= 0 && seen.begin <= seen.end && seen.end <= keys.count &&
                 (!seen.empty() || seen == Interval{});
    for (std::int64_t k = 0; k < keys.count; ++k) {
      const bool visible = mask.allows(query, keys.at(k)) && keys.at(k) < seq;
      right = right && visible == (k >= seen.begin && k < seen.end);
    }
    if (!right) {
      CAPTURE(query, to_string(TokenSet(keys)), seq, static_cast<int>(mask.kind), mask.window);
      CAPTURE(seen.begin, seen.end);
      REQUIRE(right);
    }
  }
}

TEST_CASE("a causal sequence allows n(n+1)/2 pairs, also where nobody could count them") {
  const TokenSet all({.begin = 0, .count = std::int64_t{1} << 31});
  const std::int64_t n = all.count();
  CHECK(allowed_pairs(all, all, {.kind = MaskKind::causal}) == n / 2 * (n + 1));
  CHECK(allowed_pairs(all, all, {.kind = MaskKind::full}) == n * n);
}

TEST_CASE("a window allows w pairs for each query but the first ones") {
  // n = 1000, w = 10: queries 0..8 see 1..9 keys, all others 10.
  const TokenSet all({.begin = 0, .count = 1000});
  CHECK(allowed_pairs(all, all, {.kind = MaskKind::window, .window = 10}) == 45 + 991 * 10);
}

TEST_CASE("a window as long as the sequence is causal") {
  const TokenSet all({.begin = 0, .count = 100});
  CHECK(allowed_pairs(all, all, {.kind = MaskKind::window, .window = 100}) ==
        allowed_pairs(all, all, {.kind = MaskKind::causal}));
}

TEST_CASE("adjoining ranges are one range") {
  CHECK(TokenSet({.begin = 0, .count = 4}, {.begin = 4, .count = 2}) ==
        TokenSet({.begin = 0, .count = 6}));
  CHECK(TokenSet({.begin = 1, .count = 2, .stride = 4}, {.begin = 9, .count = 1, .stride = 4})
            .count() == 3);
}

TEST_CASE("empty ranges leave no trace") {
  CHECK(TokenSet({.begin = 7, .count = 0}) == TokenSet());
  CHECK(TokenSet({.begin = 7, .count = 0}, {.begin = 1, .count = 2}) ==
        TokenSet({.begin = 1, .count = 2}));
}

TEST_CASE("a set contains its tokens and no others") {
  const TokenSet set({.begin = 3, .count = 3, .stride = 4}, {.begin = 20, .count = 2});
  std::vector<std::int64_t> inside;
  for (std::int64_t t = 0; t < 30; ++t) {
    if (set.contains(t)) {
      inside.push_back(t);
    }
  }
  CHECK(inside == std::vector<std::int64_t>{3, 7, 11, 20, 21});
  CHECK_FALSE(TokenSet().contains(0));
}

TEST_CASE("a slice holds the tokens at those positions") {
  Random random;
  for (int i = 0; i < 500; ++i) {
    const TokenSet set = random.set();
    const auto tokens = listed(set);
    const std::int64_t from = random.between(0, set.count());
    const std::int64_t count = random.between(0, set.count() - from);
    const auto begin = tokens.begin() + from;
    REQUIRE(listed(set.slice(from, count)) == std::vector(begin, begin + count));
  }
}

TEST_CASE("a slice of a slice is a slice") {
  const TokenSet zigzag({.begin = 8, .count = 8}, {.begin = 48, .count = 8});
  CHECK(zigzag.slice(4, 8).slice(2, 4) == zigzag.slice(6, 4));
}

TEST_CASE("equal parts, one after the other, are the whole") {
  const TokenSet zigzag({.begin = 8, .count = 12}, {.begin = 48, .count = 12});
  for (const std::int64_t parts : {1, 2, 3, 4, 6, 8, 12, 24}) {
    std::vector<std::int64_t> joined;
    for (std::int64_t i = 0; i < parts; ++i) {
      const auto part = listed(zigzag.part(i, parts));
      CHECK(std::ssize(part) == 24 / parts);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    CHECK(joined == listed(zigzag));
  }
}

TEST_CASE("parts that do not divide, slices outside and third ranges are our bugs") {
  const TokenSet set({.begin = 0, .count = 10});
  CHECK_THROWS_AS(set.part(0, 3), InternalError);
  CHECK_THROWS_AS(set.slice(5, 6), InternalError);
  CHECK_THROWS_AS(set.slice(-1, 2), InternalError);
}

TEST_CASE("token sets are written begin:count/stride and read back") {
  CHECK(to_string(TokenSet({.begin = 0, .count = 1024})) == "0:1024");
  CHECK(to_string(TokenSet({.begin = 0, .count = 64}, {.begin = 448, .count = 64})) ==
        "0:64+448:64");
  CHECK(to_string(TokenSet({.begin = 3, .count = 128, .stride = 8})) == "3:128/8");
  CHECK(to_string(TokenSet()) == "-");
  Random random;
  for (int i = 0; i < 200; ++i) {
    const TokenSet set = random.set();
    REQUIRE(parse_token_set(to_string(set), "x") == set);
  }
}

TEST_CASE("words that are no token set are refused with the place and the word") {
  for (const std::string_view wrong :
       {"", "3", "a:b", "3:", ":4", "1:2:3", "1:2/3/4", "1:2+", "0:0", "1:2/0", "-1:4", "1:2+3:4+5",
        "0:99999999999999999999"}) {
    CAPTURE(wrong);
    CHECK(
        message_of<InputError>([&] { parse_token_set(wrong, "file:7"); }).starts_with("file:7: "));
  }
}

TEST_CASE("packed documents: pairs and visible keys are those that the mask allows one by one") {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    Mask mask{.kind = random() % 2 == 0 ? MaskKind::full : MaskKind::causal};
    for (std::int64_t end = 0; end < 40;) {
      end += 1 + static_cast<std::int64_t>(random() % 17);
      mask.document_ends.push_back(end);
    }
    const auto range = [&] {
      return TokenRange{.begin = static_cast<std::int64_t>(random() % 20),
                        .count = static_cast<std::int64_t>(random() % 12),
                        .stride = 1 + static_cast<std::int64_t>(random() % 3)};
    };
    const TokenRange queries = range();
    const TokenRange keys = range();
    INFO(to_string(mask) << " " << to_string(TokenSet(queries)) << " x "
                         << to_string(TokenSet(keys)));
    std::int64_t pairs = 0;
    for (std::int64_t q = 0; q < queries.count; ++q) {
      std::int64_t seen = 0;
      const Interval visible = visible_keys(queries.at(q), keys, mask, 1000);
      for (std::int64_t k = 0; k < keys.count; ++k) {
        const bool allowed = mask.allows(queries.at(q), keys.at(k));
        seen += allowed ? 1 : 0;
        REQUIRE(allowed == (visible.begin <= k && k < visible.end));
      }
      pairs += seen;
    }
    REQUIRE(allowed_pairs(queries, keys, mask) == pairs);
    REQUIRE(allows_any(TokenSet(queries), TokenSet(keys), mask) == (pairs > 0));
    REQUIRE(parse_mask(to_string(mask), "test") == mask);
  }
}

namespace {

/// Documents of random lengths dealt out in pieces, and what each slot then is, written down from
/// the definition: chunk after chunk, document after document.
struct Dealt {
  Mask mask;
  std::vector<std::pair<std::size_t, std::int64_t>> slots;  // document, position

  explicit Dealt(std::mt19937& random) {
    mask.kind = std::array{MaskKind::full, MaskKind::causal, MaskKind::window}[random() % 3];
    mask.window = mask.kind == MaskKind::window ? 1 + static_cast<std::int64_t>(random() % 20) : 0;
    mask.pieces = 2 + static_cast<std::int64_t>(random() % 5);
    std::vector<std::int64_t> lengths(1 + random() % 4);
    std::int64_t end = 0;
    for (std::int64_t& length : lengths) {
      length = 1 + static_cast<std::int64_t>(random() % 6);
      mask.document_ends.push_back(end += length);
    }
    for (std::int64_t c = 0; c < mask.pieces; ++c) {
      for (std::size_t d = 0; d < lengths.size(); ++d) {
        for (std::int64_t i = 0; i < lengths[d]; ++i) {
          slots.emplace_back(d, c * lengths[d] + i);
        }
      }
    }
    const std::size_t behind = lengths.size();  // tokens behind them are a document of their own
    for (std::int64_t i = 0; i < 10; ++i) {
      slots.emplace_back(behind, i);
    }
  }
  [[nodiscard]] bool allows(std::int64_t q, std::int64_t k) const {
    const auto [q_document, query] = slots[static_cast<std::size_t>(q)];
    const auto [k_document, key] = slots[static_cast<std::size_t>(k)];
    return q_document == k_document && mask.allows_by_kind(query, key);
  }
  /// Any of its slots, with gaps of up to 3.
  [[nodiscard]] TokenRange range(std::mt19937& random) const {
    const auto all = std::ssize(slots);
    const std::int64_t stride = random() % 2 == 0 ? 1 : 1 + static_cast<std::int64_t>(random() % 3);
    const std::int64_t begin = static_cast<std::int64_t>(random()) % all;
    const std::int64_t most = (all - begin + stride - 1) / stride;
    return {.begin = begin,
            .count = static_cast<std::int64_t>(random()) % (most + 1),
            .stride = stride};
  }
};

}  // namespace

TEST_CASE("documents dealt out in pieces: pairs and visible keys are those of their positions") {
  std::mt19937 random(12);
  for (int round = 0; round < 3000; ++round) {
    const Dealt dealt(random);
    const TokenRange queries = dealt.range(random);
    const TokenRange keys = dealt.range(random);
    INFO(to_string(dealt.mask) << " " << to_string(TokenSet(queries)) << " x "
                               << to_string(TokenSet(keys)));
    REQUIRE(parse_mask(to_string(dealt.mask), "test") == dealt.mask);
    std::int64_t pairs = 0;
    for (std::int64_t q = 0; q < queries.count; ++q) {
      for (std::int64_t k = 0; k < keys.count; ++k) {
        const bool allowed = dealt.allows(queries.at(q), keys.at(k));
        REQUIRE(dealt.mask.allows(queries.at(q), keys.at(k)) == allowed);
        pairs += allowed ? 1 : 0;
      }
    }
    REQUIRE(allowed_pairs(queries, keys, dealt.mask) == pairs);
    REQUIRE(allows_any(TokenSet(queries), TokenSet(keys), dealt.mask) == (pairs > 0));
    const auto seq = static_cast<std::int64_t>(random() % 60);
    std::int64_t joined = 0;
    for (const TokenRange& part : cut_at_chunks(TokenSet(keys), dealt.mask)) {
      joined += part.count;
      for (std::int64_t q = 0; q < queries.count; ++q) {
        const Interval seen = visible_keys(queries.at(q), part, dealt.mask, seq);
        REQUIRE((!seen.empty() || seen == Interval{}));
        for (std::int64_t k = 0; k < part.count; ++k) {
          const bool allowed = dealt.allows(queries.at(q), part.at(k)) && part.at(k) < seq;
          REQUIRE(allowed == (seen.begin <= k && k < seen.end));
        }
      }
    }
    REQUIRE(joined == keys.count);
  }
}

TEST_CASE("zigzag over documents dealt out in pieces gives every rank the same pairs") {
  // 3 ranks, documents of 6, 60 and 600 tokens: of n tokens 1/3 of n(n+1)/2 pairs each.
  const Mask mask{.document_ends = {1, 11, 111}, .pieces = 6};
  const std::int64_t seq = 666;
  const TokenSet all({.begin = 0, .count = seq});
  for (int rank = 0; rank < 3; ++rank) {
    const TokenSet own = chunk_tokens(seq, Layout::document_zigzag, rank, 3);
    CHECK(allowed_pairs(own, all, mask) == (6 * 7 + 60 * 61 + 600 * 601) / 2 / 3);
  }
}

TEST_CASE("token sets of many ranges are values: one that grows leaves its copies alone") {
  TokenSet set;
  for (std::int64_t i = 0; i < 5; ++i) {
    set.append({.begin = 100 - 10 * i, .count = 3});
  }
  const TokenSet copy = set;
  set.append({.begin = 63, .count = 2});  // continues the last
  CHECK(to_string(copy) == "100:3+90:3+80:3+70:3+60:3");
  CHECK(to_string(set) == "100:3+90:3+80:3+70:3+60:5");
  CHECK(parse_token_set(to_string(set), "test") == set);
  CHECK(copy < set);
  CHECK(set.count() == 17);
  CHECK(set.position_of(64) == 16);
  CHECK(to_string(set.slice(2, 5)) == "102:1+90:3+80:1");
  CHECK(set.shifted(1).shifted(-1) == set);
}
