// The rings of the contention oracle (tests/oracle) through schedule, lowering and engine:
// computing, rendezvous and shared NICs, against SimGrid's end of every rank. The oracle prints
// nine digits.
#include "base/json.hpp"
#include "sim/simulate.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/worlds.hpp"

#include <string>

using namespace spp;
using namespace spp::sim;
using Catch::Approx;

namespace {

constexpr int ranks = 8;
constexpr std::int64_t block = 16'000;  // tokens of 4,000 bytes: 64 MB

Simulation on_oracle_machine(const Schedule& schedule, RankOrder order,
                             const SimulationCosts& costs, bool fold) {
  const Cluster cluster(test::machine(test::oracle_machine()), 2, ranks);
  return simulate(schedule, Placement(cluster, ranks, order), costs, {.fold = fold});
}

}  // namespace

TEST_CASE("every rank of the oracle's rings ends when it should") {
  const Json oracle = read_json(test::source_path("tests/oracle/contention_oracle.json"));
  int rings = 0;
  for (const Json& scenario : oracle.at("scenarios")) {
    if (!scenario.contains("ring")) {
      continue;
    }
    ++rings;
    INFO(scenario.at("name").get<std::string>());
    const Json& ring = scenario.at("ring");
    REQUIRE(ring.at("block_bytes").get<double>() == 4000.0 * block);
    std::vector<int> order;
    std::vector<Seconds> compute(ranks);
    for (const Json& rank : ring.at("ranks")) {
      order.push_back(rank.at("host").get<int>());
      compute.at(static_cast<std::size_t>(order.back())) =
          Seconds(rank.at("compute_s_per_step").get<double>());
    }
    const Schedule schedule = test::ring_of_steps(
        {.ranks = ranks, .tokens = block, .steps = ring.at("steps").get<int>(), .order = order});
    const Simulation s =
        on_oracle_machine(schedule, RankOrder::block, test::by_rank(compute), false);
    CHECK(s.makespan.count() == Approx(scenario.at("makespan_s").get<double>()).epsilon(1e-6));
    for (std::size_t i = 0; i < order.size(); ++i) {
      const double expected = ring.at("ranks").at(i).at("end_s").get<double>();
      CHECK(s.rank_end.at(static_cast<std::size_t>(order[i])).count() ==
            Approx(expected).epsilon(1e-6));
    }
  }
  CHECK(rings == 4);
}

// 7 steps of 64 MB. Node by node two edges cross, one each way: a step takes 64 MB / 25 GB/s = 2.56
// ms, 17.92 in all. Dealt out in turn all eight cross, four share a NIC each way: 10.24 ms, 71.68
// in all.
TEST_CASE("the order of the ranks alone makes a ring four times slower") {
  const Schedule schedule =
      test::ring_of_steps({.ranks = ranks, .tokens = block, .steps = ranks - 1});
  const SimulationCosts costs = test::every_kernel(Seconds(1e-3));
  for (const bool fold : {true, false}) {
    const double good = on_oracle_machine(schedule, RankOrder::block, costs, fold).makespan.count();
    const double bad = on_oracle_machine(schedule, RankOrder::cyclic, costs, fold).makespan.count();
    CHECK(good == Approx(17.92e-3).epsilon(1e-9));
    CHECK(bad == Approx(71.68e-3).epsilon(1e-9));
    CHECK(bad / good == Approx(4).epsilon(1e-9));
  }
}
