// Every strategy, run for real on threads: its numbers are those of single-device attention in
// fp64, forward and backward, for all masks, head counts, layouts and orders that the cases vary;
// and the transport counts the bytes that the schedule says (execute() throws otherwise).
#include "tests/conformance/trials.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <limits>
#include <set>

using namespace spp;
using namespace spp::test;

namespace {

runtime::TrialResult run(const Case& c, const runtime::AttentionBackend& kernels) {
  runtime::TrialRequest request = trial_of(c);
  request.kernels = &kernels;
  return runtime::run_trial(request);
}

/// At most so many cases of each strategy and number of ranks, by kernels.
void expect_right(std::size_t of_reference, std::size_t of_others) {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    std::set<std::string> reasons;
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      for (const Case& c : cases(ranks, kernels->name == "reference" ? of_reference : of_others)) {
        if (const std::string why_not = kernels->why_not(c.problem.dtype); !why_not.empty()) {
          reasons.insert(why_not);
          continue;
        }
        if (c.phase == Phase::backward) {
          continue;  // both phases run together
        }
        INFO(kernels->name << ", " << ranks << " ranks, " << c.text());
        const runtime::TrialResult result = run(c, *kernels);
        REQUIRE(result.complete);
        CHECK(failures(result) == "");
        REQUIRE(result.forward->timeline.events.size() > 0);
      }
    }
    for (const std::string& reason : reasons) {
      WARN(kernels->name << " was left out for a type: " << reason);
    }
  }
}

}  // namespace

TEST_CASE("every strategy computes what one device computes") { expect_right(10, 6); }

TEST_CASE("values may be narrower or wider than keys, whatever the strategy") {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    std::set<std::string> met;  // strategies, with either
    for (const int ranks : {4, 7, 8}) {
      for (const Case& c : cases(ranks, 200 * thinning)) {
        const bool narrower = c.problem.v_dim() < c.problem.head_dim;
        if (c.problem.v_dim() == c.problem.head_dim || c.phase == Phase::backward ||
            !kernels->why_not(c.problem.dtype).empty() ||
            !met.insert(fmt::format("{} {}", c.plan.strategy, narrower)).second) {
          continue;
        }
        INFO(kernels->name << ", " << c.text());
        CHECK(failures(run(c, *kernels)) == "");
      }
    }
    const auto split_softmax =
        std::ranges::count(strategies::all(), AttentionFunction::softmax, &Strategy::function);
    CHECK(std::ssize(met) == 2 * split_softmax);
  }
}

// All there are, some 7,000 with either kernels: five minutes on two cores.
TEST_CASE("every legal plan computes what one device computes", "[.all]") {
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  expect_right(all, all);
}

TEST_CASE("packed documents see only themselves") {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    for (Case c : cases(4, 8)) {
      const std::int64_t seq = c.problem.seq;
      c.problem.mask.document_ends = {seq / 4, seq / 4 + 1, seq - 3, seq};
      if (c.phase == Phase::backward || c.problem.mask.kind == MaskKind::window ||
          !kernels->why_not(c.problem.dtype).empty() || !c.legal()) {
        continue;
      }
      INFO(kernels->name << ", " << c.text());
      CHECK(failures(run(c, *kernels)) == "");
    }
  }
}

TEST_CASE("packed documents that are dealt out in pieces see only themselves") {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    for (const int ranks : {2, 3, 4, 5, 6, 7, 8}) {
      for (const Case& c : document_cases(ranks, 3)) {
        if (c.phase == Phase::backward || !kernels->why_not(c.problem.dtype).empty()) {
          continue;
        }
        INFO(kernels->name << ", " << c.text());
        const runtime::TrialResult result = run(c, *kernels);
        REQUIRE(result.complete);
        CHECK(failures(result) == "");
      }
    }
  }
}

TEST_CASE("keys that are cached are met like the sequence's own") {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      for (const Case& c : cached_cases(ranks, 4)) {
        if (!kernels->why_not(c.problem.dtype).empty()) {
          continue;
        }
        INFO(kernels->name << ", " << ranks << " ranks, " << c.text());
        const runtime::TrialResult result = run(c, *kernels);
        REQUIRE(result.complete);
        CHECK(failures(result) == "");
      }
    }
  }
}

TEST_CASE("a wrong number is found") {
  // The check itself: an output that one rank spoils must not pass.
  const std::vector<Case> some = cases(2, 64);  // a Debug build takes an eighth of them
  const auto at = std::find_if(some.begin(), some.end(),
                               [](const Case& c) { return c.problem.dtype == DType::fp32; });
  REQUIRE(at != some.end());
  struct Spoiled : runtime::AttentionKernels {
    std::unique_ptr<runtime::AttentionKernels> right =
        runtime::attention_kernels::by_name("reference", "test").make();
    void forward(const runtime::AttentionForwardArgs& args, const runtime::Poll& poll) override {
      right->forward(args, poll);
      args.out.data[args.out.bytes() - 1] ^= std::byte{0x3};  // exponent bits of the last number
    }
    void backward(const runtime::AttentionBackwardArgs& args, const runtime::Poll& poll) override {
      right->backward(args, poll);
    }
    void gemm(const runtime::GemmArgs& args, const runtime::Poll& poll) override {
      right->gemm(args, poll);
    }
  };
  const runtime::AttentionBackend spoiled{
      .name = "spoiled",
      .title = "",
      .why_not = [](DType) { return std::string(); },
      .make = []() -> std::unique_ptr<runtime::AttentionKernels> {
        return std::make_unique<Spoiled>();
      }};
  INFO(at->text());
  CHECK(failures(run(*at, spoiled)) != "");
}
