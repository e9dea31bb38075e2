// Whole steps: two layers with their attention of every strategy, words before and a loss behind
// them, and the update of every parameter: proven, stored, written and read again.
#include "base/error.hpp"
#include "schedule/coverage.hpp"
#include "schedule/storage.hpp"
#include "schedule/text.hpp"
#include "tests/conformance/layer_cases.hpp"
#include "tests/support/catch.hpp"

#include <set>

namespace spp {
namespace {

using test::small_layer;
using test::StepCase;

template <class F>
void for_each_step(std::size_t most, F f) {
  for (const int tensor : {1, 2, 4}) {
    for (const int sequence : {1, 2, 3, 4}) {
      for (const StepCase& c : test::step_cases(sequence, tensor, most)) {
        INFO(c.text());
        f(c);
      }
    }
  }
}

TEST_CASE("steps are proven") {
  int proven = 0;
  std::set<std::string> strategies;
  for_each_step(4, [&](const StepCase& c) {
    REQUIRE_THAT(prove(c.build()).counter_example, Catch::Matchers::Equals(""));
    strategies.insert(c.layer.attention.plan.strategy);
    ++proven;
  });
  CHECK(proven > 20);
  CHECK(strategies.size() > 6);
}

TEST_CASE("steps can be stored, and their text form is the step") {
  for_each_step(1, [](const StepCase& c) {
    const Schedule schedule = c.build();
    REQUIRE(std::ssize(store(schedule)) == schedule.mesh.size());
    const std::string text = to_text(schedule);
    const Schedule again = parse_schedule(text, "step.txt");
    REQUIRE(to_text(again) == text);
    REQUIRE_THAT(prove(again).counter_example, Catch::Matchers::Equals(""));
  });
}

TEST_CASE("a step has the model's parameters") {
  const StepCase step{.layer = small_layer()};
  std::int64_t parameters = 0;
  for (const Param& param : step.graph().graph.params) {
    parameters += param.rows * param.columns;
  }
  CHECK(parameters == step.layer.model(2).parameters());
}

}  // namespace
}  // namespace spp
