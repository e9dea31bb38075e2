// What a calibration measures, and that what a short one measures can be read and planned with.
#include "runtime/calibrate/calibrate.hpp"

#include "calibrate/profile.hpp"
#include "cli/calibration_blocks.hpp"
#include "machine/kernel_cost.hpp"
#include "machine/profile.hpp"
#include "planner/plan.hpp"
#include "runtime/calibrate/layer_probes.hpp"
#include "runtime/calibrate/pace.hpp"
#include "runtime/calibrate/probes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/patience.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <utility>
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

Problem small_problem() {
  return {
      .seq = 256, .batch = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::fp32};
}

}  // namespace

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
  request.shape.seq = 64;  // a block is measured up to 64 times
  request.blocks = cli::blocks_of_plans(request.shape, 2);
  request.blocks.resize(1);
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

// The reference kernels take minutes for 32K queries and keys; the two small blocks go into less
// than a second.
TEST_CASE("a block that does not go into the budget is not tried, and every phase has one") {
  runtime::CalibrationRequest request;
  request.transport = &runtime::transports::by_name("inproc", "test");
  request.kernels = &runtime::attention_kernels::by_name("reference", "test");
  request.ranks = 2;
  request.shape = small_problem();
  for (const std::int64_t tokens : {1 << 15, 64}) {
    for (const Phase phase : {Phase::backward, Phase::forward}) {
      const TokenSet all(TokenRange{.begin = 0, .count = tokens});
      request.blocks.push_back({.phase = phase, .q = all, .k = all, .head_dim = 16});
    }
  }
  request.suites = {"attention"};
  request.budget = Seconds(0.2);
  const Calibration calibration = runtime::calibrate(request);
  std::vector<std::pair<Phase, std::int64_t>> measured;
  for (const Series& s : calibration.series.at("attention")) {
    if (s.what == "attention") {
      CHECK(s.seconds.size() >= 7);
      measured.emplace_back(s.block->phase, s.block->q.count());
    }
  }
  std::ranges::sort(measured);
  CHECK(measured ==
        std::vector<std::pair<Phase, std::int64_t>>{{Phase::forward, 64}, {Phase::backward, 64}});
}

// 1024 x 1024 x 1024 takes the reference GEMM a second and more, 8 times; shapes before it are up
// to a tenth of that.
TEST_CASE("GEMMs are timed by rising FLOPs as far as the budget goes") {
  runtime::CalibrationRequest request;
  request.transport = &runtime::transports::by_name("inproc", "test");
  request.kernels = &runtime::attention_kernels::by_name("reference", "test");
  request.ranks = 1;
  request.shape = small_problem();
  request.suites = {"layer"};
  request.budget = test::patient(Seconds(2));
  request.largest_message = 4 << 20;
  const Calibration calibration = runtime::calibrate(request);
  std::map<GemmKind, std::vector<GemmShape>> timed;
  for (const Series& s : calibration.series.at("layer")) {
    if (s.gemm) {
      timed[s.gemm->kind].push_back(s.gemm->shape);
    }
  }
  std::map<GemmKind, std::vector<GemmShape>> all;
  for (const runtime::Probe& probe :
       runtime::gemm_probes(DType::fp32, {.works = {true}, .active = 1}, 4 << 20)) {
    all[probe.series.gemm->kind].push_back(probe.series.gemm->shape);
  }
  REQUIRE(timed.size() == 3);
  for (const auto& [kind, shapes] : timed) {
    INFO(to_string(kind) << ": " << shapes.size() << " of " << all.at(kind).size());
    CHECK(shapes.size() < all.at(kind).size());
    CHECK(std::ranges::equal(shapes, std::span(all.at(kind)).first(shapes.size())));
  }
}

TEST_CASE("a rank's time of nothing is a sample, and an idle rank's is none") {
  const std::vector<std::vector<double>> numbers{{0}, {runtime::absent}, {2}};
  std::vector<double> each;
  runtime::add_sample(numbers, 0, runtime::Samples::each, each);
  CHECK(each == std::vector<double>{0, 2});
  std::vector<double> slowest;
  runtime::add_sample(numbers, 0, runtime::Samples::slowest, slowest);
  CHECK(slowest == std::vector<double>{2});
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
  calibrate::ProfileInput input;
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
  request.suites = {"links", "collectives", "attention", "elementwise", "layer"};
  request.budget = Seconds(0.5);
  request.largest_message = 1 << 16;
  input.calibration = runtime::calibrate(request);
  REQUIRE(input.calibration.complete);

  const Json json = calibrate::profile_document(input);
  const Profile profile = read_profile(JsonView(json, "profile"));
  CHECK(profile.nodes == 1);
  CHECK(profile.machine.gpus_per_node.value == 2);
  CHECK_FALSE(profile.machine.gpu.measured.empty());
  REQUIRE(profile.machine.gpu.pace.has_value());
  CHECK(profile.machine.gpu.pace->q == pace_block(problem.dtype).q);
  CHECK(profile.machine.host.has_value());
  CHECK(profile.machine.intra.all_reduce_inside.has_value());
  const LayerKernelsSpec& layer = profile.machine.gpu.generation.layer;
  CHECK(layer.gemms.size() == 3);
  CHECK(layer.rows.size() == row_functions().size());

  const sim::Cluster cluster(profile.machine, 1, 2);
  Request plan_request;
  plan_request.problem = problem;
  plan_request.cluster = &cluster;
  plan_request.gpus = 2;
  plan_request.memory = Bytes(std::int64_t{1} << 30);
  const Evaluation e = evaluate(plan_request, default_plan(plan_request));
  CHECK(e.candidate.predicted.step.count() > 0);
}
