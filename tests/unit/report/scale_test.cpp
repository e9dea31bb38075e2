// Where ticks stand, and where values are drawn.
#include "report/scale.hpp"

#include "tests/support/catch.hpp"

#include <vector>

using namespace spp::report;
using Catch::Approx;
using Values = std::vector<double>;

TEST_CASE("ticks are 1, 2 or 5 times a power of ten apart, within the ends") {
  CHECK(nice_ticks(0, 10, 5) == Values{0, 2, 4, 6, 8, 10});
  CHECK(nice_ticks(0, 100, 4) == Values{0, 50, 100});
  CHECK(nice_ticks(0, 3, 3) == Values{0, 1, 2, 3});
  CHECK(nice_ticks(-5, 5, 2) == Values{-5, 0, 5});
}

TEST_CASE("ticks of any span are few, rise, and stay within it") {
  for (const double from : {-3e9, -0.07, 0.0, 1e-9, 12.5, 4e14}) {
    for (const double span : {1e-6, 0.3, 7.0, 123.0, 9e11}) {
      for (const int about : {1, 3, 5, 8}) {
        const Values ticks = nice_ticks(from, from + span, about);
        REQUIRE_FALSE(ticks.empty());
        CHECK(static_cast<int>(ticks.size()) <= 2 * about + 3);
        for (std::size_t i = 1; i < ticks.size(); ++i) {
          CHECK(ticks[i] > ticks[i - 1]);
        }
      }
    }
  }
}

TEST_CASE("an empty or endless span has one tick") {
  CHECK(nice_ticks(3, 3, 5) == Values{3});
  CHECK(nice_ticks(0, INFINITY, 5) == Values{0});
  CHECK(log_ticks(0, 10, 5) == Values{0});
}

TEST_CASE("logarithmic ticks are decades, thinned out; 1, 2, 5 where there are fewer than two") {
  CHECK(log_ticks(1, 1000, 5) == Values{1, 10, 100, 1000});
  CHECK(log_ticks(2, 60, 5) == Values{2, 5, 10, 20, 50});
  CHECK(log_ticks(1, 1e8, 3) == Values{1, 1e3, 1e6});
}

TEST_CASE("a scale from zero ends at a round number a little above the largest value") {
  CHECK(from_zero(7.3).to == Approx(7.4));
  CHECK(from_zero(100).to == Approx(100));
  CHECK(from_zero(0.0161).to == Approx(0.018));
  CHECK(from_zero(0).to == 1);
}

TEST_CASE("the ends of a scale are drawn at 0 and 1, on a logarithmic one the mean at the middle") {
  const Scale linear{.from = 2, .to = 6};
  CHECK(linear.at(2) == 0);
  CHECK(linear.at(6) == 1);
  CHECK(linear.at(4) == 0.5);
  const Scale octaves{.from = 1, .to = 100, .logarithmic = true};
  CHECK(octaves.at(1) == 0);
  CHECK(octaves.at(100) == 1);
  CHECK(octaves.at(10) == Approx(0.5));
  CHECK(octaves.at(0) < 0);
}
