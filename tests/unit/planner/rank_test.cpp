#include "planner/search.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/requests.hpp"

namespace spp {
namespace {

Candidate candidate(StepPlan plan, double gemm, double attention) {
  Candidate c{.plan = std::move(plan)};
  Prediction& p = c.predicted;
  p.parts[static_cast<std::size_t>(Component::gemm)] = gemm;
  p.parts[static_cast<std::size_t>(Component::attention)] = attention;
  p.step = Seconds(gemm + attention);
  return c;
}

PlanResult ranked(std::vector<Candidate> candidates, double spread, const Request& request = {}) {
  PlanResult result;
  result.candidates = std::move(candidates);
  ComponentSeconds spreads{};
  spreads[static_cast<std::size_t>(Component::attention)] = spread;
  rank(result, request, spreads);
  return result;
}

const StepPlan simple{};
const StepPlan two{.tensor = 2};
const StepPlan four{.tensor = 2, .pipeline = 2};

}  // namespace

TEST_CASE("of plans that tie the simplest is recommended") {
  const PlanResult result = ranked({candidate(four, 5, 5), candidate(simple, 5, 5.4)}, 1);
  CHECK(result.ties == 2);
  CHECK(result.candidates[0].plan == simple);
}

// It may be as fast as the fastest, but not as the second.
TEST_CASE("a plan that a faster one beats out of reach is no tie, though it is near the fastest") {
  const PlanResult result =
      ranked({candidate(four, 5, 5), candidate(two, 4.5, 5.6), candidate(simple, 4.6, 5.7)}, 0.6);
  CHECK(result.ties == 2);
  CHECK(result.candidates[0].plan == two);
}

TEST_CASE("of plans that tie one whose experts stay in a node is simpler") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 4);
  const StepPlan wide{.data = 32, .expert = 32};
  const StepPlan near{.data = 32, .expert = 8};
  const auto recommended = [&](const Request& request) {
    return ranked({candidate(wide, 5, 5), candidate(near, 5, 5.4)}, 1, request).candidates[0].plan;
  };
  CHECK(recommended(test::bare_request(cluster, 1024)) == near);
  CHECK(recommended({}) == wide);  // a node of all ranks
}

TEST_CASE("a plan that is much slower is not recommended, however little is known") {
  const PlanResult result = ranked({candidate(four, 5, 5), candidate(simple, 5, 6.5)}, 10);
  CHECK(result.ties == 1);
  CHECK(result.candidates[0].plan == four);
}

}  // namespace spp
