// Legal plans of every strategy compute attention: each allowed (query, key, head) exactly
// once, complete results where they belong, nobody waits for ever.
#include "schedule/coverage.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <limits>

namespace spp {
namespace {

using test::Case;

void check_proofs(std::span<const int> worlds, std::size_t most) {
  for (const int ranks : worlds) {
    for (const Case& c : test::cases(ranks, most)) {
      INFO(c.text());
      const Proof proof = prove(c.build());
      REQUIRE_THAT(proof.counter_example, Catch::Matchers::Equals(""));
      REQUIRE(proof.proven);
    }
  }
}

void check_with_and_without_sections(std::vector<Case> (*cases_of)(int ranks, std::size_t most),
                                     std::span<const int> worlds, std::size_t most) {
  for (const int ranks : worlds) {
    for (Case c : cases_of(ranks, most)) {
      for (const bool sections : {true, false}) {
        c.options.sections = sections;
        INFO(c.text());
        REQUIRE_THAT(prove(c.build()).counter_example, Catch::Matchers::Equals(""));
      }
    }
  }
}

TEST_CASE("legal plans are proven") {
  check_proofs(test::small_worlds, 400);
  check_proofs(test::middle_worlds, 100);
  check_proofs(test::large_worlds, 12);
}

TEST_CASE("zigzag plans are proven for stacks that compute whole blocks") {
  for (const int ranks : test::small_worlds) {
    for (Case c : test::cases(ranks, 60)) {
      if (c.plan.layout == Layout::zigzag) {
        c.options.sections = false;
        INFO(c.text());
        REQUIRE_THAT(prove(c.build()).counter_example, Catch::Matchers::Equals(""));
      }
    }
  }
}

TEST_CASE("legal plans are proven for packed documents") {
  for (const int ranks : test::small_worlds) {
    for (Case c : test::cases(ranks, 60)) {
      if (c.problem.mask.kind != MaskKind::window) {
        const std::int64_t seq = c.problem.seq;
        c.problem.mask.document_ends = {seq / 3, seq / 3 + 1, seq};
        if (!c.legal()) {
          continue;
        }
        INFO(c.text());
        REQUIRE_THAT(prove(c.build()).counter_example, Catch::Matchers::Equals(""));
      }
    }
  }
}

TEST_CASE("plans that are made for packed documents are proven for them") {
  check_with_and_without_sections(test::document_cases, test::small_worlds, 60);
  check_with_and_without_sections(test::document_cases, test::middle_worlds, 40);
  check_with_and_without_sections(test::document_cases, test::large_worlds, 8);
}

TEST_CASE("plans behind cached keys are proven") {
  check_with_and_without_sections(test::cached_cases, test::small_worlds, 40);
  check_with_and_without_sections(test::cached_cases, test::middle_worlds, 20);
  check_with_and_without_sections(test::cached_cases, test::large_worlds, 4);
}

TEST_CASE("all legal plans of small worlds are proven", "[.][exhaustive]") {
  check_proofs(test::small_worlds, std::numeric_limits<std::size_t>::max());
}

TEST_CASE("every strategy has legal plans in some world") {
  for (const Strategy* strategy : strategies::all()) {
    const auto has_plans = [&](const Problem& problem) {
      const auto plans = test::legal_plans(16, problem);
      return std::ranges::find(plans, strategy->name, &SequencePlan::strategy) != plans.end();
    };
    INFO(strategy->name);
    CHECK(std::ranges::any_of(test::problems(16), has_plans));
  }
}

}  // namespace
}  // namespace spp
