#include "parallel/attention/plan.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"

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
