// From samples to a profile: fits give the constants back that samples were made with, and what a
// short calibration measures can be read and planned with.
#include "cli/calibration.hpp"
#include "machine/kernel_cost.hpp"
#include "machine/profile.hpp"
#include "planner/plan.hpp"
#include "runtime/calibrate/pace.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/patience.hpp"

#include <sched.h>

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

cli::Sharing one_host(int ranks, std::int64_t cores) {
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

Problem small_problem() {
  return {
      .seq = 256, .batch = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::fp32};
}

}  // namespace

TEST_CASE("message fits give latency and rate back") {
  // 4 ranks with a core each: nobody shares.
  const auto t = cli::fit_transport(exchanges(5e-6, 2e9, 2e9, 1e-10), "intra", one_host(4, 4));
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
  const auto t = cli::fit_transport(series, "intra", one_host(4, 4));
  REQUIRE(t.has_value());
  CHECK(t->rate.value == Approx(1e8).epsilon(0.05));
}

TEST_CASE("rates are those without sharing of cores") {
  // A pair alone is bound by copying, 4e9 B/s at 2.5e-10 s/B: all of a core. 4 ranks on 2 cores
  // then reach half of it.
  const auto t = cli::fit_transport(exchanges(5e-6, 2e9, 4e9, 2.5e-10), "intra", one_host(4, 2));
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
    const auto t = cli::fit_transport(series, "inter",
                                      {.nodes = 2, .per_node = 2, .cores = 2, .nodes_on_cores = 2});
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
  const auto t = cli::fit_transport(
      series, "intra", {.nodes = 1, .per_node = 8, .ranks_per_gpu = 8, .gpu_memory_rate = 4e12});
  REQUIRE(t.has_value());
  for (const CommKind kind : {CommKind::send_recv, CommKind::all_to_all}) {
    const auto& lines = t->segments.at(static_cast<std::size_t>(kind));
    CHECK(1 / lines.back().line.per_unit == Approx(1e12).epsilon(0.02));
  }
}

TEST_CASE("a transport that was not measured is not made up") {
  CHECK_FALSE(cli::fit_transport(exchanges(5e-6, 2e9, 2e9, 1e-10), "inter", one_host(4, 4)));
}

TEST_CASE("rings' steps are told from their start") {
  // All-gathers of 2 and 4 ranks: a step costs 3 us.
  std::vector<Series> series = exchanges(3e-6, 1e9, 1e9, 1e-9);
  for (const std::int64_t size : message_sizes(16 << 20)) {
    for (const int ranks : {2, 4}) {
      const auto bytes = static_cast<double>(size);
      series.push_back(
          message("collectives", "all_gather", bytes, 3e-6 * (ranks - 1) + bytes / 1e9, ranks, 4));
    }
  }
  const auto t = cli::fit_transport(series, "intra", one_host(4, 4));
  REQUIRE(t.has_value());
  CHECK(t->hop.value == Approx(3e-6).epsilon(0.05));
  CHECK(t->rate.value == Approx(1e9).epsilon(0.02));
}

TEST_CASE("attention fits give efficiencies and startup back") {
  GpuSpec gpu;
  gpu.name = "cpu core";
  gpu.sms.value = 1;
  gpu.matrix_rate[DType::fp32] = {.value = FlopRate(1e11), .spread = 0, .source = ""};
  // Unmasked blocks of whole tiles: time = 20 us + flops / (0.8 * 1e11).
  std::vector<Series> series;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    for (const std::int64_t n : {256, 512, 1024, 2048, 4096}) {
      const AttentionBlock block{.phase = phase,
                                 .q = TokenSet({.begin = 0, .count = n}),
                                 .k = TokenSet({.begin = 0, .count = n}),
                                 .q_heads = 4,
                                 .kv_heads = 4,
                                 .head_dim = 64,
                                 .mask = {.kind = MaskKind::full}};
      const double seconds = 20e-6 + flops_of(block).value() / (0.8 * 1e11);
      series.push_back({.suite = "attention",
                        .what = "attention",
                        .scope = "",
                        .ranks = 1,
                        .active = 1,
                        .size = 0,
                        .seconds = std::vector<double>(7, seconds),
                        .block = block});
    }
  }
  const cli::FittedAttention fit = cli::fit_attention(series, tiled_kernel(), gpu, DType::fp32);
  for (const auto* phase : {&fit.forward, &fit.backward}) {
    CHECK(phase->full.value == Approx(0.8).epsilon(0.02));
    CHECK(phase->startup.value == Approx(20e-6).epsilon(0.2));
  }
}

TEST_CASE("blocks of plans are told apart once") {
  const auto blocks = cli::blocks_of_plans(small_problem(), 4);
  CHECK(blocks.size() > 4);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    CHECK(std::count(blocks.begin(), blocks.end(), blocks[i]) == 1);
  }
}

TEST_CASE("the first few of many probes are spread over all") {
  CHECK(runtime::ends_then_middles(0).empty());
  CHECK(runtime::ends_then_middles(1) == std::vector<std::size_t>{0});
  CHECK(runtime::ends_then_middles(2) == std::vector<std::size_t>{0, 1});
  CHECK(runtime::ends_then_middles(5) == std::vector<std::size_t>{0, 4, 2, 1, 3});
  std::vector<std::size_t> order = runtime::ends_then_middles(214);
  std::ranges::sort(order);
  for (std::size_t i = 0; i < 214; ++i) {
    CHECK(order.at(i) == i);
  }
}

// Deviations 0.3 0.2 0.1 0 0.1 0.2 0.3 from a median of 2: their median is 0.2, a tenth of it.
TEST_CASE("blocks are measured until their medians are known well, or very often") {
  runtime::CalibrationRequest request;
  request.transport = &runtime::transports::by_name("inproc", "test");
  request.kernels = &runtime::attention_kernels::by_name("reference", "test");
  request.ranks = 2;
  request.shape = small_problem();
  request.blocks = cli::blocks_of_plans(small_problem(), 2);
  request.blocks.resize(2);
  request.suites = {"attention"};
  request.budget = test::patient(Seconds(60));  // far more than it takes
  const Calibration calibration = runtime::calibrate(request);
  std::size_t blocks = 0;
  for (const Series& s : calibration.series.at("attention")) {
    if (s.what == "attention") {
      ++blocks;
      CHECK(s.seconds.size() >= 7);
      CHECK(s.pace.size() == s.seconds.size());
      CHECK((error_of_median(over_pace(s)) <= 0.01 || s.seconds.size() >= 64));
    }
  }
  CHECK(blocks == request.blocks.size());
}

TEST_CASE("the pace of a machine is that of the ranks that have a core") {
  const auto& kernels = runtime::attention_kernels::by_name("reference", "test");
  std::vector<double> all;
  Series each = message("attention", "attention", 0, 1, 1, 2);
  Series slowest = each;
  runtime::transports::by_name("inproc", "test").run(3, [&](runtime::Transport& transport) {
    const auto own = kernels.make();
    runtime::Paced pace(transport, *own, DType::fp32, transport.rank().value < 2);
    Series mine = each;
    mine.seconds = {1, 2, 1, 2};  // two of each rank
    pace.beside(mine, runtime::Samples::each);
    Series of_all = slowest;
    of_all.seconds = {2};
    pace.beside(of_all, runtime::Samples::slowest);
    if (transport.rank().value == 2) {
      all = pace.of_all();
      each = mine;
      slowest = of_all;
    }
  });
  REQUIRE(all.size() == 6);
  CHECK(std::ranges::all_of(all, [](double s) { return s > 0; }));
  const double first = (all[0] + all[2]) / 2;
  const double second = (all[1] + all[3]) / 2;
  CHECK(each.pace == std::vector<double>{first, second, first, second});
  REQUIRE(slowest.pace.size() == 1);
  CHECK(slowest.pace.front() == Approx((all[2] + all[3] + all[4] + all[5]) / 4));
}

TEST_CASE("ranks that keep to the same core have none of their own but the first") {
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &allowed)) {
      cores.push_back(core);
    }
  }
  std::vector<char> own(3);
  runtime::transports::by_name("inproc", "test").run(3, [&](runtime::Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank().value);
    cpu_set_t mine;
    CPU_ZERO(&mine);
    CPU_SET(static_cast<std::size_t>(rank < 2 ? cores.front() : cores.back()), &mine);
    sched_setaffinity(0, sizeof mine, &mine);  // of this thread, which ends soon
    own[rank] = runtime::has_own_core(transport) ? 1 : 0;
  });
  CHECK(own == std::vector<char>{1, 0, cores.size() > 1 ? char{1} : char{0}});
}

TEST_CASE("a short calibration of two threads gives a profile to plan with") {
  const Problem problem = small_problem();
  cli::ProfileInput input;
  input.name = "test";
  input.kernels = "reference";
  input.comm = "inproc";
  input.dtype = problem.dtype;
  runtime::CalibrationRequest request;
  request.transport = &runtime::transports::by_name("inproc", "test");
  request.kernels = &runtime::attention_kernels::by_name("reference", "test");
  request.ranks = 2;
  request.shape = problem;
  request.blocks = cli::blocks_of_plans(problem, 2);
  request.suites = {"links", "collectives", "attention", "elementwise"};
  request.budget = Seconds(0.5);
  request.largest_message = 1 << 16;
  input.calibration = runtime::calibrate(request);
  REQUIRE(input.calibration.complete);

  const Json json = cli::profile_document(input);
  const Profile profile = read_profile(JsonView(json, "profile"));
  CHECK(profile.nodes == 1);
  CHECK(profile.machine.gpus_per_node.value == 2);
  CHECK_FALSE(profile.machine.gpu.measured.empty());
  REQUIRE(profile.machine.gpu.pace.has_value());
  CHECK(profile.machine.gpu.pace->q == pace_block(problem.dtype).q);
  CHECK(profile.machine.host.has_value());

  const sim::Cluster cluster(profile.machine, 1, 2);
  Request plan_request;
  plan_request.problem = problem;
  plan_request.cluster = &cluster;
  plan_request.gpus = 2;
  plan_request.memory = Bytes(std::int64_t{1} << 30);
  const Evaluation e = evaluate(plan_request, default_plan(plan_request));
  CHECK(e.candidate.predicted.step.count() > 0);
}
