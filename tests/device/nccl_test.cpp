// Every strategy over NCCL: on a GPU with as many ranks as there are GPUs, and on the host
// (host_nccl.cpp), where there are as many as we like.
#include "runtime/device/cuda/nccl_library.hpp"
#include "tests/conformance/trials.hpp"
#include "tests/device/device.hpp"
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
    for (const Case& c : cases(ranks, 6)) {
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
