#include "schedule/token_list.hpp"

#include "tests/support/catch.hpp"

#include <random>

namespace spp {
namespace {

std::vector<std::int64_t> tokens_of(const TokenList& list) {
  std::vector<std::int64_t> tokens;
  for (const TokenRange& range : list.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      tokens.push_back(range.at(i));
    }
  }
  return tokens;
}

TEST_CASE("equal sequences of tokens are equal lists, however they were put together") {
  TokenList one_by_one;
  for (const std::int64_t token : {0, 2, 4, 5, 6, 12}) {
    one_by_one.append(TokenRange{.begin = token, .count = 1, .stride = 1});
  }
  TokenList in_ranges;
  in_ranges.append(TokenRange{.begin = 0, .count = 3, .stride = 2});
  in_ranges.append(TokenRange{.begin = 5, .count = 2, .stride = 1});
  in_ranges.append(TokenRange{.begin = 12, .count = 1, .stride = 1});
  CHECK(one_by_one == in_ranges);
  CHECK(to_string(one_by_one) == "0:3/2 5:2 12:1");

  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    TokenList ranges;
    TokenList singles;
    for (int r = 0; r < 4; ++r) {
      const TokenRange range{.begin = static_cast<std::int64_t>(random() % 40),
                             .count = 1 + static_cast<std::int64_t>(random() % 4),
                             .stride = 1 + static_cast<std::int64_t>(random() % 3)};
      ranges.append(range);
      for (std::int64_t i = 0; i < range.count; ++i) {
        singles.append(TokenRange{.begin = range.at(i), .count = 1, .stride = 1});
      }
    }
    INFO(to_string(ranges));
    REQUIRE(ranges == singles);
    const auto all = tokens_of(ranges);
    REQUIRE(std::ssize(all) == ranges.count());
    const auto from = static_cast<std::int64_t>(random() % all.size());
    const std::int64_t count = std::min<std::int64_t>(3, std::ssize(all) - from);
    const std::vector<std::int64_t> part(all.begin() + from, all.begin() + from + count);
    REQUIRE(tokens_of(ranges.slice(from, count)) == part);
  }
}

TEST_CASE("a part is found where it lies row after row, and nowhere else") {
  // Rows of a zigzag chunk: 8 9 10 11 40 41 42 43.
  const TokenList rows(TokenSet({.begin = 8, .count = 4}, {.begin = 40, .count = 4}));
  const auto find = [&](TokenSet part) { return rows.find(TokenList(part)); };
  CHECK(find(TokenSet({.begin = 8, .count = 4})) == 0);
  CHECK(find(TokenSet({.begin = 40, .count = 4})) == 4);
  CHECK(find(TokenSet({.begin = 10, .count = 2}, {.begin = 40, .count = 1})) == 2);
  CHECK_FALSE(find(TokenSet({.begin = 40, .count = 5})));
  CHECK_FALSE(find(TokenSet({.begin = 40, .count = 1}, {.begin = 8, .count = 1})));
  CHECK(rows.meets(TokenList(TokenSet({.begin = 43, .count = 9}))));
  CHECK_FALSE(rows.meets(TokenList(TokenSet({.begin = 12, .count = 28}))));
}

TEST_CASE("rows are sorted into sequence order") {
  TokenList dealt;  // striped over 3 ranks
  for (const std::int64_t r : {0, 1, 2}) {
    dealt.append(TokenRange{.begin = r, .count = 4, .stride = 3});
  }
  CHECK(dealt.sorted() == TokenList(TokenSet({.begin = 0, .count = 12})));
}

}  // namespace
}  // namespace spp
