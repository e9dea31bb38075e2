#include "runtime/kernels/softmax_loops.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

using namespace spp::runtime;

namespace {

/// Half a step of bf16 away, and what powers for bf16 may be wrong by.
bool is_rounded(Bf16 rounded, float x) {
  return std::abs(to_float(rounded) - x) <= (0x1p-8 + power_error<Bf16>)*std::abs(x);
}

/// All implementations that this CPU can run, one in each run of the test.
const RowLoops& each_implementation() {
  std::vector<const RowLoops*> all = {&portable_row_loops()};
  if (avx512_row_loops() != nullptr) {
    all.push_back(avx512_row_loops());
  }
  return *GENERATE_COPY(from_range(all));
}

}  // namespace

TEST_CASE("powers of two are right to 2e-7, down to 2^-126") {
  const RowLoops& loops = each_implementation();
  // The polynomial is right to 1e-7; its evaluation and scale * s add roundings of 6e-8.
  std::vector<float> x;
  for (int i = 0; i <= 100'000; ++i) {
    x.push_back(-125.5F * static_cast<float>(i) / 100'000);
  }
  std::vector<float> p(x.size());
  const float sum = loops.exp_row(x.data(), p.data(), std::ssize(p), 1, 0);
  double expected = 0;
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp2(static_cast<double>(x[i]));
    expected += exact;
    worst = std::max(worst, std::abs(static_cast<double>(p[i]) / exact - 1));
  }
  CHECK(worst < power_error<float>);
  // 10^5 terms, most of them small, added in at least one chain: 1e-4 covers 10^5 u32 / 60.
  CHECK(sum == Catch::Approx(expected).epsilon(1e-4));
}

TEST_CASE("powers of two are exact at 0, tiny far below, huge far above, and NaN for NaN") {
  const RowLoops& loops = each_implementation();
  constexpr float beyond = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0,   -1,     -1000, -beyond, std::numeric_limits<float>::quiet_NaN(),
                          129, beyond, 1000};
  loops.exp_row(x.data(), x.data(), std::ssize(x), 1, 0);
  CHECK(x[0] == 1.0F);
  CHECK(x[1] == 0.5F);
  CHECK(x[2] <= 0x1p-126F);
  CHECK(x[3] <= 0x1p-126F);
  CHECK(std::isnan(x[4]));
  for (const std::size_t i : {5U, 6U, 7U}) {
    CHECK(x[i] >= 0x1p127F);
  }
}

TEST_CASE("the row maximum is found at every place") {
  const RowLoops& loops = each_implementation();
  for (const std::size_t n : {1U, 2U, 3U, 7U, 64U, 67U, 256U}) {
    for (std::size_t at = 0; at < n; ++at) {
      std::vector<float> row(n, -5.0F);
      row[at] = -4.0F;
      REQUIRE(loops.row_max(row.data(), std::ssize(row)) == -4.0F);
    }
  }
}

TEST_CASE("gradient rows are p and scale p (dp - delta)") {
  const RowLoops& loops = each_implementation();
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-3, 3);
  std::vector<float> s(133);
  std::vector<float> dp(133);
  for (std::size_t i = 0; i < s.size(); ++i) {
    s[i] = uniform(random);
    dp[i] = uniform(random);
  }
  const GradientRow row{.scale = 0.5F, .scale2 = 0.75F, .lse2 = 2, .delta = 0.25F};
  std::vector<float> p = s;
  std::vector<float> ds = dp;
  loops.gradient_row(p.data(), ds.data(), p.data(), ds.data(), std::ssize(p), row);
  std::vector<Bf16> p_rounded(s.size());
  std::vector<Bf16> ds_rounded(s.size());
  loops.gradient_row_to_bf16(s.data(), dp.data(), p_rounded.data(), ds_rounded.data(),
                             std::ssize(s), row);
  for (std::size_t i = 0; i < s.size(); ++i) {
    const double exact = std::exp2(0.75 * static_cast<double>(s[i]) - 2);
    CHECK(p[i] == Catch::Approx(exact).epsilon(1e-6));
    CHECK(ds[i] == Catch::Approx(0.5 * exact * (static_cast<double>(dp[i]) - 0.25))
                       .epsilon(1e-6)
                       .margin(1e-7));
    CHECK(is_rounded(p_rounded[i], p[i]));
    CHECK(is_rounded(ds_rounded[i], ds[i]));
  }
}

TEST_CASE("rows of any length: sums and rounded powers, and nothing beyond the end") {
  const RowLoops& loops = each_implementation();
  for (const std::size_t n : {1U, 5U, 15U, 16U, 17U, 31U, 48U, 63U, 200U}) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = -static_cast<float>(i % 9) / 4;
    }
    std::vector<float> p(n + 1, 7.0F);
    std::vector<Bf16> rounded(n + 1, from_float<Bf16>(7.0F));
    const float sum = loops.exp_row(x.data(), p.data(), std::ssize(x), 2, 1);
    REQUIRE(loops.exp_row_to_bf16(x.data(), rounded.data(), std::ssize(x), 2, 1) ==
            Catch::Approx(sum).epsilon(power_error<Bf16>));
    double expected = 0;
    for (std::size_t i = 0; i < n; ++i) {
      expected += std::exp2(2 * static_cast<double>(x[i]) - 1);
      REQUIRE(p[i] == Catch::Approx(std::exp2(2 * static_cast<double>(x[i]) - 1)).epsilon(1e-6));
      REQUIRE(is_rounded(rounded[i], p[i]));
    }
    REQUIRE(sum == Catch::Approx(expected).epsilon(1e-6));
    REQUIRE(p[n] == 7.0F);
    REQUIRE(to_float(rounded[n]) == 7.0F);
  }
}

TEST_CASE("rows are scaled") {
  std::vector<float> x(37);
  std::iota(x.begin(), x.end(), 0.0F);
  scale_row(x.data(), std::ssize(x), 3);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(x[i] == 3.0F * static_cast<float>(i));
  }
}
