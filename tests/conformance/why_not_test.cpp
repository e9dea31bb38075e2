// Illegal plans are refused, each by the rule that it breaks.
#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/double_ring_core.hpp"
#include "parallel/attention/group_cast_parts.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

namespace spp {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Refusal {
  SequencePlan plan;
  std::string rule;
  std::string detail;  // part of it
  Problem problem{.seq = 128, .q_heads = 8, .kv_heads = 4, .head_dim = 8};
};

std::vector<Refusal> refusals() {
  const Mask window{.kind = MaskKind::window, .window = 16};
  return {
      {{.strategy = "ring", .ring = 0}, "degrees", "at least 1"},
      {{.strategy = "usp", .ulysses = -2, .ring = 2}, "degrees", "at least 1"},
      {{.strategy = "ring", .ulysses = 2, .ring = 2},
       "degrees",
       "ring does not use a Ulysses degree (2)"},
      {{.strategy = "ulysses", .ulysses = 2, .ring = 2},
       "degrees",
       "ulysses does not use a ring degree (2)"},
      {{.strategy = "ring", .ring = 4, .own = {{&parameters::team, 2}}},
       "degrees",
       "ring does not use a team size (2)"},
      {{.strategy = "ring", .ring = 4, .own = {{&parameters::window, 2}}},
       "degrees",
       "ring does not use a window (2)"},
      {{.strategy = "ring", .ring = 4, .own = {{&parameters::overlap, 2}}},
       "degrees",
       "ring does not use an overlap degree (2)"},
      {{.strategy = "startrail", .ring = 8, .own = {{&parameters::team, 3}}},
       "team",
       "team size 3"},
      {{.strategy = "startrail", .ring = 2, .own = {{&parameters::team, 2}}},
       "team",
       "ring degree 2"},
      {{.strategy = "startrail", .ring = 8, .own = {{&parameters::team, 1 << 16}}},
       "team",
       "does not divide"},  // C*C > 2^31
      {{.strategy = "double-ring", .ring = 8, .own = {{&parameters::window, 3}}},
       "window",
       "window 3 does not divide"},
      {{.strategy = "ring", .ring = 4, .layout = Layout::zigzag}, "layout", "zigzag"},
      {{.strategy = "zigzag-ring", .ring = 4}, "layout", "contiguous"},
      {{.strategy = "striped-ring", .ring = 4}, "layout", "contiguous"},
      {{.strategy = "zigzag-ring", .ring = 4, .layout = Layout::document_zigzag},
       "layout",
       "there are none"},
      {{.strategy = "ulysses", .ulysses = 8}, "heads", "4 KV heads do not divide over 8 ranks"},
      {{.strategy = "ulysses", .ulysses = 4, .heads = HeadPolicy::replicate},
       "heads",
       "replicated"},
      {{.strategy = "ulysses", .ulysses = 4, .heads = HeadPolicy::pad}, "heads", "nothing to pad"},
      {{.strategy = "ulysses", .ulysses = 8, .heads = HeadPolicy::uneven}, "heads", "unevenly"},
      {{.strategy = "ulysses", .ulysses = 16, .heads = HeadPolicy::replicate},
       "heads",
       "8 query heads"},
      {{.strategy = "ring", .ring = 65}, "sequence", "128 tokens are too few for 65 ranks"},
      {{.strategy = "ring"}, "strategy", "no neighbour"},
      {{.strategy = "usp", .ulysses = 4}, "strategy", "both degrees"},
      {{.strategy = "startrail", .ring = 4}, "strategy", "plain ring"},
      {{.strategy = "startrail", .ring = 4, .own = {{&parameters::team, 2}}},
       "strategy",
       "window",
       {.seq = 128, .q_heads = 8, .kv_heads = 4, .head_dim = 8, .mask = window}},
      {{.strategy = "ulysses-startrail", .ring = 4, .own = {{&parameters::team, 2}}},
       "strategy",
       "plain StarTrail"},
      {{.strategy = "double-ring", .ring = 8}, "strategy", "plain Ring Attention"},
      {{.strategy = "double-ring", .ring = 8, .own = {{&parameters::window, 8}}},
       "strategy",
       "plain Ring Attention"},
      {{.strategy = "all-gather", .ulysses = 2}, "strategy", "nothing to gather"},
      {{.strategy = "pass-q-ring", .layout = Layout::zigzag}, "strategy", "no neighbour"},
      {{.strategy = "pass-q-ring", .ring = 4}, "strategy", "zigzag balances it"},
      {{.strategy = "pass-q-ring", .ring = 4, .layout = Layout::striped}, "layout", "striped"},
      {{.strategy = "pass-q-ring", .ring = 4, .layout = Layout::zigzag},
       "strategy",
       "window",
       {.seq = 128, .q_heads = 8, .kv_heads = 4, .head_dim = 8, .mask = window}},
      {{.strategy = "dist-flash-attn"}, "strategy", "nobody to help"},
      {{.strategy = "dist-flash-attn", .ring = 4},
       "strategy",
       "not a full one",
       {.seq = 128, .q_heads = 8, .kv_heads = 4, .head_dim = 8, .mask = {.kind = MaskKind::full}}},
      {{.strategy = "dist-flash-attn", .ring = 4},
       "strategy",
       "not a sliding-window one",
       {.seq = 128, .q_heads = 8, .kv_heads = 4, .head_dim = 8, .mask = window}},
  };
}

TEST_CASE("illegal plans are refused by the rule that they break") {
  for (const Refusal& expected : refusals()) {
    INFO(test::describe(expected.plan));
    const WhyNot refusal = why_not(strategies::by_name(expected.plan.strategy, "test"),
                                   expected.problem, expected.plan);
    CHECK(refusal.rule == expected.rule);
    CHECK_THAT(refusal.detail, ContainsSubstring(expected.detail));
  }
}

TEST_CASE("a phase that a strategy does not have is refused, one that it has is not") {
  const Strategy& inference = strategies::by_name("pass-q-ring", "test");
  CHECK(why_not(inference, Phase::forward).legal());
  CHECK(why_not(inference, Phase::backward).rule == "phase");
  CHECK_THAT(why_not(inference, Phase::backward).detail, ContainsSubstring("has no backward"));
  CHECK(why_not(strategies::by_name("ring", "test"), Phase::backward).legal());
}

TEST_CASE("a strategy splits the attention that it was made for") {
  const Problem softmax{.seq = 64, .q_heads = 4, .kv_heads = 4};
  Problem linear = softmax;
  linear.function = AttentionFunction::linear;
  const SequencePlan ring{.strategy = "ring", .ring = 4};
  const SequencePlan states{.strategy = "lasp-2", .ring = 4};
  const Strategy& rotation = strategies::by_name("ring", "test");
  const Strategy& lasp = strategies::by_name("lasp-2", "test");
  CHECK(why_not(rotation, softmax, ring).legal());
  CHECK(why_not(lasp, linear, states).legal());
  linear.value_dim = 64;
  CHECK(why_not(lasp, linear, states).detail ==
        "lasp-2: its states are square: values of 64 beside keys of 128 are not supported");
  linear.value_dim = 0;
  CHECK(why_not(lasp, softmax, states).rule == "function");
  CHECK(why_not(rotation, linear, ring).detail ==
        "ring splits softmax attention, not linear attention");
  linear.mask = {.kind = MaskKind::window, .window = 8};
  CHECK_THAT(why_not(lasp, linear, states).detail, ContainsSubstring("window"));
}

TEST_CASE("unknown strategies are an input error with a suggestion") {
  const std::string message =
      test::message_of<InputError>([] { (void)strategies::by_name("zigzag_ring", "--strategy"); });
  CHECK_THAT(message, ContainsSubstring("--strategy") && ContainsSubstring("zigzag-ring"));
}

}  // namespace
}  // namespace spp
