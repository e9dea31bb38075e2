#include "tests/support/catch.hpp"
#include "tests/unit/cmake/fruit.hpp"

TEST_CASE("a registry lists its entries in the order of CMakeLists.txt") {
  const auto fruits = spp::fruits::all();
  REQUIRE(fruits.size() == 2);
  CHECK(fruits[0]->name == "pear");
  CHECK(fruits[1]->name == "apple");
}

TEST_CASE("entries that are namespaces may have the same local names") {
  const auto nuts = spp::nuts::all();
  REQUIRE(nuts.size() == 2);
  CHECK(nuts[0]->name == "hazel");
  CHECK(nuts[1]->name == "almond");
}

TEST_CASE("a registry without entries is empty") { CHECK(spp::stones::all().empty()); }
