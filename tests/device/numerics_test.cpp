// Every strategy, run on ranks that share one GPU: its numbers are those of single-device attention
// in fp64; and the communicator counts the bytes that the schedule says (the executor throws
// otherwise).
#include "runtime/device/device.hpp"
#include "tests/conformance/layer_trials.hpp"
#include "tests/device/device.hpp"
#include "tests/device/known_cases.hpp"
#include "tests/support/all_reduce.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <iterator>
#include <set>

using namespace spp;
using namespace spp::test;

namespace {

using runtime::device::DeviceOptions;

template <class Wanted>
runtime::TrialResult run(const Wanted& c, const DeviceOptions& options, int iterations = 1) {
  runtime::TrialRequest request = trial_of(c);
  const auto engines =
      runtime::device::make_engines(options, request.forward->mesh.size(), *request.transport);
  request.engines = engines.get();
  request.iterations = iterations;
  return runtime::run_trial(request);
}

constexpr std::size_t most_cases = 6;  // of each strategy

}  // namespace

TEST_CASE("every strategy computes on a device what one device computes") {
  SPP_NEED_DEVICE();
  for (const std::string& kernels : runtime::device::kernel_names()) {
    std::set<std::string> reasons;
    for (const int ranks : {1, 2, 4, 8}) {
      std::vector<Case> all = known(cases(ranks, most_cases));
      std::ranges::move(known(cached_cases(ranks, 2)), std::back_inserter(all));
      for (const Case& c : all) {
        if (c.phase == Phase::backward) {
          continue;  // both phases run together
        }
        INFO(kernels << ", " << ranks << " ranks, " << c.text());
        const DeviceOptions options{.kernels = kernels};
        std::vector<std::string> none;
        try {
          (void)runtime::device::choose_kernels(options, c.problem, none);
        } catch (const InputError& e) {
          reasons.insert(e.what());
          continue;
        }
        const runtime::TrialResult result = run(c, options);
        REQUIRE(result.complete);
        REQUIRE(result.refused == "");
        CHECK(failures(result) == "");
        REQUIRE(result.forward->timeline.events.size() > 0);
      }
    }
    for (const std::string& reason : reasons) {
      WARN("left out: " << reason);
    }
  }
}

TEST_CASE("group-casts compute on a device what one device computes") {
  SPP_NEED_DEVICE();
  for (const int ranks : {2, 4, 8}) {
    for (const Case& c : cases(ranks, most_cases)) {
      if (c.strategy().for_sparse_masks && c.phase == Phase::forward) {  // both run together
        INFO(ranks << " ranks, " << c.text());
        const runtime::TrialResult result = run(c, {.kernels = "reference"});
        REQUIRE(result.complete);
        CHECK(failures(result) == "");
      }
    }
  }
}

TEST_CASE("packed documents see only themselves on a device, too") {
  SPP_NEED_DEVICE();
  for (Case c : known(cases(4, most_cases))) {
    const std::int64_t seq = c.problem.seq;
    c.problem.mask.document_ends = {seq / 4, seq / 4 + 1, seq - 3, seq};
    if (c.phase == Phase::backward || c.problem.mask.kind == MaskKind::window || !c.legal()) {
      continue;
    }
    INFO(c.text());
    CHECK(failures(run(c, {.kernels = "reference"})) == "");
  }
}

TEST_CASE("documents that are dealt out in pieces see only themselves on a device, too") {
  SPP_NEED_DEVICE();
  for (const int ranks : {3, 4}) {
    for (const Case& c : known(document_cases(ranks, most_cases))) {
      if (c.phase == Phase::forward) {
        INFO(c.text());
        CHECK(failures(run(c, {.kernels = "reference"})) == "");
      }
    }
  }
}

TEST_CASE("whole layers compute on a device what one device computes") {
  SPP_NEED_DEVICE();
  int count = 0;
  OneIn some(halving);
  for (const std::string& kernels : runtime::device::kernel_names()) {
    for (const int tensor : {1, 2}) {
      for (const int sequence : {1, 2, 4}) {
        for (const LayerCase& c : layer_cases(sequence, tensor, 2)) {
          if (!is_known_to_devices(c.attention.plan) || !some.takes()) {
            continue;
          }
          const DeviceOptions options{.kernels = kernels};
          std::vector<std::string> none;
          try {
            (void)runtime::device::choose_kernels(options, c.attention.problem, none);
          } catch (const InputError&) {
            continue;  // of types and heads that these kernels do not have
          }
          INFO(kernels << ", " << c.text());
          const runtime::TrialResult result = run(c, options);
          REQUIRE(result.complete);
          REQUIRE(result.refused == "");
          CHECK(failures(result) == "");
          ++count;
        }
      }
    }
  }
  CHECK(count > 20 / halving);
}

TEST_CASE("whole layers behind cached keys compute on a device what one device computes") {
  SPP_NEED_DEVICE();
  OneIn some(3 * halving);
  for (const LayerCase& c : layers_behind_cache()) {
    if (some.takes()) {
      INFO(c.text());
      CHECK(failures(run(c, {.kernels = "reference"})) == "");
    }
  }
}

// Three iterations each start from what the one before left; the check is of one from the inputs.
TEST_CASE("whole steps leave on a device what one device leaves") {
  SPP_NEED_DEVICE();
  int count = 0;
  OneIn some(3 * halving);
  for (const int tensor : {1, 2}) {
    for (const int sequence : {1, 2, 4}) {
      for (const StepCase& c : step_cases(sequence, tensor, 1)) {
        if (!is_known_to_devices(c.layer.attention.plan) || !some.takes()) {
          continue;
        }
        INFO(c.text());
        const runtime::TrialResult result = run(c, {.kernels = "reference"}, 3);
        REQUIRE(result.complete);
        REQUIRE(result.refused == "");
        CHECK(failures(result) == "");
        ++count;
      }
    }
  }
  CHECK(count > 10 / halving);
}

TEST_CASE("steps with experts leave on a device what one device leaves") {
  SPP_NEED_DEVICE();
  OneIn half(2);
  for (const StepCase& c : expert_cases()) {
    if (!half.takes()) {
      continue;
    }
    INFO(c.text());
    const runtime::TrialResult result = run(c, {.kernels = "reference"}, 2);
    REQUIRE(result.complete);
    REQUIRE(result.refused == "");
    CHECK(failures(result) == "");
  }
}

TEST_CASE("steps with sinks leave on a device what one device leaves") {
  SPP_NEED_DEVICE();
  OneIn half(2);
  for (const StepCase& c : sink_cases()) {
    if (!is_known_to_devices(c.layer.attention.plan) || !half.takes()) {
      continue;
    }
    INFO(c.text());
    const runtime::TrialResult result = run(c, {.kernels = "reference"}, 2);
    REQUIRE(result.complete);
    REQUIRE(result.refused == "");
    CHECK(failures(result) == "");
  }
}

TEST_CASE("two runs on a device give the same errors to the last bit") {
  SPP_NEED_DEVICE();
  for (const Case& c : known(cases(4, 2))) {
    if (c.phase == Phase::backward) {
      continue;
    }
    INFO(c.text());
    const auto first = run(c, {.kernels = "reference"});
    const auto second = run(c, {.kernels = "reference"}, 3);
    for (const auto& phase : {&runtime::TrialResult::forward, &runtime::TrialResult::backward}) {
      REQUIRE((first.*phase).has_value() == (second.*phase).has_value());
      if (!(first.*phase)) {
        continue;
      }
      const auto& a = (first.*phase)->check->tensors;
      const auto& b = (second.*phase)->check->tensors;
      REQUIRE(a.size() == b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        CHECK(a[i].error == b[i].error);
        CHECK(a[i].worst == b[i].worst);
      }
    }
  }
}

TEST_CASE("emulated links hold transfers up for as long as they would have taken") {
  SPP_NEED_DEVICE();
  for (const Case& c : known(cases(4, 1))) {
    if (c.phase == Phase::backward) {
      continue;
    }
    INFO(c.text());
    constexpr double alpha = 2e-3;
    const runtime::EmulatedNetwork network{
        .intra = {.alpha = Seconds(alpha), .beta = Bandwidth(1e12)},
        .inter = {},
        .ranks_per_node = 4};
    const runtime::TrialResult result = run(c, {.kernels = "reference", .network = network});
    CHECK(failures(result) == "");
    for (const TimelineEvent& e : result.forward->timeline.events) {
      const std::string_view kind = to_string(e.kind);
      if (kind == "exchange" && e.bytes > 0) {
        CHECK((e.end - e.begin).count() >= 0.95 * alpha);
      }
    }
  }
}

TEST_CASE("a timeline is in order and within the time of the run") {
  SPP_NEED_DEVICE();
  const Case c = known(cases(4, 1)).front();
  const runtime::TrialResult result = run(c, {.kernels = "reference"});
  const Seconds elapsed = result.forward->samples.front();
  for (const TimelineEvent& e : result.forward->timeline.events) {
    CHECK(e.begin.count() >= 0);
    CHECK(e.begin <= e.end);
    CHECK(e.end.count() <= elapsed.count() + 1e-6);
  }
}

TEST_CASE("an all_reduce on devices gives every member the sum over its group") {
  SPP_NEED_DEVICE();
  for (const int ranks : {1, 2, 3, 4, 8}) {
    const auto engines = runtime::device::make_engines(
        {.kernels = "reference"}, ranks, runtime::transports::by_name("inproc", "test"));
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      CHECK(all_reduce_failure(*engines, ranks, dtype) == "");
    }
  }
}
