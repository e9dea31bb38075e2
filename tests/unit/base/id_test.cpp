#include "base/id.hpp"

#include "tests/support/catch.hpp"

#include <unordered_set>

using namespace spp;

TEST_CASE("an id that was not set is not valid") {
  CHECK_FALSE(Rank().valid());
  CHECK(Rank(0).valid());
}

TEST_CASE("an id gives its index") { CHECK(BufferId(std::size_t{7}).index() == 7); }

TEST_CASE("ids of one kind compare by value") {
  CHECK(Rank(1) == Rank(1));
  CHECK(Rank(1) < Rank(2));
}

TEST_CASE("ids can be keys of hashed containers") {
  const std::unordered_set<Rank> ranks{Rank(3), Rank(4), Rank(3)};
  CHECK(ranks.size() == 2);
}
