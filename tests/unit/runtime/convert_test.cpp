#include "runtime/kernels/convert.hpp"

#include "tests/support/catch.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace spp;
using namespace spp::runtime;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// The value of 16 bits, from the definition of the format.
double value_of(std::uint16_t bits, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  }
  return exponent == 0
             ? sign * std::ldexp(fraction, 1 - bias - fraction_bits)
             : sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

/// Is `got` the positive number nearest to x (even bits in a tie)?
bool nearest(double x, std::uint16_t got, int fraction_bits) {
  const double apart = std::abs(value_of(got, fraction_bits) - x);
  for (const int step : {-1, 1}) {
    const int other = got + step;
    if (other < 0) {
      continue;
    }
    const double value = value_of(static_cast<std::uint16_t>(other), fraction_bits);
    const double other_apart = std::abs(value - x);
    if (other_apart < apart || (other_apart == apart && got % 2 != 0)) {
      return false;
    }
  }
  return true;
}

template <class T, int fraction_bits>
void check_every_value() {
  for (int i = 0; i < 0x10000; ++i) {
    const T stored{static_cast<std::uint16_t>(i)};
    const double value = value_of(stored.bits, fraction_bits);
    const float x = to_float(stored);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(x));
      REQUIRE(std::isnan(to_float(from_float<T>(x))));
    } else {
      REQUIRE(static_cast<double>(x) == value);
      REQUIRE(from_float<T>(x).bits == stored.bits);
    }
  }
}

template <class T, int fraction_bits>
void check_rounding(double largest) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> exponent(-30, std::log2(largest));
  for (int i = 0; i < 50'000; ++i) {
    const auto x = static_cast<float>(std::exp2(exponent(random)));
    const T stored = from_float<T>(x);
    if (!nearest(x, stored.bits, fraction_bits)) {
      CAPTURE(x, stored.bits);
      REQUIRE(nearest(x, stored.bits, fraction_bits));
    }
    REQUIRE(from_float<T>(-x).bits == (stored.bits | 0x8000));
  }
}

}  // namespace

TEST_CASE("every 16-bit number becomes the float of that value, and returns") {
  check_every_value<Bf16, 7>();
  check_every_value<Fp16, 10>();
}

TEST_CASE("floats are rounded to the nearest 16-bit number") {
  check_rounding<Bf16, 7>(1e30);
  check_rounding<Fp16, 10>(65000);
}

TEST_CASE("ties go to the even number") {
  CHECK(from_float<Bf16>(1 + 0x1p-8F).bits == 0x3f80);  // between 1 and 1 + 2^-7
  CHECK(from_float<Bf16>(1 + 0x3p-8F).bits == 0x3f82);
  CHECK(from_float<Fp16>(1 + 0x1p-11F).bits == 0x3c00);
  CHECK(from_float<Fp16>(1 + 0x3p-11F).bits == 0x3c02);
  CHECK(from_float<Fp16>(0x1p-25F).bits == 0);  // between 0 and the smallest
  CHECK(from_float<Fp16>(0x3p-25F).bits == 2);
}

TEST_CASE("what is too large becomes infinity, and NaN stays NaN") {
  CHECK(to_float(from_float<Fp16>(65519.0F)) == 65504.0F);
  CHECK(to_float(from_float<Fp16>(65520.0F)) == infinity);
  CHECK(to_float(from_float<Fp16>(-1e30F)) == -infinity);
  CHECK(to_float(from_float<Bf16>(std::numeric_limits<float>::max())) == infinity);
  CHECK(to_float(from_float<Bf16>(-infinity)) == -infinity);
  CHECK(std::isnan(to_float(from_float<Bf16>(not_a_number))));
  CHECK(std::isnan(to_float(from_float<Fp16>(-not_a_number))));
  // A NaN whose upper half alone would be infinity, or would carry into the sign.
  CHECK(std::isnan(to_float(from_float<Bf16>(std::bit_cast<float>(0x7f800001U)))));
  CHECK(std::isnan(to_float(from_float<Bf16>(std::bit_cast<float>(0x7fffffffU)))));
}

TEST_CASE("runs are converted as single elements are") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 100);
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const std::size_t n : {0U, 1U, 15U, 64U, 257U}) {
      std::vector<float> from(n);
      for (float& x : from) {
        x = normal(random);
      }
      std::vector<std::byte> stored(n * 4);
      from_floats(dtype, from, stored.data());
      std::vector<float> back(n);
      to_floats(dtype, stored.data(), back);
      for (std::size_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::int64_t>(i);
        std::array<std::byte, 4> one{};
        store(dtype, one.data(), 0, from[i]);
        CHECK(load(dtype, one.data(), 0) == back[i]);
        CHECK(load(dtype, stored.data(), at) == back[i]);
      }
    }
  }
}
