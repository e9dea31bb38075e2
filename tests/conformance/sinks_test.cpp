// Layers and steps whose attention has sinks, of gpt-oss's kind: proven, stored, written and read
// again; and what is refused of them.
#include "base/error.hpp"
#include "schedule/coverage.hpp"
#include "schedule/storage.hpp"
#include "schedule/text.hpp"
#include "tests/conformance/layer_cases.hpp"
#include "tests/conformance/wrong.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>

namespace spp {
namespace {

using Catch::Matchers::Contains;
using test::changed;
using test::LayerCase;
using test::refuted;
using test::StepCase;

/// Two heads' ranks in tensor-parallel groups of two.
LayerCase over_heads() {
  LayerCase layer = test::small_layer();
  layer.attention.problem.sinks = true;
  layer.attention.plan = {.strategy = "ulysses", .ulysses = 2};
  return layer;
}

/// With every op of kind T that is `wanted` so many times.
template <class T, class Wanted>
Schedule repeated(Schedule schedule, int times, Wanted wanted) {
  schedule.program = [program = schedule.program, times, wanted](Rank rank) {
    Program result = program(rank);
    OpList all;
    for (const Op& op : ops_of(result)) {
      const T* found = op_if<T>(op.body);
      const bool is = found != nullptr && wanted(*found, result.buffers);
      all.insert(all.end(), static_cast<std::size_t>(is ? times : 1), op);
    }
    result.loops = {{.trips = 1, .body = [all](std::int64_t, OpList& ops) {
                       ops.insert(ops.end(), all.begin(), all.end());
                     }}};
    return result;
  };
  return schedule;
}
template <class T>
Schedule repeated(const Schedule& schedule, int times) {
  return repeated<T>(schedule, times, [](const auto&, const auto&) { return true; });
}

constexpr auto any = [](const auto&, const std::vector<Buffer>&) { return true; };

TEST_CASE("steps with sinks are proven, stored and written, over every strategy that has them") {
  for (const StepCase& c : test::sink_cases()) {
    INFO(c.text());
    REQUIRE(why_not_step(c.graph(), c.layer.attention.problem, c.plan(), {}) == "");
    const Schedule schedule = c.build();
    REQUIRE_THAT(prove(schedule).counter_example, Catch::Matchers::Equals(""));
    CHECK(std::ssize(store(schedule)) == schedule.mesh.size());
    const std::string text = to_text(schedule);
    const Schedule again = parse_schedule(text, "step.txt");
    CHECK(to_text(again) == text);
    CHECK_THAT(text, Contains(" sinks") && Contains(" sink=l0.attention_sinks") &&
                         Contains(": sink out=") && Contains(": sink_bwd lse="));
  }
}

TEST_CASE("a step with sinks is proven under every way of sharding") {
  for (const int zero : {0, 1, 2, 3}) {
    StepCase step{.layer = over_heads(),
                  .zero = zero,
                  .replicas = 2,
                  .pipeline = {.stages = 2, .micro_batches = 2},
                  .recompute = {.kind = zero == 3 ? Recompute::full : Recompute::none}};
    step.layer.attention.problem.seq = 16;
    INFO(step.text());
    REQUIRE(why_not_step(step.graph(), step.layer.attention.problem, step.plan(), {}) == "");
    CHECK_THAT(prove(step.build()).counter_example, Catch::Matchers::Equals(""));
  }
}

TEST_CASE("a gradient whose rows do not divide over all ranks is summed up in groups of them") {
  StepCase step{.layer = test::small_layer(), .replicas = 4};
  step.layer.attention.problem.seq = 16;
  step.layer.attention.problem.sinks = true;  // 4 of a tensor rank, over 8 ranks
  for (const int zero : {0, 1, 2, 3}) {
    step.zero = zero;
    const Schedule schedule = step.build();
    INFO("ZeRO " << zero);
    REQUIRE_THAT(prove(schedule).counter_example, Catch::Matchers::Equals(""));
    std::vector<int> sizes;
    const Program program = schedule.program(Rank(5));
    for (const Op& op : ops_of(program)) {
      const auto* sum = op_if<Collective>(op.body);
      if (sum != nullptr && sum->kind == CollectiveKind::all_reduce &&
          schedule.contract.graph.name(program.buffers[sum->to.index()].ref()) ==
              "d_param.l0.attention_sinks") {
        sizes.push_back(sum->group.size);
      }
    }
    CHECK(sizes == std::vector{4, 2});
  }
  step.zero = 0;
  BufferId first;
  CHECK_THAT(refuted(changed<Collective>(
                 step.build(),
                 [&](const Collective& o, const std::vector<Buffer>& buffers) {
                   const bool of_sinks =
                       buffers[o.from.index()].name.find("sinks") != std::string::npos;
                   first = of_sinks && o.group.size == 4 ? o.from : first;
                   return of_sinks && o.group.size == 2;
                 },
                 [&](Collective& o) { o.from = first; })),
             Contains("updates by part of a gradient: l1.attention_sinks rows 0:4"));
}

TEST_CASE("a step with sinks has the model's parameters") {
  const StepCase step{.layer = over_heads()};
  std::int64_t parameters = 0;
  for (const Param& param : step.graph().graph.params) {
    parameters += param.rows * param.columns;
  }
  CHECK(parameters == step.model().parameters());
}

TEST_CASE("out has its sink once, beside every key") {
  const Schedule forward = over_heads().build(Phase::forward);
  REQUIRE_THAT(prove(forward).counter_example, Catch::Matchers::Equals(""));
  CHECK_THAT(refuted(repeated<Sink>(forward, 0)),
             Contains("reads 'attended' before it is complete") && Contains("lacks the sink"));
  CHECK_THAT(refuted(repeated<Sink>(forward, 2)),
             Contains("gives 'attention_lse' of query tokens") && Contains("a second sink"));
  CHECK_THAT(refuted(changed<Sink>(forward, any, [](Sink& o) { std::swap(o.sinks, o.lse); })),
             Contains("as param.attention_sinks"));
  // The sink does not stand for a block of keys.
  LayerCase ring = test::small_layer();
  ring.attention.problem.sinks = true;
  const Schedule two_blocks = ring.build(Phase::forward);
  CHECK_THAT(refuted(repeated<Merge>(two_blocks, 0,
                                     [](const Merge& o, const auto&) { return !o.initial; })),
             Contains("lacks key tokens"));
}

TEST_CASE("sinks have the gradient of all tokens of their heads") {
  const Schedule backward = over_heads().build(Phase::backward);
  REQUIRE_THAT(prove(backward).counter_example, Catch::Matchers::Equals(""));
  CHECK_THAT(refuted(repeated<SinkBackward>(backward, 0)),
             Contains("d_param.attention_sinks") && Contains("lacks the contribution of tokens"));
  CHECK_THAT(refuted(changed<SinkBackward>(backward, any,
                                           [](SinkBackward& o) { std::swap(o.lse, o.delta); })),
             Contains("as delta"));
  const auto of_sinks = [&](BufferId id, const std::vector<Buffer>& buffers) {
    const Buffer& buffer = buffers[id.index()];
    return buffer.tensor == Tensor::d_param &&
           backward.contract.graph.param(buffer.label).name == "attention_sinks";
  };
  // Each rank's heads beside what nobody wrote; its own sums alone.
  CHECK_THAT(refuted(repeated<Fill>(backward, 0,
                                    [&](const Fill& o, const std::vector<Buffer>& buffers) {
                                      return of_sinks(o.buffer, buffers);
                                    })),
             Contains("d_w_attention_sinks"));
  Schedule alone = backward;
  alone.program = [program = backward.program, of_sinks](Rank rank) {
    return changed<Collective>(
        program(rank),
        [&](const Collective& o, const std::vector<Buffer>& buffers) {
          return of_sinks(o.to, buffers);
        },
        [&](Collective& o) { o.group = {.first = rank.value, .stride = 1, .size = 1}; });
  };
  CHECK_THAT(refuted(alone),
             Contains("d_param.attention_sinks") && Contains("lacks the contribution of tokens"));
}

TEST_CASE("attention by itself has no sinks, and strategies without a normaliser none at all") {
  Problem problem{.seq = 16, .q_heads = 4, .kv_heads = 2, .head_dim = 8, .sinks = true};
  const SequencePlan ring{.strategy = "ring", .ring = 2};
  const Strategy& rotation = strategies::by_name("ring", "test");
  CHECK_THAT(refuted(rotation.build(problem, ring, Phase::forward, {})),
             Contains("attention by itself has no sinks"));
  const auto refused = [&](const char* strategy) {
    return why_not(strategies::by_name(strategy, "test"), problem,
                   {.strategy = strategy, .ring = 2})
        .detail;
  };
  CHECK(refused("rsa") == "rsa: its softmax of whole rows has no attention sinks");
  problem.function = AttentionFunction::linear;
  CHECK(refused("lasp-2") ==
        "lasp-2: attention sinks take their share of a softmax, and it has none");
}

TEST_CASE("a graph whose sinks do not fit is refused, and so is its text") {
  const LayerCase layer = over_heads();
  const Schedule schedule = layer.build(Phase::forward);
  const auto flaw = [&](auto change, bool sinks = true) {
    Graph graph = schedule.contract.graph;
    change(graph);
    Problem problem = schedule.contract.attention;
    problem.sinks = sinks;
    return flaw_of(graph, rows_of(problem, schedule.grain.heads.parts()));
  };
  const auto sinks = [](Graph& g) -> Param& {
    return *std::ranges::find(g.params, "attention_sinks", &Param::name);
  };
  const auto same = [](Graph&) {};
  CHECK(flaw(same).empty());
  CHECK_THAT(flaw([&](Graph& g) { sinks(g).rows *= 2; }), Contains("a logit of each query head"));
  CHECK_THAT(flaw([&](Graph& g) { sinks(g).row_parts = 1; }),
             Contains("a logit of each query head"));
  CHECK_THAT(flaw([](Graph& g) { g.definitions[0].sink = 0; }), Contains("not those of"));
  CHECK_THAT(flaw(same, false), Contains("has a sink, and the problem's has none"));
  std::string text = to_text(schedule);
  const std::string line = " sink=attention_sinks";
  REQUIRE(text.find(line) != std::string::npos);
  text.erase(text.find(line), line.size());
  CHECK_THAT(test::message_of<InputError>([&] { (void)parse_schedule(text, "layer.txt"); }),
             Contains("layer.txt:") && Contains("lacks the sink"));
}

}  // namespace
}  // namespace spp
