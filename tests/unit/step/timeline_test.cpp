#include "step/timeline.hpp"

#include "base/json.hpp"
#include "step/cost.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/step/one_gpu.hpp"

#include <algorithm>
#include <map>
#include <tuple>

using namespace spp;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using spp::test::TinyStep;

namespace {

StepTimeline timeline_of(const TinyStep& tiny, const StepPlan& plan) {
  StepCommon common(tiny.request);
  return step_timeline(common, plan, tiny.seq, tiny.attention);
}

/// Steps of all pipelines, with and without what comes behind their passes.
std::vector<StepPlan> some_plans() {
  std::vector<StepPlan> plans;
  for (const int zero : {0, 1, 2}) {
    plans.push_back({.data = 2, .micro_batches = 3, .zero = zero});
    for (const char* order : {"1f1b", "gpipe", "zero-bubble"}) {
      plans.push_back({.data = 2, .pipeline = 2, .order = order, .micro_batches = 4, .zero = zero});
    }
  }
  plans.push_back({.attention = {.ring = 4}, .zero = 3});
  return plans;
}

}  // namespace

TEST_CASE("a step laid out in time ends when its cost says") {
  TinyStep tiny;
  tiny.practice.host_step.value = Seconds(0.01);
  tiny.practice.slowdown.value = 0.1;
  for (const double hidden : {0.0, 1.0}) {
    tiny.practice.gradients_hidden.value = tiny.practice.parameters_hidden.value = hidden;
    for (const StepPlan& plan : some_plans()) {
      CAPTURE(plan.order, plan.zero, hidden);
      CHECK(timeline_of(tiny, plan).end() == Approx(tiny.cost(plan).total()).epsilon(1e-12));
    }
  }
}

TEST_CASE("each micro-batch passes each stage once, behind the one before it") {
  const TinyStep tiny;
  const StepPlan plan{.pipeline = 2, .micro_batches = 5};
  const StepTimeline timeline = timeline_of(tiny, plan);
  std::map<std::tuple<StepEventKind, int, int>, const StepEvent*> passes;
  for (const StepEvent& e : timeline.events) {
    if (e.kind == StepEventKind::forward || e.kind == StepEventKind::backward) {
      CHECK(passes.emplace(std::tuple(e.kind, e.stage, e.micro_batch), &e).second);
      CHECK(e.parts.total() == Approx(e.end - e.begin).epsilon(1e-12));
    }
  }
  REQUIRE(passes.size() == 2 * 2 * 5);
  for (int m = 0; m < 5; ++m) {
    const auto& pass = [&](StepEventKind kind, int stage) { return *passes.at({kind, stage, m}); };
    CHECK(pass(StepEventKind::forward, 1).begin > pass(StepEventKind::forward, 0).end);
    CHECK(pass(StepEventKind::backward, 0).begin > pass(StepEventKind::backward, 1).end);
  }
}

TEST_CASE("a rank's passes come one after the other, as do its gradients") {
  const TinyStep tiny;
  for (const StepPlan& plan : some_plans()) {
    std::map<std::pair<int, StepStream>, double> until;
    for (const StepEvent& e : timeline_of(tiny, plan).events) {
      if (e.stream != StepStream::messages) {
        double& end = until[{e.stage, e.stream}];
        CHECK(e.begin >= end - 1e-15);
        end = e.end;
      }
    }
  }
}

TEST_CASE("a trace of a step names stages, streams and parts") {
  const TinyStep tiny;
  const StepPlan plan{.data = 2, .pipeline = 2, .micro_batches = 2};
  const Json trace = parse_json(to_chrome_trace(timeline_of(tiny, plan), "a \"step\""), "t.json");
  CHECK(trace["otherData"]["title"] == "a \"step\"");
  std::map<std::string, int> counts;
  double parts = 0;
  double passes = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      ++counts[event["args"]["name"]];
      continue;
    }
    const std::string category = event["cat"];
    ++counts[category];
    (category == "part" ? parts : passes) +=
        category == "part" || category == "forward" || category == "backward"
            ? event["dur"].get<double>()
            : 0;
  }
  CHECK(counts["stage 1"] == 1);
  CHECK(counts["weights"] == 2);
  CHECK(counts["forward"] == 4);
  CHECK(counts["message"] == 4);
  CHECK(counts["optimizer"] == 2);
  CHECK(parts == Approx(passes).epsilon(1e-12));
}
