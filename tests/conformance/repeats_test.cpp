// Micro-batches that do what another one did: a step that has them is proven like any other, and
// what their loops are like (Loop::like) they are.
#include "schedule/coverage.hpp"
#include "schedule/demand.hpp"
#include "schedule/measure.hpp"
#include "tests/conformance/layer_cases.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace spp {
namespace {

using test::StepCase;

struct Order {
  std::string name;
  PipelineShape shape;
};
const std::vector<Order> orders{{"1f1b", {.micro_batches = 6}},
                                {"1f1b", {.stages = 2, .micro_batches = 6}},
                                {"gpipe", {.stages = 2, .micro_batches = 5}},
                                {"zero-bubble", {.stages = 3, .micro_batches = 7}},
                                {"interleaved", {.stages = 2, .chunks = 2, .micro_batches = 6}}};

StepCase step_of(const Order& order, int zero) {
  StepCase step{.layer = test::small_layer(),
                .zero = zero,
                .replicas = 2,
                .pipeline = order.shape,
                .order = order.name};
  step.layer.attention.problem.seq = 16;
  return step;
}

/// What an op is but for where its buffers and tokens are.
struct Kind {
  StreamId stream;
  OpKind kind;
  double flops = 0;
  Bytes bytes;
  std::vector<std::string> names;  // of its buffers, but for the numbers in them
  friend bool operator==(const Kind&, const Kind&) = default;
};

/// "m2.d_h" of whichever micro-batch, "d_w_norm_part_3" of whichever gradient; the first has none.
std::string without_numbers(std::string name) {
  std::erase_if(name, [](char c) { return c == '_' || (c >= '0' && c <= '9'); });
  return name;
}

std::vector<Kind> kinds_of(const Loop& loop, const Shapes& shapes) {
  std::vector<Kind> kinds;
  OpList ops;
  for (std::int64_t trip = 0; trip < loop.trips; ++trip) {
    loop.body(trip, ops);
  }
  for (const Op& op : ops) {
    Kind& kind = kinds.emplace_back(Kind{.stream = op.stream, .kind = kind_of(op.body)});
    const auto* kernel = std::get_if<Kernel>(&op.body);
    kind.flops = kernel != nullptr ? kernel_flops(*kernel, shapes).value() : 0;
    kind.bytes = kernel != nullptr ? touched_bytes(*kernel, shapes)
                                   : sent_bytes(std::get<Transfer>(op.body), shapes);
    const Access access = access_of(op.body);
    for (const auto& ids : {access.reads(), access.writes()}) {
      for (const BufferId id : ids) {
        kind.names.push_back(without_numbers(shapes.buffers[id.index()].name));
      }
    }
  }
  return kinds;
}

/// How many loops are like another, each of which is.
int check_likes(const Schedule& schedule, Rank rank) {
  const Program program = schedule.program(rank);
  const Shapes shapes{
      .problem = &schedule.contract.attention, .buffers = program.buffers, .rank = rank};
  int likes = 0;
  for (std::size_t i = 0; i < program.loops.size(); ++i) {
    const Loop& loop = program.loops[i];
    if (loop.like == Loop::none) {
      continue;
    }
    REQUIRE(loop.like < i);
    CHECK(kinds_of(loop, shapes) == kinds_of(program.loops[loop.like], shapes));
    ++likes;
  }
  std::set<std::string> names;
  for (const Buffer& buffer : program.buffers) {
    CHECK(names.insert(buffer.name).second);
  }
  return likes;
}

void check_step(const StepCase& step, bool repeats) {
  INFO(step.text());
  REQUIRE(why_not_step(step.graph(), step.layer.attention.problem, step.plan(), {}) == "");
  const Schedule schedule = step.build();
  CHECK_THAT(prove(schedule).counter_example, Catch::Matchers::Equals(""));
  for (const int rank : {0, schedule.mesh.size() - 1}) {
    CHECK((check_likes(schedule, Rank(rank)) > 0) == repeats);
  }
}

TEST_CASE("steps whose micro-batches repeat another are proven, sharded in any way and pipeline") {
  for (const Order& order : orders) {
    for (const int zero : {0, 1, 2, 3}) {
      StepCase step = step_of(order, zero);
      step.recompute.kind = zero % 2 == 0 ? Recompute::none : Recompute::full;
      check_step(step, zero < 3 || order.shape.stages > 1);
    }
  }
}

TEST_CASE("biases, tied embeddings and norms of heads are repeated as they are") {
  for (const Order& order : {orders[1], orders[3]}) {
    StepCase step = step_of(order, 2);
    step.updates = order.shape.stages != 3;
    step.tied = true;
    check_step(step, true);
    step.tied = false;
    step.layer.head_norms = true;
    check_step(step, true);
    step.layer.head_norms = false;
    step.layer.gated = false;
    check_step(step, true);
  }
}

TEST_CASE("what goes to experts is repeated as it is") {
  int proven = 0;
  for (StepCase step : test::expert_cases()) {
    if (step.zero == 3 && step.pipeline.stages == 1) {
      continue;
    }
    step.pipeline.micro_batches = 5;
    check_step(step, true);
    if (++proven == 3) {
      break;
    }
  }
}

TEST_CASE("the demand of a step is what all its ranks do, though some are not asked") {
  const StepCase step = step_of(orders[1], 1);
  const Schedule schedule = step.build();
  REQUIRE(schedule.mesh.size() > sampled_ranks);
  double ops = 0;
  double messages = 0;
  double buffers = 0;
  for (int rank = 0; rank < schedule.mesh.size(); ++rank) {
    const Program program = schedule.program(Rank(rank));
    buffers += static_cast<double>(program.buffers.size());
    for (const Op& op : ops_of(program)) {
      ++ops;
      if (const auto* exchange = op_if<Exchange>(op.body)) {
        messages += exchange->to.valid() && exchange->to != Rank(rank) ? 1 : 0;
      } else if (const auto* collective = op_if<Collective>(op.body)) {
        messages += collective->group.size - 1;
      }
    }
  }
  const Demand told = demand_of(schedule);
  CHECK(told.ops == Catch::Approx(ops));
  CHECK(told.messages == Catch::Approx(messages));
  CHECK(told.buffers == Catch::Approx(buffers));
}

TEST_CASE("four micro-batches are all written") {
  check_step(step_of({"1f1b", {.stages = 2, .micro_batches = 4}}, 1), false);
}

}  // namespace
}  // namespace spp
