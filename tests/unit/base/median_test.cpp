#include "base/median.hpp"

#include "base/units.hpp"
#include "tests/support/catch.hpp"

using namespace spp;

TEST_CASE("the median is the middle value, or the mean of the two middle ones") {
  CHECK(median_of<double>({7}) == 7);
  CHECK(median_of<double>({9, 1, 5}) == 5);
  CHECK(median_of<double>({4, 1, 9, 2}) == 3);  // (2 + 4) / 2
  CHECK(median_of<Seconds>({Seconds(3), Seconds(1)}) == Seconds(2));
  CHECK_THROWS_AS(median_of<double>({}), InternalError);
}
