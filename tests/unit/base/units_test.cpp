#include "base/units.hpp"

#include "tests/support/catch.hpp"

#include <limits>

using namespace spp;
using namespace spp::unit_literals;

TEST_CASE("quantities of one unit add, subtract, scale and compare") {
  CHECK(3_KiB + 1_KiB == 4_KiB);
  CHECK(3_KiB - 1_KiB == 2_KiB);
  CHECK(3_KiB * 4 == 12_KiB);
  CHECK(4 * 3_KiB == 12_KiB);
  CHECK(12_KiB / 4 == 3_KiB);
  CHECK(1_KiB < 1_MiB);

  Bytes sum = 1_B;
  sum += 2_B;
  sum -= 1_B;
  CHECK(sum == 2_B);
}

TEST_CASE("a quantity starts at zero") {
  CHECK(Bytes() == 0_B);
  CHECK(FlopCount().value() == 0);
}

TEST_CASE("the ratio of two quantities of one unit is a plain number") {
  const double ratio = 3_GiB / 2_GiB;
  CHECK(ratio == 1.5);
}

TEST_CASE("bytes are exact up to the end of 63 bits") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK((Bytes(most - 1) + 1_B).value() == most);  // a double would have lost the 1
}

TEST_CASE("bytes beyond 63 bits stay the largest number of bytes") {
  constexpr Bytes largest{INT64_MAX};
  STATIC_REQUIRE(largest + Bytes(1) == largest);
  STATIC_REQUIRE(Bytes(std::int64_t{1} << 50) * (std::int64_t{1} << 20) == largest);
  STATIC_REQUIRE(Bytes(-5) * INT64_MAX == Bytes(INT64_MIN));
  STATIC_REQUIRE(Bytes(3) * 4 + Bytes(5) == Bytes(17));
}

TEST_CASE("bytes over bandwidth is time, and back") {
  const Bytes message(1'000'000'000);
  const Bandwidth link = 50.0_GBps;
  const Seconds time = message / link;
  CHECK(time.count() == Catch::Approx(0.02));  // 1e9 B / 50e9 B/s
  CHECK((message / time).value() == Catch::Approx(link.value()));
}

TEST_CASE("work over rate is time, and back") {
  const FlopCount work(2e15);
  const FlopRate rate = 400.0_TFLOPs;
  const Seconds time = work / rate;
  CHECK(time.count() == Catch::Approx(5.0));  // 2e15 / 400e12
  CHECK((work / time).value() == Catch::Approx(rate.value()));
}

TEST_CASE("binary byte literals are powers of two, bandwidth literals powers of ten") {
  CHECK((1_KiB).value() == 1024);
  CHECK((1_MiB).value() == 1'048'576);
  CHECK((1_GiB).value() == 1'073'741'824);
  CHECK((1.0_GBps).value() == 1e9);
  CHECK((1.0_us).count() == 1e-6);
  CHECK((1.0_ms).count() == 1e-3);
}

TEST_CASE("units work at compile time") {
  static_assert(2_KiB / 2 == 1_KiB);
  static_assert((Bytes(100) / Bandwidth(50.0)).count() == 2.0);
  SUCCEED();
}
