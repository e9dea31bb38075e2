// What a training step is costed, in closed form around its attention, against what the same step
// takes when it is simulated op by op: whatever splits its attention, also where groups have
// unequally many of their ranks in a node.
#include "planner/layer.hpp"
#include "planner/step.hpp"
#include "schedule/arena.hpp"
#include "sim/thinned.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/requests.hpp"

#include <set>
#include <string>
#include <utility>

using namespace spp;

namespace {

/// Two tensor ranks, and attention's.
StepPlan around(const SequencePlan& attention, int replicas, int zero) {
  return {.attention = attention, .tensor = 2, .data = replicas, .micro_batches = 2, .zero = zero};
}

/// Two nodes, of which a group of 16 ranks, every second one, has 10 and 6.
sim::Cluster uneven() {
  const MachineSpec rack = test::catalog().machine("gb200-nvl72", "test");
  return {*sim::part_of_domain(rack, 20), 2, 32};
}

/// Within this of each other: transfers that hide in the one wait in the other.
void check_costed(const Request& request, const StepPlan& plan) {
  const LayerQuestion step = step_question(request, plan);
  const Evaluation simulated =
      evaluate_layer(request, plan, step, phases_of(request, plan, step, true), {});
  const double cost = evaluate(request, plan).candidate.predicted.step.count();
  const double takes = simulated.candidate.predicted.step.count();
  INFO(short_name(plan) << ", ZeRO " << plan.zero << ": costed " << cost << " s, takes " << takes);
  CHECK(takes < 1.12 * cost);
  CHECK(takes > 0.8 * cost);
}

}  // namespace

TEST_CASE("what a step is costed is about what it takes op by op, whatever splits its attention") {
  const bool even = GENERATE(true, false);
  const sim::Cluster cluster = even ? test::cluster_of("dgx-h100", 4) : uneven();
  Request request = test::step_request(cluster, "llama-3.1-8b", 131072);
  request.model->layers = 8;
  request.memory = Bytes(720'000'000'000);  // whether it fits is another question
  const int replicas = even ? 2 : 1;
  const StepPlan first = around({.ring = 16 / replicas}, replicas, 0);
  const AttentionQuestion question = attention_question(request, first, request.problem);
  std::set<std::pair<std::string, Layout>> met;
  for (const SequencePlan& p : legal_plans(question.request, nullptr)) {
    if (p.heads != HeadPolicy::divide || !met.emplace(p.strategy, p.layout).second) {
      continue;
    }
    check_costed(request, around(p, replicas, met.size() % 2 == 0 ? 1 : 3));
  }
  CHECK(met.size() >= 10);
}

TEST_CASE("weights wait for links that attention takes, as long as they do op by op") {
  const std::string machine = GENERATE("8xrtx4090-pcie", "cloud-a100-ethernet");
  const int nodes = machine == "8xrtx4090-pcie" ? 1 : 2;
  const sim::Cluster cluster = test::cluster_of(machine, nodes);
  Request request = test::step_request(cluster, "qwen2.5-7b", 16384);
  request.model->layers = 4;
  request.memory = Bytes(720'000'000'000);
  const int ring = nodes == 1 ? 4 : 8;
  for (const int zero : {0, 1, 2, 3}) {
    check_costed(
        request,
        {.attention = {.strategy = "zigzag-ring", .ring = 2 * ring, .layout = Layout::zigzag},
         .micro_batches = zero == 0 ? 1 : 2,
         .zero = zero});
    check_costed(
        request,
        {.attention = {.strategy = "usp", .ulysses = 2, .ring = ring, .layout = Layout::zigzag},
         .zero = zero});
  }
}

TEST_CASE("stages whose messages share a node's network card cost what they take op by op") {
  const sim::Cluster cluster = test::cluster_of("cloud-a100-ethernet", 4);
  const StackSpec own = test::catalog().stack("sp-plan", "test");
  Request request = test::step_request(cluster, "llama-3.1-8b", 8192);
  request.run_by(own);
  request.model->layers = 16;
  request.memory = Bytes(720'000'000'000);
  for (const auto& [order, chunks] : {std::pair{"zero-bubble", 1}, {"interleaved", 2}}) {
    check_costed(request, {.attention = {.strategy = "ulysses"},
                           .data = 4,
                           .pipeline = 8,
                           .virtual_stages = chunks,
                           .order = order,
                           .micro_batches = 32,
                           .zero = 1});
  }
}

TEST_CASE("shards with copies are costed as long as they take op by op") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 4);
  Request request = test::step_request(cluster, "llama-3.1-8b", 16384);
  request.model->layers = 8;
  request.memory = Bytes(720'000'000'000);
  for (const int zero : {1, 2, 3}) {
    for (const int group : {8, 16}) {
      check_costed(request, {.attention = {.strategy = "ulysses", .ulysses = 2},
                             .data = 16,
                             .micro_batches = 2,
                             .zero = zero,
                             .zero_group = group});
    }
  }
}

TEST_CASE("what a plan counts of memory is about what lives at once in its step") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  Request request = test::step_request(cluster, "llama-3.1-8b", 2048);
  request.model->layers = 8;
  request.memory = Bytes(720'000'000'000);
  for (const int zero : {0, 1, 2, 3}) {
    for (const int micro_batches : {1, 2, 4}) {
      const StepPlan plan{.attention = {.strategy = "ulysses"},
                          .data = 8,
                          .micro_batches = micro_batches,
                          .zero = zero};
      const Schedule step = step_question(request, plan).schedule(Phase::step);
      const Bytes lives = plan_arena(step.program(Rank(0))).total();
      const Bytes counted = evaluate(request, plan).candidate.predicted.memory.tensors();
      INFO("ZeRO " << zero << ", " << micro_batches << " micro-batches: " << lives.as_double() / 1e9
                   << " GB live, " << counted.as_double() / 1e9 << " GB counted");
      CHECK(lives.as_double() < 1.15 * counted.as_double());
      CHECK(lives.as_double() > 0.75 * counted.as_double());
    }
  }
}

TEST_CASE("whole rows of weights are counted in every layer that keeps them") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  Request request = test::step_request(cluster, "llama-3.1-8b", 8192);
  request.model->layers = 8;
  request.memory = Bytes(720'000'000'000);
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const StepPlan plan{.attention = {.strategy = "rsa", .ring = 8},
                        .recompute = {.kind = recompute}};
    const Schedule step = step_question(request, plan).schedule(Phase::step);
    const Bytes lives = plan_arena(step.program(Rank(0))).total();
    const Bytes counted = evaluate(request, plan).candidate.predicted.memory.tensors();
    INFO(to_string(recompute) << ": " << lives.as_double() / 1e9 << " GB live, "
                              << counted.as_double() / 1e9 << " GB counted");
    CHECK(lives.as_double() < 1.1 * counted.as_double());
    CHECK(lives.as_double() > 0.9 * counted.as_double());
  }
}

TEST_CASE("what a plan counts of memory is about what lives at once on each stage of a pipeline") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  const StackSpec own = test::catalog().stack("sp-plan", "test");
  Request request = test::step_request(cluster, "llama-3.1-8b", 8192);
  request.run_by(own);
  request.model->layers = 16;
  request.memory = Bytes(7'200'000'000'000);
  for (const std::string_view order : {"gpipe", "1f1b", "interleaved", "zero-bubble"}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      const StepPlan plan{.attention = {.strategy = "ulysses", .ulysses = 2},
                          .pipeline = 4,
                          .virtual_stages = order == "interleaved" ? 2 : 1,
                          .order = std::string(order),
                          .micro_batches = 8,
                          .recompute = {.kind = recompute}};
      const Schedule step = step_question(request, plan).schedule(Phase::step);
      const std::vector<MemoryBytes> counted = evaluate(request, plan).candidate.predicted.by_stage;
      for (int stage = 0; stage < plan.pipeline; ++stage) {
        const Bytes lives = plan_arena(step.program(Rank(stage * plan.stage_ranks()))).total();
        const Bytes all = counted[static_cast<std::size_t>(stage)].tensors();
        INFO(order << ", recomputation " << to_string(recompute) << ", stage " << stage << ": "
                   << lives.as_double() / 1e9 << " GB live, " << all.as_double() / 1e9
                   << " GB counted");
        CHECK(lives.as_double() < 1.1 * all.as_double());
        CHECK(lives.as_double() > 0.9 * all.as_double());
      }
    }
  }
}

TEST_CASE("transfers below bridges that GPUs share are costed as slow as they are simulated") {
  const sim::Cluster cluster = test::cluster_of("8xl20-pcie", 1);
  Request request = test::step_request(cluster, "llama-3.1-8b", 4096);
  request.model->layers = 4;
  request.memory = Bytes(720'000'000'000);
  for (const auto& [tensor, zero] : {std::pair{8, 0}, {4, 1}, {2, 3}, {1, 0}}) {
    check_costed(request, {.attention = {.strategy = "ulysses"},
                           .tensor = tensor,
                           .data = 8 / tensor,
                           .micro_batches = 2,
                           .zero = zero});
  }
}
