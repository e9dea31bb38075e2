// What a search may take, and what it answers when that is not enough.
#include "machine/machine.hpp"
#include "planner/plan.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>

using namespace spp;

namespace {

sim::Cluster cluster_of(int nodes) {
  const Catalog& catalog = test::catalog();
  return {catalog.machine("dgx-h100", "test"), nodes, nodes * 8};
}

Request request_on(const sim::Cluster& cluster) {
  Request r;
  r.problem = {.seq = 131072, .q_heads = 32, .kv_heads = 8, .head_dim = 128};
  r.cluster = &cluster;
  r.gpus = cluster.gpus();
  r.memory = Bytes(70'000'000'000);
  return r;
}

}  // namespace

TEST_CASE("a search that may take nothing answers with the plans of the smallest bounds") {
  const sim::Cluster cluster = cluster_of(2);
  Request request = request_on(cluster);
  request.most.ops = 0;
  const PlanResult result = plan(request);
  CHECK(result.simulated == 0);
  CHECK(result.unsettled == result.searched - static_cast<std::int64_t>(std::ranges::count(
                                                  result.rejected, "memory", &Rejected::rule)));
  REQUIRE(result.candidates.size() == 5);
  CHECK(result.any_fits);
  Seconds before{};
  for (const Candidate& c : result.candidates) {
    CHECK_FALSE(c.simulated);
    CHECK(c.predicted.fits);
    CHECK(c.predicted.max_seq > 0);
    CHECK(c.predicted.step >= before);
    before = c.predicted.step;
    INFO(short_name(c.plan));
    CHECK(evaluate(request, c.plan).candidate.predicted.step >= c.predicted.step);
  }
  CHECK_THAT(result.candidates[0].why, Catch::Matchers::ContainsSubstring("smallest bound of"));
}

TEST_CASE("a search without enough memory to simulate answers with bounds") {
  const sim::Cluster cluster = cluster_of(2);
  Request request = request_on(cluster);
  request.most.memory = Bytes(1000);
  const PlanResult result = plan(request);
  CHECK(result.simulated == 0);
  CHECK(result.candidates.size() == 5);
}

TEST_CASE("a limit in ops has the same answer every time, and one that is never met changes none") {
  const sim::Cluster cluster = cluster_of(4);
  Request request = request_on(cluster);
  const PlanResult free = plan(request);
  CHECK(free.unsettled == 0);
  request.most.ops = 1e9;
  CHECK(plan(request).candidates.front().plan.attention == free.candidates.front().plan.attention);
  CHECK(plan(request).simulated == free.simulated);
  request.most.ops = 10'000;
  const PlanResult first = plan(request);
  const PlanResult second = plan(request);
  CHECK(first.simulated < free.simulated);
  CHECK(first.unsettled > 0);
  REQUIRE(first.candidates.size() == second.candidates.size());
  for (std::size_t i = 0; i < first.candidates.size(); ++i) {
    CHECK(first.candidates[i].plan.attention == second.candidates[i].plan.attention);
    CHECK(first.candidates[i].simulated == second.candidates[i].simulated);
  }
}

TEST_CASE("simulated plans stand before bounded ones") {
  const sim::Cluster cluster = cluster_of(4);
  Request request = request_on(cluster);
  request.top = 50;
  request.most.ops = 60'000;
  const PlanResult result = plan(request);
  CHECK(result.simulated > 0);
  CHECK(result.unsettled > 0);
  CHECK(std::ranges::is_partitioned(result.candidates, &Candidate::simulated));
}

TEST_CASE("a search that is given up answers with what it has") {
  const sim::Cluster cluster = cluster_of(4);
  const Request request = request_on(cluster);
  const PlanResult result = plan(request, [](double simulated, double) { return simulated < 2; });
  CHECK(result.simulated == 2);
  CHECK(result.unsettled > 0);
  CHECK(result.candidates.size() == 5);
  const PlanResult nothing = plan(request, [](double, double) { return false; });
  CHECK(nothing.simulated == 0);
  CHECK(nothing.candidates.size() == 5);
}

TEST_CASE("the effort of a prediction is about the ops that are simulated") {
  const sim::Cluster cluster = cluster_of(2);
  const Request request = request_on(cluster);
  for (const SequencePlan& p : legal_plans(request, nullptr)) {
    if (!p.own.values().empty()) {
      continue;
    }
    INFO(short_name(p));
    const Effort told = effort_of(request, p);
    double last = 0;
    double expected = 0;
    const Evaluation e = evaluate(request, p, {.watch = [&](double done, double of) {
                                    CHECK(done >= last);
                                    last = done;
                                    expected = of;
                                    return true;
                                  }});
    const double ops = static_cast<double>(e.forward->ops + e.backward->ops);
    const double flows = static_cast<double>(e.forward->messages + e.backward->messages);
    CHECK(told.ops > 0.5 * (ops + flows));
    CHECK(told.ops < 4 * (ops + flows));  // a gather looks at 15 others for one or two flows
    if (expected > 0) {
      CHECK(expected == Catch::Approx(ops + flows).epsilon(0.33));
    }
  }
}

TEST_CASE("what a simulation takes beyond what was known before is charged, and may be too much") {
  // Blocks of a causal triangle over shared PCIe: each transfer ends by itself.
  const Catalog& catalog = test::catalog();
  const sim::Cluster cluster(catalog.machine("8xl40-pcie", "test"), 8, 64);
  Request request = request_on(cluster);
  request.memory = Bytes(40'000'000'000);
  request.fixed.strategy = "dist-flash-attn";
  request.fixed.ulysses = 1;
  request.fixed.rank_order = RankOrder::block;
  const std::vector<SequencePlan> legal = legal_plans(request, nullptr);
  REQUIRE(legal.size() == 1);
  const double told = effort_of(request, legal[0]).ops;
  double took = 0;
  const Evaluation e = evaluate(request, legal[0], {.watch = [&](double done, double) {
                                  took = done;
                                  return true;
                                }});
  CHECK(took > told);
  CHECK(e.forward->work + e.backward->work >= took);

  request.most.ops = 2 * (e.forward->work + e.backward->work);
  CHECK(plan(request).simulated == 1);
  request.most.ops = 0.5 * (told + took);
  const PlanResult less = plan(request);
  CHECK(less.simulated == 0);
  CHECK(less.unsettled == 1);
}

TEST_CASE("a hundred thousand GPUs are answered from bounds") {
  const sim::Cluster cluster = cluster_of(16384);
  Request request = request_on(cluster);
  request.problem.seq = std::int64_t{1} << 29;
  request.most.ops = 1e5;
  const PlanResult result = plan(request);
  CHECK(result.simulated == 0);
  CHECK(result.searched > 100);
  CHECK(result.candidates.size() == 5);
}
