// Steps of models with experts: proven, stored, written and read again; wrong ones refused.
#include "base/error.hpp"
#include "schedule/coverage.hpp"
#include "schedule/storage.hpp"
#include "schedule/text.hpp"
#include "tests/conformance/layer_cases.hpp"
#include "tests/conformance/wrong.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <algorithm>

namespace spp {
namespace {

using test::changed;
using test::refuted;
using test::StepCase;

TEST_CASE("steps with experts are proven, can be stored, and their text form is the step") {
  for (const StepCase& c : test::expert_cases()) {
    INFO(c.text());
    REQUIRE_THAT(
        why_not_step(c.graph(), c.layer.attention.problem, c.plan(), c.layer.attention.options),
        Catch::Matchers::Equals(""));
    const Schedule schedule = c.build();
    REQUIRE_THAT(prove(schedule).counter_example, Catch::Matchers::Equals(""));
    REQUIRE(std::ssize(store(schedule)) == schedule.mesh.size());
    const std::string text = to_text(schedule);
    const Schedule again = parse_schedule(text, "step.txt");
    REQUIRE(to_text(again) == text);
    REQUIRE_THAT(prove(again).counter_example, Catch::Matchers::Equals(""));
  }
}

TEST_CASE("wrong ways to experts are refused with a counter-example") {
  using Catch::Matchers::Contains;
  const StepCase step = test::expert_cases().front();
  const auto to_experts = [](bool back) {
    return [back](const Collective& o, const std::vector<Buffer>&) {
      const auto* deal = std::get_if<ExpertDeal>(&o.deal);
      return deal != nullptr && deal->back == back;
    };
  };
  const auto is = [](GemmKind kind) {
    return [kind](const Gemm& o, const std::vector<Buffer>&) {
      return o.experts > 0 && o.kind == kind;
    };
  };
  // Fewer slots than are brought; slots of other tokens.
  CHECK_THAT(
      refuted(changed<Collective>(step.build(), to_experts(false),
                                  [](Collective& o) { --std::get<ExpertDeal>(o.deal).cells; })),
      Contains("but the op's shape says"));
  CHECK_THAT(refuted(changed<Collective>(step.build(), to_experts(false),
                                         [](Collective& o) {
                                           o.to_heads = {.begin = 1 - o.to_heads.begin,
                                                         .end = 2 - o.to_heads.begin};
                                         })),
             Contains("finds no l0.expert_weights tokens"));
  // Weights of other tokens than the rank's own.
  CHECK_THAT(refuted(changed<Copy>(
                 step.build(),
                 [](const Copy& o, const std::vector<Buffer>& buffers) {
                   return o.of_slots() &&
                          buffers[o.from.index()].ref() == buffers[o.to.index()].ref();
                 },
                 [](Copy& o) { o.tokens = o.tokens.shifted(o.tokens.count()); })),
             Contains("finds no l0.expert_weights tokens"));
  // Sums that begin before all slots are back; half of the tokens.
  CHECK_THAT(refuted(changed<Copy>(
                 step.build(),
                 [](const Copy& o, const std::vector<Buffer>& buffers) {
                   return o.kind == CopyKind::combine &&
                          buffers[o.to.index()].tensor == Tensor::value;
                 },
                 [](Copy& o) { o.kind = CopyKind::cast; })),
             Contains("copies"));
  CHECK_THAT(refuted(changed<Copy>(
                 step.build(),
                 [](const Copy& o, const std::vector<Buffer>& buffers) {
                   return o.kind == CopyKind::dispatch &&
                          buffers[o.from.index()].ref() != buffers[o.to.index()].ref();
                 },
                 [](Copy& o) { o.kind = CopyKind::combine; })),
             Contains("which no function of the graph is"));
  // Of a weight's gradient: some of the tokens that its experts get, or a whole micro-batch twice.
  CHECK_THAT(refuted(changed<Gemm>(step.build(), is(GemmKind::weight_gradient),
                                   [](Gemm& o) { o.tokens = o.tokens.part(0, 2); })),
             Contains("lacks the contribution") || Contains("part of a gradient"));
  CHECK_THAT(
      refuted(changed<Gemm>(step.build(), is(GemmKind::forward), [](Gemm& o) { --o.experts; })),
      Contains("other matrices than those of a group"));
  CHECK_THAT(
      refuted(changed<RowKernel>(
          step.build(), [](const RowKernel& o, const std::vector<Buffer>&) { return o.slots; },
          [](RowKernel& o) { o.slots = false; })),
      Contains("works on slots"));
}

TEST_CASE("slots that no rank of a group sums up, or two, are refused with a counter-example") {
  using Catch::Matchers::Contains;
  const auto cases = test::expert_cases();
  const auto gathered = std::ranges::find(cases, Dispatcher::all_gather, &StepCase::to_experts);
  REQUIRE(gathered != cases.end());
  const auto into_sums = [](const Copy& o, const std::vector<Buffer>& buffers) {
    return o.kind == CopyKind::combine && buffers[o.to.index()].tensor == Tensor::value;
  };
  // Another group's slots are not there.
  CHECK_THAT(refuted(changed<Copy>(gathered->build(), into_sums,
                                   [](Copy& o) { o.expert_group = 1 - o.expert_group; })),
             Contains("finds no"));
  CHECK_THAT(
      refuted(changed<Copy>(gathered->build(), into_sums, [](Copy& o) { o.expert_group = 4; })),
      Contains("a group 4 of 4 groups of experts"));
  // Sums that begin with other slots, or without room: nothing was filled before.
  CHECK_THAT(refuted(changed<Fill>(
                 gathered->build(),
                 [](const Fill& o, const std::vector<Buffer>& buffers) {
                   return buffers[o.buffer.index()].tensor == Tensor::value;
                 },
                 [](Fill& o) { o.tokens = o.tokens.part(0, 2); })),
             Contains("finds no"));
  // Of half of the members' sums each token lacks the slots of the others.
  CHECK_THAT(refuted(changed<Copy>(gathered->build(), into_sums,
                                   [](Copy& o) { o.tokens = o.tokens.part(0, 2); })),
             Contains("slot"));
  // A graph without experts has no groups of them.
  const auto over_ulysses = std::ranges::find(
      cases, "ulysses", [](const StepCase& c) { return c.layer.attention.plan.strategy; });
  REQUIRE(over_ulysses != cases.end());
  StepCase dense = *over_ulysses;
  dense.experts = {};
  dense.expert_groups = 1;
  CHECK_THAT(refuted(changed<Copy>(
                 dense.build(),
                 [](const Copy& o, const std::vector<Buffer>&) { return o.kind == CopyKind::pack; },
                 [](Copy& o) {
                   o.kind = CopyKind::dispatch;
                   o.of_group = true;
                 })),
             Contains("a group 0 of 0 groups of experts"));
}

/// A step whose experts have biases, and products of theirs with a weighted one, or with the other.
struct Biased {
  StepCase step = test::expert_cases().front();
  Graph graph = step.graph().graph;

  [[nodiscard]] auto is(GemmKind kind, bool weighted) const {
    return [this, kind, weighted](const Gemm& o, const std::vector<Buffer>&) {
      return o.experts > 0 && o.kind == kind &&
             (graph.definition(o.definition).reads.size() > 1) == weighted;
    };
  }
  /// What the proof says of a step with such an op changed.
  template <class Change>
  [[nodiscard]] std::string wrong(GemmKind kind, bool weighted, Change change) const {
    return refuted(changed<Gemm>(step.build(), is(kind, weighted), change));
  }
};

TEST_CASE("every slot has its expert's bias once") {
  using Catch::Matchers::Contains;
  const Biased biased;
  const auto wrong = [&](bool weighted, auto change) {
    return biased.wrong(GemmKind::forward, weighted, change);
  };
  CHECK_THAT(wrong(false, [](Gemm& o) { o.bias = {}; }),
             Contains("reads 'l0.experts_up' before it is complete") && Contains("lacks the bias"));
  CHECK_THAT(wrong(true,
                   [](Gemm& o) {
                     o.bias = {};
                     o.bias_weights = {};
                   }),
             Contains("lacks the bias"));
  CHECK_THAT(wrong(false, [](Gemm& o) { o.bias = {o.b}; }),
             Contains("as param.l0.experts_up_bias"));
  // A weighted one without weights, weights of one that has none, other numbers than weights.
  CHECK_THAT(wrong(true, [](Gemm& o) { o.bias_weights = {}; }), Contains("or weights of them"));
  CHECK_THAT(wrong(false, [](Gemm& o) { o.bias_weights = {o.a}; }), Contains("or weights of them"));
  CHECK_THAT(wrong(true, [](Gemm& o) { o.bias_weights = {o.a}; }),
             Contains("as value.l0.expert_weights"));
  CHECK_THAT(refuted(changed<Gemm>(
                 biased.step.build(),
                 [](const Gemm& o, const std::vector<Buffer>&) { return o.experts == 0; },
                 [](Gemm& o) { o.bias_weights = {o.a}; })),
             Contains("has no experts"));
}

TEST_CASE("a bias of experts has the gradient of all their slots, and their weights that of it") {
  using Catch::Matchers::Contains;
  const Biased biased;
  const auto of_weight = [&](bool weighted, auto change) {
    return biased.wrong(GemmKind::weight_gradient, weighted, change);
  };
  for (const bool weighted : {false, true}) {
    CHECK_THAT(of_weight(weighted,
                         [](Gemm& o) {
                           o.bias = {};
                           o.bias_weights = {};
                         }),
               Contains("d_w_l1.experts_") && Contains("_bias"));
  }
  CHECK_THAT(of_weight(true, [](Gemm& o) { o.bias_weights = {}; }), Contains("or weights of them"));
  const auto of_input = [&](bool weighted, auto change) {
    return biased.wrong(GemmKind::input_gradient, weighted, change);
  };
  CHECK_THAT(of_input(true,
                      [](Gemm& o) {
                        o.bias = {};
                        o.bias_weights = {};
                      }),
             Contains("reads 'd_l1.expert_weights_slots', which nothing was written to"));
  CHECK_THAT(of_input(true, [](Gemm& o) { o.bias_weights = {}; }), Contains("or weights of them"));
  CHECK_THAT(of_input(false, [](Gemm& o) { o.bias = {o.b}; }), Contains("or weights of them"));
  // The activation's part of the weights' gradient replaces the bias', or is added elsewhere.
  const auto activation = [](const RowKernel& o, const std::vector<Buffer>&) {
    return o.slots && o.backward;
  };
  CHECK_THAT(refuted(changed<RowKernel>(biased.step.build(), activation,
                                        [](RowKernel& o) {
                                          const auto reads = o.reads.ids();
                                          o.reads = {reads[0], reads[1], reads[2]};
                                        })),
             Contains("has other operands than expert_swiglu backward"));
  CHECK_THAT(refuted(changed<RowKernel>(biased.step.build(), activation,
                                        [](RowKernel& o) {
                                          const auto writes = o.writes.ids();
                                          o.writes = {writes[0], writes[0]};
                                        })),
             Contains("reads and writes it in one place"));
}

TEST_CASE("a graph whose experts' biases do not fit is refused, and so is its text") {
  using Catch::Matchers::Contains;
  const Biased biased;
  const Schedule schedule = biased.step.build();
  const auto flaw = [&](auto change) {
    Graph graph = schedule.contract.graph;
    change(graph);
    return flaw_of(graph, rows_of(schedule.contract.attention, schedule.grain.heads.parts()));
  };
  const auto down = [](Graph& graph) -> Definition& {
    return *std::ranges::find_if(graph.definitions, [&](const Definition& d) {
      return graph.is_of_experts(d) && d.reads.size() > 1;
    });
  };
  const auto bias = [&](Graph& graph) -> Param& {
    return graph.params[static_cast<std::size_t>(down(graph).bias)];
  };
  CHECK(flaw([](Graph&) {}).empty());
  CHECK_THAT(flaw([&](Graph& g) { bias(g).rows /= 2; }), Contains("another shape"));
  CHECK_THAT(flaw([&](Graph& g) { bias(g).row_parts = 1; }), Contains("another shape"));
  CHECK_THAT(flaw([&](Graph& g) { bias(g).experts = 0; }), Contains("another shape"));
  CHECK_THAT(flaw([&](Graph& g) { down(g).bias = -1; }), Contains("another shape"));
  CHECK_THAT(flaw([&](Graph& g) { down(g).reads[1] = down(g).reads[0]; }),
             Contains("another shape"));
  // Weights of what is no expert's.
  CHECK_THAT(flaw([&](Graph& g) {
               const TensorRef weights = down(g).reads[1];
               for (Definition& d : g.definitions) {
                 if (d.function == LayerFunction::linear && !g.is_of_experts(d)) {
                   d.reads.push_back(weights);
                 }
               }
             }),
             Contains("another shape") || Contains("before it is written"));
  std::string text = to_text(schedule);
  const std::string line = " bias=l0.experts_down_bias";
  REQUIRE(text.find(line) != std::string::npos);
  CHECK_THAT(text, Contains(" bias_weights="));
  text.erase(text.find(line), line.size());
  const auto message = [&] {
    return test::message_of<InputError>([&] { (void)parse_schedule(text, "step.txt"); });
  };
  CHECK_THAT(message(), Contains("step.txt:") && Contains("another shape"));
  const std::string routing = text.substr(text.find("routing "));
  text.erase(text.find(routing), routing.find('\n') + 1);
  CHECK_THAT(message(), Contains("step.txt:") && Contains("are not the routing's 0 and 0"));
}

TEST_CASE("a step with biases of experts has the model's parameters") {
  const Biased biased;
  std::int64_t parameters = 0;
  for (const Param& param : biased.graph.params) {
    parameters += param.rows * param.columns;
  }
  CHECK(parameters == biased.step.model().parameters());
}

TEST_CASE("experts that cannot be dealt out are refused by the rule that they break") {
  StepCase step = test::expert_cases().front();
  const auto reason = [&] {
    return why_not_step(step.graph(), step.layer.attention.problem, step.plan(), {});
  };
  using Catch::Matchers::Contains;
  CHECK(reason().empty());
  step.layer.attention.problem.seq = 8;  // two tokens a range: not for four experts of a slot
  CHECK_THAT(reason(), Contains("do not divide among 4 experts of a slot"));
  // Chunks of two tokens, though a rank's eight divide.
  step.layer.attention.plan = {.strategy = "group-cast", .ring = 2, .layout = Layout::balanced};
  step.layer.attention.problem.seq = 32;
  CHECK(reason() ==
        "a rank's 8 tokens lie in chunks, of which those of 2 do not divide among 4 experts of a "
        "slot; those of sequences of 128 tokens do");
  step.layer.attention.problem.seq = 128;
  CHECK(reason().empty());
  step.layer.attention.plan = test::expert_cases().front().layer.attention.plan;
  step.layer.attention.problem.seq = 48;
  step.expert_groups = 3;
  CHECK_THAT(reason(), Contains("an expert degree of 3 does not divide"));
  step.expert_groups = 8;
  step.experts.per_token = 4;
  step.experts.count = 12;
  CHECK_THAT(reason(), Contains("an expert degree of 8 does not divide"));
  step.experts.count = 7;
  CHECK_THAT(reason(), Contains("no equal parts"));
  step.experts = {};
  CHECK_THAT(reason(), Contains("a model without experts"));
}

TEST_CASE("a step with experts over 4 ranks is the schedule of its golden text") {
  const StepCase step{
      .layer = {.attention = {.problem = {.seq = 16, .q_heads = 2, .kv_heads = 2, .head_dim = 8},
                              .plan = {.strategy = "ulysses"},
                              .phase = Phase::forward,
                              .options = {}},
                .tensor = 2},
      .zero = 1,
      .replicas = 2,
      .recompute = {.kind = Recompute::selective},
      .experts = {.count = 4, .per_token = 2, .ffn = 4},
      .expert_groups = 4};
  const std::array first{Rank(0)};  // the others differ in experts, heads, tokens and peers
  CHECK(to_text(step.build(), first) ==
        test::read_text(test::source_path("tests/golden/experts_of_four.txt")));
}

TEST_CASE("a routing gives every expert as many tokens of every rank") {
  Routing routing{.experts = 16, .chosen = 4, .groups = 8, .period = 8};
  const TokenSet own({.begin = 16, .count = 16});
  std::int64_t all = 0;
  for (int group = 0; group < routing.groups; ++group) {
    const TokenSet routed = routing.routed(own, group);
    const HeadRange slots = routing.slots_of(group);
    CHECK(slots.count() == 1);
    all += routed.count() * slots.count();
    for (const TokenRange& range : routed.ranges()) {
      for (std::int64_t i = 0; i < range.count; ++i) {
        CHECK(routing.group_of(range.at(i), slots.begin) == group);
      }
    }
  }
  CHECK(all == own.count() * routing.chosen);
  routing.groups = 2;
  CHECK(routing.slots_of(1) == HeadRange{.begin = 2, .end = 4});
  CHECK(routing.routed(own, 1) == own);
  const std::vector<TokenSet> striped{TokenSet({.begin = 0, .count = 8, .stride = 2}),
                                      TokenSet({.begin = 1, .count = 8, .stride = 2})};
  CHECK(period_of(striped, 4) == 16);
  CHECK(period_of(striped, 3) == 0);
}

}  // namespace
}  // namespace spp
