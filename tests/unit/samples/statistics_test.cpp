#include "samples/statistics.hpp"

#include "tests/support/catch.hpp"

#include <cmath>

using namespace spp;
using Catch::Approx;

TEST_CASE("the error of a median falls with the number of samples") {
  CHECK(error_of_median({}) == 0);
  CHECK(error_of_median({3, 3, 3}) == 0);
  CHECK(error_of_median({1.7, 1.8, 1.9, 2, 2.1, 2.2, 2.3}) ==
        Approx(1.2533 * 1.4826 * 0.1 / std::sqrt(7)));
}

TEST_CASE("slow stretches of a machine show in its pace") {
  CHECK(slow_part({}) == 0);
  CHECK(slow_part({1, 1, 1, 1.05}) == 0);
  CHECK(slow_part({1, 1, 1.5, 1, 1.2}) == Approx(0.4));
}
