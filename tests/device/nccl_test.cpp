// Every strategy over NCCL: on a GPU with as many ranks as there are GPUs, and on the host
// (host_nccl.cpp), where there are as many as we like.
#include "runtime/device/cuda/nccl_library.hpp"
#include "tests/conformance/layer_trials.hpp"
#include "tests/device/device.hpp"
#include "tests/device/known_cases.hpp"
#include "tests/support/all_reduce.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using namespace spp::test;

TEST_CASE("every strategy computes over NCCL what one device computes") {
  SPP_NEED_DEVICE();
  if (const std::string why_not = runtime::device::why_not_nccl(); !why_not.empty()) {
    SPP_SKIP(why_not);
  }
  for (const int ranks : {1, 2, 4, 8}) {
    if (ranks > runtime::cuda::device_count()) {
      WARN("left out: " << ranks << " ranks, since there are " << runtime::cuda::device_count()
                        << " GPUs");
      continue;
    }
    for (const Case& c : known(cases(ranks, 6))) {
      if (c.phase == Phase::backward) {
        continue;
      }
      INFO(ranks << " ranks, " << c.text());
      runtime::TrialRequest request = trial_of(c);
      const auto engines = runtime::device::make_engines(
          {.communication = runtime::device::Communication::nccl, .kernels = "reference"}, ranks,
          *request.transport);
      request.engines = engines.get();
      CHECK(failures(runtime::run_trial(request)) == "");
    }
  }
}

TEST_CASE("whole steps over NCCL leave what one device leaves") {
  SPP_NEED_DEVICE();
  if (const std::string why_not = runtime::device::why_not_nccl(); !why_not.empty()) {
    SPP_SKIP(why_not);
  }
  for (const int tensor : {1, 2}) {
    for (const int sequence : {1, 2}) {
      for (const StepCase& c : step_cases(sequence, tensor, 1)) {
        const int ranks = c.plan().ranks();
        if (!is_known_to_devices(c.layer.attention.plan) || ranks > runtime::cuda::device_count()) {
          continue;
        }
        INFO(c.text());
        runtime::TrialRequest request = trial_of(c);
        const auto engines = runtime::device::make_engines(
            {.communication = runtime::device::Communication::nccl, .kernels = "reference"}, ranks,
            *request.transport);
        request.engines = engines.get();
        CHECK(failures(runtime::run_trial(request)) == "");
      }
    }
  }
}

TEST_CASE("an all_reduce over NCCL gives every member the sum over its group") {
  SPP_NEED_DEVICE();
  if (const std::string why_not = runtime::device::why_not_nccl(); !why_not.empty()) {
    SPP_SKIP(why_not);
  }
  for (const int ranks : {1, 2, 3, 4, 8}) {
    if (ranks <= runtime::cuda::device_count()) {
      const auto engines = runtime::device::make_engines(
          {.communication = runtime::device::Communication::nccl, .kernels = "reference"}, ranks,
          runtime::transports::by_name("inproc", "test"));
      CHECK(all_reduce_failure(*engines, ranks, DType::bf16) == "");
    }
  }
}
