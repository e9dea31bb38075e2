#include "parallel/attention/plan.hpp"

#include "base/error.hpp"
#include "parallel/attention/strategy.hpp"
#include "tests/support/catch.hpp"

#include <utility>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using spp::test::message_of;

namespace {

Problem heads(int q, int kv) { return {.seq = 1024, .q_heads = q, .kv_heads = kv}; }

}  // namespace

TEST_CASE("padding is the least that lets the plan divide the sequence") {
  for (const Layout layout : {Layout::contiguous, Layout::striped, Layout::zigzag}) {
    for (int ulysses = 1; ulysses <= 3; ++ulysses) {
      for (int ring = 1; ring <= 5; ++ring) {
        const SequencePlan plan{.ulysses = ulysses, .ring = ring, .layout = layout};
        const std::int64_t unit = ulysses * ring * (layout == Layout::zigzag ? 2 : 1);
        for (std::int64_t seq = 1; seq <= 40; ++seq) {
          const std::int64_t got = padded({.seq = seq}, plan).seq;
          REQUIRE(got % unit == 0);
          REQUIRE(got >= seq);
          REQUIRE(got < seq + unit);
        }
      }
    }
  }
}

TEST_CASE("documents are padded each to two pieces a rank, and dealt out by ring and team") {
  // 2 x 4 ranks: to multiples of 16, in 8 pieces: 10, 33 and 21 tokens become 16, 48 and 32.
  const Problem problem{.seq = 64, .mask = {.document_ends = {10, 43}}};
  SequencePlan plan{.strategy = "usp", .ulysses = 2, .ring = 4, .layout = Layout::document_zigzag};
  const Problem whole = padded(problem, plan);
  CHECK(whole.seq == 96);
  CHECK(whole.mask.pieces == 8);
  CHECK(whole.mask.document_ends == std::vector<std::int64_t>{2, 8, 12});
  CHECK(padded(whole, plan) == whole);
  plan.layout = Layout::zigzag;
  CHECK(padded(problem, plan).mask == problem.mask);
}

TEST_CASE(
    "a window over all tokens stays one over what padding makes of them, asked for and done") {
  // 4 ranks: documents of 4 and 17 tokens become 8 and 24, a sequence of 21 becomes 24.
  Problem problem{.seq = 21,
                  .mask = {.kind = MaskKind::window, .window = 21, .document_ends = {4}}};
  SequencePlan plan{.strategy = "all-gather", .ulysses = 2, .ring = 2};
  const auto windows = [&](Layout layout) {
    plan.layout = layout;
    return std::pair(dealt(problem, plan).mask.window, padded(problem, plan).mask.window);
  };
  CHECK(windows(Layout::document_zigzag) == std::pair<std::int64_t, std::int64_t>(32, 32));
  CHECK(windows(Layout::zigzag) == std::pair<std::int64_t, std::int64_t>(24, 24));
  problem.mask.window = 20;
  CHECK(windows(Layout::document_zigzag) == std::pair<std::int64_t, std::int64_t>(20, 20));
}

TEST_CASE("a sequence shorter than its documents keeps what is left of them") {
  const Problem problem{.seq = 12, .mask = {.document_ends = {10, 43}}};
  const SequencePlan plan{.strategy = "zigzag-ring", .ring = 2, .layout = Layout::document_zigzag};
  CHECK(padded(problem, plan).mask.document_ends == std::vector<std::int64_t>{3, 4});
  CHECK(padded(problem, plan).seq == 16);
}

TEST_CASE("padding changes heads only under the pad policy") {
  SequencePlan plan{.ulysses = 4};
  CHECK(padded(heads(30, 10), plan) == heads(30, 10));
  plan.heads = HeadPolicy::pad;
  CHECK(padded(heads(30, 10), plan) == heads(36, 12));
  CHECK(padded(padded(heads(30, 10), plan), plan) == heads(36, 12));
}

TEST_CASE("an order may leave axes out and names none twice") {
  using enum Axis;
  CHECK(parse_order("ring,team,ulysses", "x") == std::array{ring, team, ulysses});
  CHECK(parse_order("ring", "x") == std::array{ring, ulysses, team});
  CHECK(to_string(parse_order("team", "x")) == "team,ulysses,ring");
  CHECK_THAT(message_of<InputError>([] { parse_order("ring,ring", "--order"); }),
             ContainsSubstring("--order: axis 'ring' is named twice"));
  CHECK_THAT(message_of<InputError>([] { parse_order("rnig", "--order"); }),
             ContainsSubstring("did you mean 'ring'?"));
}

// What goes round is closed forms' and proofs' to say (tests/conformance); here, that it is little.
TEST_CASE("the simplest strategy has the degrees and the layout, in the table's order") {
  const auto named = [](int ulysses, int ring, Layout layout) -> std::string_view {
    const Strategy* s = strategies::simplest({.ulysses = ulysses, .ring = ring, .layout = layout});
    return s != nullptr ? s->name : "none";
  };
  CHECK(named(1, 4, Layout::contiguous) == "ring");
  CHECK(named(1, 4, Layout::document_contiguous) == "ring");
  CHECK(named(1, 4, Layout::zigzag) == "zigzag-ring");
  CHECK(named(1, 4, Layout::striped) == "striped-ring");
  CHECK(named(2, 4, Layout::zigzag) == "usp");
  CHECK(named(4, 1, Layout::contiguous) == "ulysses");
  CHECK(named(1, 1, Layout::contiguous) == "ulysses");
  const auto linear =
      strategies::simplest({.ring = 4, .layout = Layout::contiguous}, AttentionFunction::linear);
  REQUIRE(linear != nullptr);
  CHECK(linear->function == AttentionFunction::linear);
}

TEST_CASE("tokens in front are padded for the ring that deals them out, not for Ulysses") {
  const Problem problem{.seq = 1024, .cached = 1001};
  const auto cached = [&](const SequencePlan& plan) { return padded(problem, plan).cached; };
  CHECK(cached({.strategy = "ring", .ring = 8}) == 1008);
  CHECK(cached({.strategy = "zigzag-ring", .ring = 8, .layout = Layout::zigzag}) == 1008);
  CHECK(cached({.strategy = "usp", .ulysses = 4, .ring = 2}) == 1002);
  CHECK(cached({.strategy = "ulysses", .ulysses = 8}) == 1001);
}

TEST_CASE("a ring of contiguous chunks turns as far as a window reaches") {
  const SequencePlan plan{.strategy = "ring", .ring = 8};
  const auto hops = [&](std::int64_t window, Phase phase, std::int64_t cached = 0) {
    const Problem problem{
        .seq = 128, .cached = cached, .mask = {.kind = MaskKind::window, .window = window}};
    const Schedule schedule = strategies::by_name("ring", "test").build(problem, plan, phase, {});
    const Program program = schedule.program(Rank(3));
    std::vector<int> targets;
    for (const Op& op : ops_of(program)) {
      if (const auto* exchange = op_if<Exchange>(op.body)) {
        targets.push_back(exchange->to.value);
      }
    }
    return targets;
  };
  CHECK(hops(1, Phase::forward).empty());
  CHECK(hops(17, Phase::forward) == std::vector{4});  // a chunk has 16 tokens
  CHECK(hops(18, Phase::forward) == std::vector{4, 4});
  CHECK(hops(128, Phase::forward).size() == 7);
  // The first rank's first query sees the end of the cache, which the last rank has.
  CHECK(hops(17, Phase::forward, 128) == std::vector{4});
  CHECK(hops(18, Phase::forward, 128) == std::vector{4, 4});
  CHECK(hops(17, Phase::forward, 64) == std::vector{4, 4});  // of which a rank has 8 tokens
  CHECK(hops(17, Phase::forward, 16).size() == 7);
  // Keys and values, gradients behind them, and those home to whose block was here last.
  CHECK(hops(18, Phase::backward) == std::vector{4, 4, 4, 4, 1});
  CHECK(hops(128, Phase::backward).back() == 4);
}

TEST_CASE("whole rows of scores are a wall of memory, states are none") {
  // 128K tokens, 32 heads, 8 ranks: a rank keeps 16K x 128K weights a head, in 16 bits.
  const Problem problem{.seq = 131072, .q_heads = 32, .kv_heads = 32, .head_dim = 128};
  const auto peak = [](const std::string& name, const Problem& p) {
    const Strategy& s = strategies::by_name(name, "test");
    return s.closed_form(p, {.strategy = name, .ring = 8}, Phase::forward, {})
        .peak_buffers.as_double();
  };
  constexpr double gib = 1 << 30;
  CHECK(peak("rsa", problem) > 128 * gib);
  CHECK(peak("ring", problem) < 2 * gib);
  // Twice the sequence: four times the rows of scores, twice anything else.
  Problem longer = problem;
  longer.seq *= 2;
  CHECK(peak("rsa", longer) > 3.9 * peak("rsa", problem));
  Problem linear = problem;
  linear.function = AttentionFunction::linear;
  Problem longer_linear = longer;
  longer_linear.function = AttentionFunction::linear;
  CHECK(peak("lasp-2", longer_linear) < 2 * peak("lasp-2", linear));
  CHECK(peak("lasp-2", linear) < peak("ring", problem));
}

TEST_CASE("gathered states are as many bytes for any sequence") {
  const Strategy& s = strategies::by_name("lasp-2", "test");
  Problem problem{.seq = 65536, .q_heads = 16, .kv_heads = 16, .head_dim = 64};
  problem.function = AttentionFunction::linear;
  const SequencePlan plan{.strategy = "lasp-2", .ring = 4};
  const auto sent = [&](std::int64_t seq) {
    problem.seq = seq;
    const ClosedForm form = s.closed_form(problem, plan, Phase::forward, {});
    REQUIRE(form.comm().size() == 1);
    return form.comm()[0].total;
  };
  // Each of 4 ranks sends its 16 states of 64 x 64 fp32 numbers to 3 others (arXiv:2502.07563).
  CHECK(sent(65536) == Bytes(std::int64_t{4} * 3 * 16 * 64 * 64 * 4));
  CHECK(sent(1 << 20) == sent(65536));
}
