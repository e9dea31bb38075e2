// Whole steps, run for real on threads: losses and updated parameters are what one device computes
// in fp64.
#include "tests/conformance/layer_trials.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using namespace spp::test;

namespace {

void check(const StepCase& c, const runtime::AttentionBackend& kernels) {
  INFO(kernels.name << ", " << c.text());
  runtime::TrialRequest request = trial_of(c);
  request.kernels = &kernels;
  const runtime::TrialResult result = run_trial(request);
  REQUIRE(result.complete);
  CHECK(failures(result) == "");
}

}  // namespace

TEST_CASE("steps with experts leave what one device leaves") {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    int number = 0;
    for (StepCase c : expert_cases()) {
      if (++number % 3 == 0 && c.layers() == 2) {
        c.layer.attention.problem.dtype = DType::bf16;
      }
      if (!kernels->why_not(c.layer.attention.problem.dtype).empty()) {
        continue;
      }
      check(c, *kernels);
    }
  }
}

TEST_CASE("steps whose shards have copies leave what one device leaves") {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    for (const StepCase& c : hybrid_cases()) {
      if (kernels->why_not(c.layer.attention.problem.dtype).empty()) {
        check(c, *kernels);
      }
    }
  }
}

TEST_CASE("steps with sinks leave what one device leaves") {
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    int number = 0;
    for (StepCase c : sink_cases()) {
      if (++number % 3 == 0) {
        c.layer.attention.problem.dtype = DType::bf16;
      }
      if (kernels->why_not(c.layer.attention.problem.dtype).empty()) {
        check(c, *kernels);
      }
    }
  }
}

TEST_CASE("steps leave what one device leaves") {
  int count = 0;
  int normed = 0;
  int tied = 0;
  OneIn some(3 * halving);
  for (const runtime::AttentionBackend* kernels : runtime::attention_kernels::all()) {
    for (const int tensor : {1, 2, 4}) {
      for (const int sequence : {1, 2, 3}) {
        for (const StepCase& c :
             step_cases(sequence, tensor, kernels->name == "reference" ? 2 : 1)) {
          if (!some.takes() || !kernels->why_not(c.layer.attention.problem.dtype).empty()) {
            continue;
          }
          check(c, *kernels);
          ++count;
          normed += c.layer.head_norms ? 1 : 0;
          tied += c.tied && c.pipeline.stages > 1 ? 1 : 0;
        }
      }
    }
  }
  CHECK(count > 10 / halving);
  CHECK(normed > 2);
  CHECK(tied > 1);  // in pipelines
}
