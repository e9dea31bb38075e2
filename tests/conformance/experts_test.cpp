// Steps of models with experts: proven, stored, written and read again; wrong ones refused.
#include "schedule/coverage.hpp"
#include "schedule/storage.hpp"
#include "schedule/text.hpp"
#include "tests/conformance/layer_cases.hpp"
#include "tests/conformance/wrong.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

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

TEST_CASE("experts that cannot be dealt out are refused by the rule that they break") {
  StepCase step = test::expert_cases().front();
  const auto reason = [&] {
    return why_not_step(step.graph(), step.layer.attention.problem, step.plan(), {});
  };
  using Catch::Matchers::Contains;
  CHECK(reason().empty());
  step.layer.attention.problem.seq = 8;  // two tokens a range: not for four experts of a slot
  CHECK_THAT(reason(), Contains("do not divide among 4 experts of a slot"));
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
