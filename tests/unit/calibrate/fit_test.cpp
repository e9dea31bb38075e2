// Fits give the constants back that samples were made with.
#include "calibrate/fit.hpp"

#include "machine/kernel_cost.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace spp;
using Catch::Approx;

namespace {

Series message(std::string suite, std::string what, double bytes, double seconds, int ranks,
               int active) {
  return {.suite = std::move(suite),
          .what = std::move(what),
          .scope = "intra",
          .ranks = ranks,
          .active = active,
          .size = bytes,
          .seconds = std::vector<double>(7, seconds),
          .block = std::nullopt};
}

/// Exchanges of `latency` + bytes / `rate` in a ring of 4 ranks; a pair alone reaches `alone`, and
/// a byte costs `cpu` seconds of its core.
std::vector<Series> exchanges(double latency, double rate, double alone, double cpu) {
  std::vector<Series> series;
  for (const std::int64_t size : message_sizes(16 << 20)) {
    const auto bytes = static_cast<double>(size);
    series.push_back(message("links", "ring", bytes, latency + bytes / rate, 4, 4));
    series.push_back(message("links", "pair", bytes, latency + bytes / alone, 2, 2));
  }
  series.push_back(message("links", "cpu", 1 << 18, cpu, 2, 2));
  return series;
}

calibrate::Sharing one_host(int ranks, std::int64_t cores) {
  return {.nodes = 1, .per_node = ranks, .cores = cores};
}

/// Kernels with tiles of 256 rows.
AttentionKernelSpec tiled_kernel() {
  const Sourced<std::int64_t> tile{.value = 256, .spread = 0, .source = ""};
  AttentionKernelSpec kernel;
  kernel.q_tile = kernel.kv_tile = kernel.backward_tile = tile;
  kernel.ctas_per_sm = {.value = 1, .spread = 0, .source = ""};
  kernel.head_dim_64 = {.value = 1, .spread = 0, .source = ""};
  return kernel;
}

}  // namespace

TEST_CASE("message fits give latency and rate back") {
  // 4 ranks with a core each: nobody shares.
  const auto t =
      calibrate::fit_transport(exchanges(5e-6, 2e9, 2e9, 1e-10), "intra", one_host(4, 4));
  REQUIRE(t.has_value());
  const auto& p2p = t->segments.front();
  REQUIRE(p2p.size() == 1);
  CHECK(p2p.front().line.latency == Approx(5e-6).epsilon(0.01));
  CHECK(1 / p2p.front().line.per_unit == Approx(2e9).epsilon(0.01));
  CHECK(t->rate.value == Approx(2e9).epsilon(0.01));
  CHECK(t->cpu_share.value == Approx(0.2).epsilon(0.01));  // 1e-10 s/B x 2e9 B/s
}

TEST_CASE("what buffers take in at once is no rate of the link") {
  // 64 KiB go at once, the rest at 1e8 B/s; 300 us of latency.
  std::vector<Series> series = exchanges(0, 1e8, 1e8, 1e-10);
  for (Series& s : series) {
    if (s.what != "cpu") {
      const double taken_in = std::min(s.size, 65536.0);
      const double seconds = 300e-6 + taken_in / 1e9 + (s.size - taken_in) / 1e8;
      s.seconds.assign(7, seconds);
    }
  }
  const auto t = calibrate::fit_transport(series, "intra", one_host(4, 4));
  REQUIRE(t.has_value());
  CHECK(t->rate.value == Approx(1e8).epsilon(0.05));
}

TEST_CASE("rates are those without sharing of cores") {
  // A pair alone is bound by copying, 4e9 B/s at 2.5e-10 s/B: all of a core. 4 ranks on 2 cores
  // then reach half of it.
  const auto t =
      calibrate::fit_transport(exchanges(5e-6, 2e9, 4e9, 2.5e-10), "intra", one_host(4, 2));
  REQUIRE(t.has_value());
  CHECK(t->cpu_share.value == Approx(1).epsilon(0.01));
  CHECK(t->rate.value == Approx(4e9).epsilon(0.01));
}

TEST_CASE("a node's ranks share its link, unless it was the cores that slowed them down") {
  // 2 nodes of 2 ranks on 2 cores. One rank of each node reaches 60e6 B/s; all together less.
  const auto nics = [](double cpu, double together) {
    std::vector<Series> series = exchanges(30e-6, 60e6, 60e6, cpu);
    for (const std::int64_t size : message_sizes(16 << 20)) {
      const auto bytes = static_cast<double>(size);
      series.push_back(message("links", "pairs", bytes, 30e-6 + bytes / together, 2, 4));
    }
    for (Series& s : series) {
      s.scope = "inter";
      s.active = s.what == "ring" ? 2 : s.active;
    }
    const auto t = calibrate::fit_transport(
        series, "inter", {.nodes = 2, .per_node = 2, .cores = 2, .nodes_on_cores = 2});
    REQUIRE(t.has_value());
    CHECK(t->rate.value == Approx(60e6).epsilon(0.02));
    return t->nics;
  };
  // 0.72 of a core each at that rate: at half of it the cores have time to spare.
  CHECK(nics(1.2e-8, 28.5e6) == 1);
  // 0.96 of a core each: 4 ranks want 1.92 times the 2 cores, which is all that they reach.
  CHECK(nics(1.6e-8, 31.25e6) == 2);
}

TEST_CASE("rates are those without sharing of a GPU") {
  // A pair alone moves 1e12 B/s. 8 ranks of a GPU that read and write at 4e12 B/s together: each
  // 0.25e12 of its collective, 4 times slower.
  std::vector<Series> series = exchanges(5e-6, 0.25e12, 1e12, 0);
  series.pop_back();  // a GPU has no core time
  for (const std::int64_t size : message_sizes(16 << 20)) {
    const auto bytes = static_cast<double>(size);
    series.push_back(message("collectives", "all_to_all", bytes, 5e-6 + bytes / 0.25e12, 8, 8));
  }
  const auto t = calibrate::fit_transport(
      series, "intra", {.nodes = 1, .per_node = 8, .ranks_per_gpu = 8, .gpu_memory_rate = 4e12});
  REQUIRE(t.has_value());
  for (const CommKind kind : {CommKind::send_recv, CommKind::all_to_all}) {
    const auto& lines = t->segments.at(static_cast<std::size_t>(kind));
    CHECK(1 / lines.back().line.per_unit == Approx(1e12).epsilon(0.02));
  }
}

TEST_CASE("an all-to-all's latency reaches those of other numbers of ranks") {
  // 3 us for each peer; four ranks reach the better rate, so their 9 us stand for all: the 3 us of
  // two are 2/3 less.
  const auto spread = [](const std::vector<int>& groups) {
    std::vector<Series> series;
    for (const std::int64_t size : message_sizes(16 << 20)) {
      const auto bytes = static_cast<double>(size);
      for (const int ranks : groups) {
        series.push_back(message("collectives", "all_to_all", bytes,
                                 3e-6 * (ranks - 1) + bytes / (ranks * 1e9), ranks, 4));
      }
    }
    const auto t = calibrate::fit_transport(series, "intra", one_host(4, 4));
    REQUIRE(t.has_value());
    const auto& lines = t->segments.at(static_cast<std::size_t>(CommKind::all_to_all));
    CHECK(lines.front().line.latency == Approx(3e-6 * (groups.back() - 1)).epsilon(0.02));
    return t->all_to_all_latency_spread;
  };
  CHECK(spread({2, 4}) == Approx(2.0 / 3).epsilon(0.02));
  CHECK(spread({4}) == 0);
}

TEST_CASE("a transport that was not measured is not made up") {
  CHECK_FALSE(calibrate::fit_transport(exchanges(5e-6, 2e9, 2e9, 1e-10), "inter", one_host(4, 4)));
}

TEST_CASE("rings' steps are told from their start") {
  // Groups of 2 and 4 ranks: a start of 10 and of 14 us, and 3 us a step.
  std::vector<Series> series = exchanges(3e-6, 1e9, 1e9, 1e-9);
  for (const std::int64_t size : message_sizes(16 << 20)) {
    for (const int ranks : {2, 4}) {
      const auto bytes = static_cast<double>(size);
      const double steps = 3e-6 * (ranks - 1) + bytes / 1e9;
      series.push_back(message("collectives", "all_gather", bytes, 10e-6 + steps, ranks, 4));
      series.push_back(message("collectives", "reduce_scatter", bytes, 14e-6 + steps, ranks, 4));
    }
  }
  const auto t = calibrate::fit_transport(series, "intra", one_host(4, 4));
  REQUIRE(t.has_value());
  CHECK(t->hop.value == Approx(3e-6).epsilon(0.05));
  CHECK(t->rate.value == Approx(1e9).epsilon(0.02));
  const auto start = [&](CommKind kind) {
    return t->segments.at(static_cast<std::size_t>(kind)).front().line.latency;
  };
  CHECK(start(CommKind::all_gather) == Approx(10e-6).epsilon(0.05));
  CHECK(start(CommKind::reduce_scatter) == Approx(14e-6).epsilon(0.05));
}

TEST_CASE("collectives alone tell a rate, and cores that were not timed are assumed") {
  std::vector<Series> series;
  for (const std::int64_t size : message_sizes(4 << 10)) {  // too small to see a line's rate
    const auto bytes = static_cast<double>(size);
    series.push_back(message("collectives", "all_gather", bytes, 5e-6 + bytes / 1e9, 4, 4));
  }
  const auto t = calibrate::fit_transport(series, "intra", one_host(4, 4));
  REQUIRE(t.has_value());
  CHECK(t->rate.value > 0);
  CHECK(t->rate.samples > 0);
  CHECK(t->segments.front().empty());
  CHECK(t->cpu_share.samples == 0);
  CHECK(t->cpu_share.value == 1);
}

TEST_CASE("what ranks of a GPU share is a pair's rate, whatever other collectives reach") {
  // A pair moves 1e12 B/s, 8 ranks read and write at 4e12 B/s together: 4 times slower than each
  // alone, be it in a collective that reaches more than a quarter of the pair's rate or less.
  std::vector<Series> series = exchanges(5e-6, 0.25e12, 1e12, 0);
  series.pop_back();  // a GPU has no core time
  for (const std::int64_t size : message_sizes(16 << 20)) {
    const auto bytes = static_cast<double>(size);
    series.push_back(message("collectives", "all_to_all", bytes, 5e-6 + bytes / 0.5e12, 8, 8));
    series.push_back(message("collectives", "reduce_scatter", bytes, 5e-6 + bytes / 0.2e12, 8, 8));
  }
  const auto t = calibrate::fit_transport(
      series, "intra", {.nodes = 1, .per_node = 8, .ranks_per_gpu = 8, .gpu_memory_rate = 4e12});
  REQUIRE(t.has_value());
  const auto rate = [&](CommKind kind) {
    return 1 / t->segments.at(static_cast<std::size_t>(kind)).back().line.per_unit;
  };
  CHECK(rate(CommKind::send_recv) == Approx(1e12).epsilon(0.02));
  CHECK(rate(CommKind::all_to_all) == Approx(2e12).epsilon(0.02));
  CHECK(rate(CommKind::reduce_scatter) == Approx(0.8e12).epsilon(0.02));
}

namespace {

GpuSpec one_core() {
  GpuSpec gpu;
  gpu.name = "cpu core";
  gpu.sms.value = 1;
  gpu.matrix_rate[DType::fp32] = {.value = FlopRate(1e11), .spread = 0, .source = ""};
  return gpu;
}

/// An unmasked block of whole tiles that takes `startup` + flops / (`efficiency` * 1e11).
Series block_of(Phase phase, std::int64_t tokens, double startup, double efficiency) {
  const AttentionBlock block{.phase = phase,
                             .q = TokenSet({.begin = 0, .count = tokens}),
                             .k = TokenSet({.begin = 0, .count = tokens}),
                             .q_heads = 4,
                             .kv_heads = 4,
                             .head_dim = 64,
                             .mask = {.kind = MaskKind::full}};
  const double seconds = startup + flops_of(block).value() / (efficiency * 1e11);
  return {.suite = "attention",
          .what = "attention",
          .scope = "",
          .ranks = 1,
          .active = 1,
          .size = 0,
          .seconds = std::vector<double>(7, seconds),
          .block = block};
}

}  // namespace

TEST_CASE("attention fits give efficiencies and startup back") {
  std::vector<Series> series;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    for (const std::int64_t n : {256, 512, 1024, 2048, 4096}) {
      series.push_back(block_of(phase, n, 20e-6, 0.8));
    }
  }
  const calibrate::FittedAttention fit =
      calibrate::fit_attention(series, tiled_kernel(), one_core(), DType::fp32);
  for (const auto* phase : {&fit.forward, &fit.backward}) {
    CHECK(phase->full.value == Approx(0.8).epsilon(0.02));
    CHECK(phase->startup.value == Approx(20e-6).epsilon(0.2));
  }
}

TEST_CASE("few blocks tell a rate, and that it is known badly") {
  // The smaller one is the slower one: a line through both is startup alone.
  const std::vector<Series> two{block_of(Phase::backward, 2048, 0, 0.57),
                                block_of(Phase::backward, 4096, 0, 0.73)};
  const auto fit = calibrate::fit_attention(two, tiled_kernel(), one_core(), DType::fp32).backward;
  CHECK(fit.startup.value == Approx(1e-5));
  CHECK(fit.startup.samples == 0);
  CHECK(fit.full.value > 0.57);
  CHECK(fit.full.value < 0.73);
  CHECK(fit.causal.value == fit.full.value);
  CHECK(fit.full.spread >= 0.15);
  CHECK(fit.full.samples == 14);
  CHECK(fit.causal.samples == 0);  // no masked block was timed
  CHECK(fit.causal.spread >= 0.3);
}

TEST_CASE("row-wise functions of a layer alone tell the memory's bandwidth") {
  Series add = message("layer", "add", 1.3e9, 0.1, 1, 1);
  add.scope = "";
  const calibrate::FittedMemory memory = calibrate::fit_memory({add});
  CHECK(memory.bandwidth.value == Approx(13e9));
  CHECK(memory.bandwidth.samples == 7);
  CHECK(memory.efficiency.samples == 0);
}
