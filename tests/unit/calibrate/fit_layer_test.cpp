// Fits of a layer's kernels give the constants back that samples were made with.
#include "calibrate/fit_layer.hpp"

#include "machine/gemm_cost.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <span>
#include <string>
#include <vector>

using namespace spp;
using Catch::Approx;

namespace {

constexpr double peak = 1e11;
constexpr std::array<std::array<std::int64_t, 3>, 10> shapes{{{16, 512, 512},
                                                              {64, 64, 64},
                                                              {256, 256, 256},
                                                              {1024, 64, 1024},
                                                              {1024, 1024, 64},
                                                              {64, 1024, 1024},
                                                              {512, 2048, 512},
                                                              {2048, 512, 512},
                                                              {1024, 1024, 1024},
                                                              {2048, 2048, 2048}}};

/// A core: 100 GFLOP/s in fp32, tiles of 16.
GpuSpec core() {
  GpuSpec gpu;
  gpu.name = "core";
  gpu.sms.value = 1;
  gpu.matrix_rate[DType::fp32] = {.value = FlopRate(peak), .spread = 0, .source = ""};
  gpu.generation.gemm_tile.value = 16;
  return gpu;
}

Series timed(std::string what, double bytes, double seconds) {
  return {.suite = "layer",
          .what = std::move(what),
          .scope = "",
          .ranks = 1,
          .active = 1,
          .size = bytes,
          .seconds = std::vector<double>(7, seconds),
          .block = std::nullopt};
}

/// 20 us + products at 80 % + 4 bytes of each number of A at 2 GB/s, as often as there are blocks
/// of columns, of B at 1 GB/s.
std::vector<Series> gemms(GemmKind kind, std::size_t count, std::int64_t block = 1 << 20) {
  std::vector<Series> series;
  for (const auto& [m, n, k] : std::span(shapes).first(count)) {
    const GemmShape shape{.m = m, .n = n, .k = k};
    const auto bytes = [](std::int64_t numbers) { return 4.0 * static_cast<double>(numbers); };
    Series s = timed("gemm", 0,
                     20e-6 + shape.flops().value() / (0.8 * peak) +
                         bytes(m * k * ((n + block - 1) / block)) / 2e9 + bytes(k * n) / 1e9);
    s.gemm = GemmBlock{.kind = kind, .shape = shape, .dtype = DType::fp32};
    series.push_back(std::move(s));
  }
  return series;
}

Seconds time_of(const GpuSpec& gpu, const GemmWork& work) {
  return gemm_time(gpu, std::array{work.m}, work, DType::fp32);
}

}  // namespace

TEST_CASE("GEMM fits give startup, efficiency and the matrices' rates back") {
  const auto fit =
      calibrate::fit_layer(gemms(GemmKind::input_gradient, shapes.size()), core(), DType::fp32);
  REQUIRE(fit.gemms.size() == 1);
  const auto& g = fit.gemms.at(GemmKind::input_gradient);
  CHECK(g.startup.value == Approx(20e-6).epsilon(0.01));
  CHECK(g.efficiency.value == Approx(0.8).epsilon(0.01));
  CHECK(g.rates[0].value == Approx(2e9).epsilon(0.01));
  CHECK(g.rates[1].value == Approx(1e9).epsilon(0.01));
  CHECK((g.rates[2].value == 0 || g.rates[2].value > 1e11));  // C costs nothing
  CHECK(g.efficiency.samples == 70);
}

TEST_CASE("what is touched once for each block of columns is told from what is touched once") {
  constexpr std::int64_t block = 512;
  const auto series = gemms(GemmKind::forward, shapes.size(), block);
  const auto fit = calibrate::fit_layer(series, core(), DType::fp32, block);
  const auto& g = fit.gemms.at(GemmKind::forward);
  CHECK(g.efficiency.value == Approx(0.8).epsilon(0.01));
  CHECK(g.rates[0].value == Approx(2e9).epsilon(0.01));
  const Json json = calibrate::fitted_layer(fit, Numbers("2026-01-31"));
  GpuSpec gpu = core();
  gpu.generation.layer = read_layer_kernels(JsonView(json, "layer"));
  CHECK(time_of(gpu, {.m = 2048, .n = 2048, .k = 2048}).count() ==
        Approx(series.back().seconds.front()).epsilon(0.02));
}

TEST_CASE("GEMMs of another type do not count") {
  CHECK(calibrate::fit_layer(gemms(GemmKind::forward, 5), core(), DType::bf16).gemms.empty());
}

TEST_CASE("few GEMMs tell a rate, and that it is known badly") {
  const auto fit = calibrate::fit_layer(gemms(GemmKind::forward, 2), core(), DType::fp32);
  const auto& g = fit.gemms.at(GemmKind::forward);
  CHECK(g.startup.samples == 0);
  CHECK(g.efficiency.spread >= 0.15);
  CHECK(g.efficiency.value <= 1);
  for (const Fitted& rate : g.rates) {
    CHECK(rate.value == 0);
  }
}

TEST_CASE("short calls of one shape tell a startup and no rate") {
  // As an H100 took them with 64 of its SMs (reports/measured/gpu-h100-80gb-layers).
  GpuSpec gpu = core();
  gpu.matrix_rate[DType::fp32].value = FlopRate(4e14);
  gpu.memory_bandwidth.value = Bandwidth(2e12);
  Series gemm = timed("gemm", 0, 7.7e-6);
  gemm.gemm = GemmBlock{
      .kind = GemmKind::forward, .shape = {.m = 16, .n = 16, .k = 16}, .dtype = DType::fp32};
  const auto fit =
      calibrate::fit_layer({gemm, timed("rms_norm", 270400, 23.2e-6)}, gpu, DType::fp32);
  const auto& g = fit.gemms.at(GemmKind::forward);
  CHECK(g.startup.value == Approx(7.7e-6).epsilon(0.05));
  CHECK(g.efficiency.value >= 0.5);
  CHECK(g.efficiency.samples == 0);
  const auto& norm = fit.rows.at({.function = LayerFunction::rms_norm});
  CHECK(norm.startup.value == Approx(23e-6).epsilon(0.05));
  CHECK(norm.rate.value == Approx(2e12));
  CHECK(norm.rate.samples == 0);
}

TEST_CASE("sizes that all take as long tell no rate above the memory's") {
  GpuSpec gpu = core();
  gpu.memory_bandwidth.value = Bandwidth(3e12);
  const std::vector<Series> norms = {timed("rms_norm", 2.7e5, 23.1e-6),
                                     timed("rms_norm", 2.1e6, 22.3e-6),
                                     timed("rms_norm", 1.68e7, 23.9e-6)};
  const auto fit =
      calibrate::fit_layer(norms, gpu, DType::fp32).rows.at({.function = LayerFunction::rms_norm});
  CHECK(fit.rate.value == Approx(3e12));
  CHECK(fit.rate.samples == 0);
  CHECK(fit.startup.value == Approx(21.6e-6).epsilon(0.05));
}

TEST_CASE("of a core one size tells a rate, and sizes that take as long a startup") {
  std::vector<Series> series{timed("add", 4e6, 1001e-6)};
  for (const double bytes : {2.7e5, 2.1e6, 1.7e7}) {
    series.push_back(timed("rms_norm", bytes, 50e-6));
  }
  const auto fit = calibrate::fit_layer(series, core(), DType::fp32);
  const auto& add = fit.rows.at({.function = LayerFunction::add});
  CHECK(add.startup.samples == 0);
  CHECK(add.startup.value == Approx(1e-6));
  CHECK(add.rate.value == Approx(4e9));
  CHECK(add.rate.samples == 7);
  const auto& norm = fit.rows.at({.function = LayerFunction::rms_norm});
  CHECK(norm.startup.value == Approx(50e-6).epsilon(0.01));
  CHECK(norm.rate.samples == 0);
  CHECK(norm.startup.value + 1.7e7 / norm.rate.value < 1.1 * 50e-6);
}

TEST_CASE("row-wise fits give startup and rate back, and what was not timed is left out") {
  std::vector<Series> series;
  for (const double bytes : {3e5, 2.4e6, 2e7}) {
    series.push_back(timed("rms_norm_backward", bytes, 5e-6 + bytes / 4e9));
    series.push_back(timed("add", bytes, 1e-6 + bytes / 8e9));
  }
  const auto fit = calibrate::fit_layer(series, core(), DType::fp32);
  CHECK(fit.gemms.empty());
  REQUIRE(fit.rows.size() == 2);
  const auto& norm = fit.rows.at({.function = LayerFunction::rms_norm, .backward = true});
  CHECK(norm.startup.value == Approx(5e-6).epsilon(0.01));
  CHECK(norm.rate.value == Approx(4e9).epsilon(0.01));
}

TEST_CASE("what is fitted is written and read: GEMMs, functions and the optimizer as timed") {
  std::vector<Series> series = gemms(GemmKind::forward, shapes.size());
  for (const double bytes : {3e5, 2.4e6, 2e7}) {
    series.push_back(timed("add", bytes, 1e-6 + bytes / 8e9));
    series.push_back(timed("adam", bytes, 2e-6 + bytes / 5e9));
    series.push_back(timed("word_sums_backward", bytes, 3e-6 + bytes / 2e9));
  }
  const Json json = calibrate::fitted_layer(calibrate::fit_layer(series, core(), DType::fp32),
                                            Numbers("2026-01-31"));
  GpuSpec gpu = core();
  gpu.generation.layer = read_layer_kernels(JsonView(json, "layer"));
  for (const Series& s : series) {
    if (s.gemm) {
      const auto& [m, n, k] = s.gemm->shape;
      CHECK(time_of(gpu, {.m = m, .n = n, .k = k}).count() ==
            Approx(s.seconds.front()).epsilon(0.02));
    }
  }
  const auto& rows = gpu.generation.layer.rows;
  REQUIRE(rows.size() == 3);
  const StreamSpec& optimizer = rows.at({.function = LayerFunction::adam});
  CHECK(optimizer.startup.value.count() == Approx(2e-6).epsilon(0.01));
  CHECK(optimizer.rate.value.value() == Approx(5e9).epsilon(0.01));
  CHECK(optimizer.rate.source.starts_with("measured"));
  CHECK(rows.at({.function = LayerFunction::word_sums, .backward = true}).rate.value.value() ==
        Approx(2e9).epsilon(0.01));
  CHECK(calibrate::fitted_layer({}, Numbers("2026-01-31")).is_null());
}
