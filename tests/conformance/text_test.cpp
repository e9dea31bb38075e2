// Schedules survive their text form: text -> schedule -> text is the identity, ops and buffers
// stay.
#include "schedule/text.hpp"

#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

namespace spp {
namespace {

using test::Case;

TEST_CASE("schedules survive their text form") {
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {
    for (const Case& c : test::cases(ranks, 40)) {
      INFO(c.text());
      const Schedule built = c.build();
      const std::string text = to_text(built);
      const Schedule read = parse_schedule(text, "built.txt");
      REQUIRE(to_text(read) == text);
      REQUIRE(read.contract.attention == built.contract.attention);
      REQUIRE(read.mesh == built.mesh);
      REQUIRE(read.grain == built.grain);
      REQUIRE(read.symmetry == built.symmetry);
      for (int r = 0; r < ranks; ++r) {
        REQUIRE(ops_of(read.program(Rank(r))) == ops_of(built.program(Rank(r))));
      }
    }
  }
}

}  // namespace
}  // namespace spp
