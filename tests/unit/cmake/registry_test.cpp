#include "tests/support/catch.hpp"
#include "tests/unit/cmake/fruit.hpp"

TEST_CASE("a registry lists its entries in the order of CMakeLists.txt") {
  const auto fruits = spp::fruits::all();
  REQUIRE(fruits.size() == 2);
  CHECK(fruits[0]->name == "pear");
  CHECK(fruits[1]->name == "apple");
}

TEST_CASE("a registry without entries is empty") { CHECK(spp::stones::all().empty()); }
