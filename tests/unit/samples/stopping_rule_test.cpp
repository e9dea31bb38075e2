#include "samples/stopping_rule.hpp"

#include "tests/support/catch.hpp"

using namespace spp;

TEST_CASE("at least seven samples are taken, then four at a time until they agree") {
  const Patient patient;
  CHECK(patient.round(0) == 7);
  CHECK(patient.round(5) == 2);
  CHECK(patient.round(7) == 4);
  CHECK(patient.satisfied_with({1, 1.01, 0.99}));        // deviations 0, 0.01, 0.01: 1 %
  CHECK_FALSE(patient.satisfied_with({1, 1.03, 0.97}));  // 3 %
}

TEST_CASE("a sample repeats what is short, and what is too long is left out") {
  const Patient patient{.sample = Seconds(0.002), .longest = Seconds(8)};
  CHECK(patient.repetitions(1) == 1);
  CHECK(patient.repetitions(0.0015) == 2);
  CHECK(patient.repetitions(0) == 1024);
  CHECK_FALSE(patient.leaves_out(1));
  CHECK(patient.leaves_out(1.1));
}
