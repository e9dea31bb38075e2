// Bytes that were told against bytes that were allocated: within a factor, from above and below,
// for every strategy. Worlds are large enough that what does not grow with them does not count.
#include "planner/plan.hpp"
#include "runtime/trial/demand.hpp"
#include "schedule/coverage.hpp"
#include "schedule/demand.hpp"
#include "sim/demand.hpp"
#include "sim/rank_window.hpp"
#include "sim/simulate.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/sizes/allocations.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/worlds.hpp"

using namespace spp;
using test::Allocations;
using test::Case;

namespace {

constexpr double factor = 2.5;

void check_told(Bytes told, std::int64_t allocated, double within = factor) {
  INFO("told " << told.as_double() / 1e6 << " MB, allocated "
               << static_cast<double>(allocated) / 1e6 << " MB");
  CHECK(told.as_double() < within * static_cast<double>(allocated));
  CHECK(told.as_double() * within > static_cast<double>(allocated));
}

/// One plan of every strategy, of those over `ranks` ranks that use its degrees most evenly.
std::vector<Case> one_of_each(int ranks, Phase phase) {
  const Problem problem{
      .seq = std::int64_t{8} * ranks, .q_heads = ranks, .kv_heads = ranks, .head_dim = 8};
  std::map<std::string, SequencePlan> chosen;
  for (const SequencePlan& plan : test::legal_plans(ranks, problem)) {
    const auto [at, fresh] = chosen.try_emplace(plan.strategy, plan);
    const auto uneven = [](const SequencePlan& p) {
      return std::abs(p.ulysses - p.ring) + (!p.own.values().empty() ? 0 : 1);
    };
    if (!fresh && uneven(plan) < uneven(at->second)) {
      at->second = plan;
    }
  }
  std::vector<Case> list;
  for (const auto& [name, plan] : chosen) {
    if (!why_not(strategies::by_name(name, "test"), phase).legal()) {
      continue;
    }
    list.push_back({.problem = problem, .plan = plan, .phase = phase, .options = {}});
  }
  return list;
}

}  // namespace

TEST_CASE("a proof takes about the memory that was told before") {
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    for (const Case& c : one_of_each(64, phase)) {
      INFO(c.text());
      const Schedule schedule = c.build();
      const Bytes told = proof_memory(schedule);
      const Allocations allocations;
      REQUIRE(prove(schedule).proven);
      check_told(told, allocations.peak());
    }
  }
}

TEST_CASE("a simulation takes about the memory and the ops that were told before") {
  const sim::Cluster cluster(test::machine({.gpus_per_node = 8}), 18, 144);
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    for (const Case& c : one_of_each(144, phase)) {
      INFO(c.text());
      const Schedule schedule = c.build();
      const sim::Placement placement(cluster, 144, RankOrder::block);
      const sim::Folding folding = sim::Folding::none(schedule, placement);
      const sim::SimulationDemand told =
          sim::demand_of(demand_of(schedule), sim::RankWindow::lookahead_of(schedule), folding);
      const auto costs = test::every_kernel(Seconds(1e-3));
      const Allocations allocations;
      const sim::Simulation s = simulate(schedule, placement, costs, {.folding = &folding});
      check_told(told.memory, allocations.peak());
      CHECK(told.ops == Catch::Approx(static_cast<double>(s.ops)).epsilon(0.33));
    }
  }
}

TEST_CASE("a trial takes about the memory that was told before") {
  const Problem problem{
      .seq = 4096, .q_heads = 8, .kv_heads = 8, .head_dim = 32, .dtype = DType::fp32};
  const SequencePlan plan{.strategy = "usp", .ulysses = 4, .ring = 8, .layout = Layout::zigzag};
  const Strategy& strategy = strategies::by_name(plan.strategy, "test");
  runtime::TrialRequest request;
  request.forward = strategy.build(problem, plan, Phase::forward, {});
  request.backward = strategy.build(problem, plan, Phase::backward, {});
  request.transport = &runtime::transports::by_name("inproc", "test");
  request.kernels = &runtime::attention_kernels::by_name("reference", "test");
  request.warmup = 0;
  request.iterations = 1;
  request.check = false;
  const Bytes told = runtime::trial_memory(request, plan.ranks());
  const Allocations allocations;
  CHECK(runtime::run_trial(request).complete);
  check_told(told, allocations.peak(), 4);  // of a thread, most are pages that nobody allocates
}
