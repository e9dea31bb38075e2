// Fits on data whose truth is known. Noise: factors 1 + e with e uniform in [-w, w], from a fixed
// seed. Its median absolute value is w/2, so that is the spread to expect; a mean of n such errors
// has a standard deviation of w / sqrt(3 n), and tolerances are four of these, times what the
// geometry of the problem adds where said.
#include "base/fit.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <limits>
#include <random>

using namespace spp;
using Catch::Approx;

namespace {

/// Sizes 1 KiB … 64 MiB by factors of two.
std::vector<double> sizes() {
  std::vector<double> list;
  for (int exponent = 10; exponent <= 26; ++exponent) {
    list.push_back(std::ldexp(1.0, exponent));
  }
  return list;
}

template <class Truth>
std::vector<Sample> samples(Truth truth, double width, int repeats, unsigned seed = 7) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> noise(1 - width, 1 + width);
  std::vector<Sample> list;
  for (const double x : sizes()) {
    for (int i = 0; i < repeats; ++i) {
      list.push_back({.x = x, .seconds = truth(x) * (width > 0 ? noise(random) : 1)});
    }
  }
  return list;
}

/// 5 us and 10 GB/s.
double line(double x) { return 5e-6 + x / 10e9; }

}  // namespace

TEST_CASE("a line without noise is found exactly") {
  const LineFit fit = fit_line(samples(line, 0, 1));
  CHECK(fit.latency == Approx(5e-6).epsilon(1e-9));
  CHECK(fit.per_unit == Approx(1e-10).epsilon(1e-9));
  CHECK(fit.spread < 1e-9);
}

// 17 sizes x 9, w = 5 %: about half of the samples decide each parameter (sizes below and above
// 50 KB), so 4 * 5 % / sqrt(3 * 76) = 1.3 %; the fit trades the two for each other: twice that.
TEST_CASE("a noisy line is found within what the noise allows, with its spread") {
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U}) {
    const LineFit fit = fit_line(samples(line, 0.05, 9, seed));
    CHECK(fit.latency == Approx(5e-6).epsilon(0.027));
    CHECK(fit.per_unit == Approx(1e-10).epsilon(0.027));
    CHECK(fit.spread == Approx(0.025).epsilon(0.3));
  }
}

// Every tenth sample took 4 times as long (somebody else had the core). Huber weights leave an
// outlier at r = -0.75 the influence of one at the knee, 1.345 * 1.48 * 2.5 % = 5 %, so 10 % of
// them move the fit by 0.5 % beside the noise.
TEST_CASE("slow outliers do not move a line") {
  std::vector<Sample> list = samples(line, 0.05, 9);
  for (std::size_t i = 0; i < list.size(); i += 10) {
    list[i].seconds *= 4;
  }
  const LineFit fit = fit_line(list);
  CHECK(fit.latency == Approx(5e-6).epsilon(0.04));
  CHECK(fit.per_unit == Approx(1e-10).epsilon(0.04));
  CHECK(fit.spread < 0.04);
}

TEST_CASE("latency and rate are never negative") {
  // Time falls with size, and time that starts below nothing.
  const LineFit falling = fit_line(samples([](double x) { return 1e-3 / x; }, 0, 1));
  CHECK(falling.per_unit == 0);
  CHECK(falling.latency > 0);
  std::vector<Sample> convex;
  for (const double x : {10.0, 20.0, 30.0}) {
    convex.push_back({.x = x, .seconds = x - 5});
  }
  const LineFit fit = fit_line(convex);
  CHECK(fit.latency == 0);
  CHECK(fit.per_unit > 0.4);
  CHECK(fit.per_unit < 1);
  // One size: no line, but its time.
  const Sample one{.x = 1000, .seconds = 3e-6};
  CHECK(fit_line(std::span(&one, 1)).at(1000) == Approx(3e-6).epsilon(1e-9));
}

// Below 64 KiB 3 us and 2 GB/s, above 20 us and 10 GB/s: 35.8 us against 26.6 us at the border, a
// step down. Border between the sizes 64 and 128 KiB.
TEST_CASE("a change of protocol is found, and time never falls there") {
  const auto truth = [](double x) { return x <= 65536 ? 3e-6 + x / 2e9 : 20e-6 + x / 10e9; };
  for (const double width : {0.0, 0.05}) {
    const std::vector<LineSegment> fit = fit_segments(samples(truth, width, 5));
    REQUIRE(fit.size() == 2);
    CHECK(fit[0].up_to >= 65536);
    CHECK(fit[0].up_to <= 131072);
    CHECK(std::isinf(fit[1].up_to));
    CHECK(fit[0].line.latency == Approx(3e-6).epsilon(0.05));
    CHECK(fit[0].line.per_unit == Approx(0.5e-9).epsilon(0.1));
    CHECK(fit[1].line.per_unit == Approx(1e-10).epsilon(0.03));
    double before = 0;
    for (double x = 1; x < 1e9; x *= 1.1) {
      CHECK(seconds_at(fit, x) >= before);
      before = seconds_at(fit, x);
    }
  }
}

// Two lines that meet: 2 us + x / 1 GB/s and 22 us + x / 5 GB/s, at 25,000 bytes, between 16 and
// 32 KiB.
TEST_CASE("lines that meet between two sizes join there") {
  CHECK(fit_segments(samples(line, 0, 3)).size() == 1);
  const auto kinked = [](double x) { return std::min(2e-6 + x / 1e9, 22e-6 + x / 5e9); };
  const std::vector<LineSegment> fit = fit_segments(samples(kinked, 0, 3));
  REQUIRE(fit.size() == 2);
  CHECK(fit[0].up_to == Approx(25e3).epsilon(1e-6));
}

TEST_CASE("noise alone makes no segments, outliers neither") {
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U}) {
    std::vector<Sample> list = samples(line, 0.08, 5, seed);
    for (std::size_t i = seed; i < list.size(); i += 17) {
      list[i].seconds *= 3;
    }
    CHECK(fit_segments(list).size() == 1);
  }
}

TEST_CASE("there are at most as many segments as asked for") {
  // Every size has a rate of its own.
  const auto stairs = [](double x) { return x / 1e9 * (1 + std::fmod(std::log2(x), 5)); };
  const std::vector<Sample> list = samples(stairs, 0, 3);
  CHECK(fit_segments(list).size() <= 4);
  CHECK(fit_segments(list, {.most = 2}).size() <= 2);
  CHECK(fit_segments(list, {.most = 1}).size() == 1);
}

// Attention: startup, flops and bytes. 2 us, 100 GFLOP/s, 10 GB/s, and a column that means nothing.
TEST_CASE("a kernel formula is found among terms that do not matter") {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> noise(0.95, 1.05);
  std::vector<Observation> list;
  for (const double n : {64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0}) {
    for (const double m : {64.0, 256.0, 1024.0, 4096.0}) {
      for (int i = 0; i < 5; ++i) {
        const double flops = 4 * n * m * 64;
        const double bytes = 4 * (n + m) * 64;
        const bool outlier = list.size() % 12 == 0;
        list.push_back(
            {.x = {1, flops, bytes, 1 / n},
             .seconds = (2e-6 + flops / 100e9 + bytes / 10e9) * noise(random) * (outlier ? 5 : 1)});
      }
    }
  }
  const LinearFit fit = fit_nonnegative(list);
  REQUIRE(fit.coefficients.size() == 4);
  CHECK(fit.coefficients[1] == Approx(1e-11).epsilon(0.03));
  for (const double c : fit.coefficients) {
    CHECK(c >= 0);
  }
  CHECK(fit.spread < 0.04);
  for (const Observation& o : list) {
    double seconds = 0;
    for (std::size_t i = 0; i < o.x.size(); ++i) {
      seconds += fit.coefficients[i] * o.x[i];
    }
    CHECK(seconds == Approx(2e-6 + o.x[1] / 100e9 + o.x[2] / 10e9).epsilon(0.06));
  }
}

// t = 2 x1, and x2 falls as x1 grows: the unconstrained answer for t = 2 x1 - x2 is c2 = -1.
TEST_CASE("a term that would be negative is left out") {
  std::vector<Observation> list;
  for (const double x : {1.0, 2.0, 3.0, 4.0, 5.0}) {
    list.push_back({.x = {x, 1}, .seconds = 2 * x - 1});
  }
  const LinearFit fit = fit_nonnegative(list);
  CHECK(fit.coefficients[1] == 0);
  CHECK(fit.coefficients[0] > 1);
  CHECK(fit.coefficients[0] < 2);
}

TEST_CASE("a fit of nothing is a broken invariant") {
  CHECK_THROWS_AS(fit_line({}), InternalError);
  CHECK_THROWS_AS(fit_segments({}), InternalError);
  CHECK_THROWS_AS(fit_nonnegative({}), InternalError);
  const Sample no_time{.x = 1, .seconds = 0};
  CHECK_THROWS_AS(fit_line(std::span(&no_time, 1)), InternalError);
  const std::vector<Observation> uneven{{.x = {1, 2}, .seconds = 1}, {.x = {1}, .seconds = 1}};
  CHECK_THROWS_AS(fit_nonnegative(uneven), InternalError);
}
