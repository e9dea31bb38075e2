#include "schedule/mesh.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"

using namespace spp;

TEST_CASE("coordinates and ranks are one to one; the first axis has adjacent ranks") {
  const Mesh mesh(
      {{.name = "tp", .size = 2}, {.name = "cp", .size = 3}, {.name = "dp", .size = 4}});
  REQUIRE(mesh.size() == 24);
  for (int r = 0; r < mesh.size(); ++r) {
    const int tp = mesh.coordinate(Rank(r), 0);
    const int cp = mesh.coordinate(Rank(r), 1);
    const int dp = mesh.coordinate(Rank(r), 2);
    REQUIRE(tp + 2 * cp + 6 * dp == r);
    REQUIRE(mesh.moved(Rank(r), 1, cp) == Rank(r));
  }
}

TEST_CASE("a group along an axis differs in that coordinate only") {
  const Mesh mesh(
      {{.name = "tp", .size = 2}, {.name = "cp", .size = 3}, {.name = "dp", .size = 4}});
  CHECK(mesh.group(Rank(9), 0) == RankGroup{.first = 8, .stride = 1, .size = 2});
  CHECK(mesh.group(Rank(9), 1) == RankGroup{.first = 7, .stride = 2, .size = 3});
  CHECK(mesh.group(Rank(9), 2) == RankGroup{.first = 3, .stride = 6, .size = 4});
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const RankGroup group = mesh.group(Rank(9), axis);
    for (int i = 0; i < group.size; ++i) {
      CHECK(mesh.moved(Rank(9), axis, i) == group.rank(i));
      CHECK(mesh.group(group.rank(i), axis) == group);
    }
  }
}

TEST_CASE("axes are found by name; a mesh without axes has one rank") {
  const Mesh mesh({{.name = "tp", .size = 2}, {.name = "cp", .size = 3}});
  CHECK(mesh.find("cp") == 1);
  CHECK_FALSE(mesh.find("dp"));
  CHECK(Mesh().size() == 1);
}

TEST_CASE("axes of one name or without ranks are our bugs") {
  CHECK_THROWS_AS(Mesh({{.name = "tp", .size = 2}, {.name = "tp", .size = 3}}), InternalError);
  CHECK_THROWS_AS(Mesh({{.name = "tp", .size = 0}}), InternalError);
}
