// Every strategy, run for real on threads: its numbers are those of single-device attention in
// fp64, forward and backward, for all masks, head counts, layouts and orders that the cases vary;
// and the transport counts the bytes that the schedule says (execute() throws otherwise).
#include "runtime/trial.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

#include <set>

using namespace spp;
using namespace spp::test;

namespace {

runtime::TrialResult run(const Case& c, const runtime::AttentionBackend& kernels) {
  const Strategy& strategy = c.strategy();
  runtime::TrialRequest request;
  request.forward = strategy.build(c.problem, c.plan, Phase::forward, c.options);
  request.backward = strategy.build(c.problem, c.plan, Phase::backward, c.options);
  request.transport = &runtime::transports::by_name("inproc", "test");
  request.kernels = &kernels;
  request.warmup = 0;
  request.iterations = 1;
  request.execution.timeout = Seconds(20);
  return runtime::run_trial(request);
}

std::string failures(const runtime::TrialResult& result) {
  std::string text;
  for (const auto& phase : {result.forward, result.backward}) {
    for (const runtime::TensorCheck& t : phase->check->tensors) {
      if (!t.passed()) {
        text += fmt::format("{}: {:.3g} > {:.3g} ({}); ", t.tensor, t.error, t.limit, t.worst);
      }
    }
  }
  return text;
}

}  // namespace

TEST_CASE("every strategy computes what one device computes") {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    std::set<std::string> reasons;
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      for (const Case& c : cases(ranks, kernels->name == "reference" ? 10 : 6)) {
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

TEST_CASE("packed documents see only themselves") {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    for (Case c : cases(4, 8)) {
      if (c.phase == Phase::backward || c.problem.mask.kind == MaskKind::window ||
          !kernels->why_not(c.problem.dtype).empty()) {
        continue;
      }
      const std::int64_t seq = c.problem.seq;
      c.problem.mask.document_ends = {seq / 4, seq / 4 + 1, seq - 3, seq};
      INFO(kernels->name << ", " << c.text());
      CHECK(failures(run(c, *kernels)) == "");
    }
  }
}

TEST_CASE("a wrong number is found") {
  // The check itself: an output that one rank spoils must not pass.
  const std::vector<Case> some = cases(2, 8);
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
