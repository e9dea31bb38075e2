#include "base/suggest.hpp"

#include "tests/support/catch.hpp"

#include <string>
#include <vector>

using namespace spp;

TEST_CASE("edit distance counts inserts, deletions, replacements and swaps") {
  CHECK(edit_distance("ring", "ring") == 0);
  CHECK(edit_distance("rin", "ring") == 1);
  CHECK(edit_distance("rring", "ring") == 1);
  CHECK(edit_distance("rang", "ring") == 1);
  CHECK(edit_distance("rnig", "ring") == 1);
  CHECK(edit_distance("", "ring") == 4);
  CHECK(edit_distance("ring", "") == 4);
}

TEST_CASE("edit distance ignores case") { CHECK(edit_distance("RING", "ring") == 0); }

TEST_CASE("a near name is suggested") {
  const std::vector<std::string> known{"contiguous", "zigzag", "striped"};
  CHECK(nearest_name("zig-zag", known) == "zigzag");
  CHECK(nearest_name("stripped", known) == "striped");
  CHECK(did_you_mean("zigzga", known) == " (did you mean 'zigzag'?)");
}

TEST_CASE("part of a name suggests the whole") {
  const std::vector<std::string> known{"dgx-h100", "llama-3.1-8b"};
  CHECK(nearest_name("h100", known) == "dgx-h100");
}

TEST_CASE("an abbreviation suggests the name that begins with it") {
  const std::vector<std::string> known{"B", "KB", "GB", "GiB"};
  CHECK(nearest_name("G", known) == "GB");
}

TEST_CASE("a name like no other lists what is allowed") {
  const std::vector<std::string> known{"contiguous", "zigzag", "striped"};
  CHECK(did_you_mean("blockwise-hybrid", known) == " (one of: contiguous, zigzag, striped)");
}

TEST_CASE("an empty name lists what is allowed") {
  CHECK(did_you_mean("", std::vector<std::string>{"fwd", "bwd"}) == " (one of: fwd, bwd)");
}

TEST_CASE("without candidates nothing is suggested") {
  CHECK(did_you_mean("anything", std::vector<std::string>{}).empty());
}

TEST_CASE("a very long name is not compared") {
  CHECK(nearest_name(std::string(100'000, 'x'), std::vector<std::string>{"ring"}).empty());
}
