// Calibration over NCCL.
#include "runtime/device/cuda/nccl_library.hpp"
#include "tests/device/device.hpp"
#include "tests/support/calibrations.hpp"

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

TEST_CASE("GPUs that NCCL connects are calibrated") {
  SPP_NEED_DEVICE();
  if (const std::string why_not = device::why_not_nccl(); !why_not.empty()) {
    SPP_SKIP(why_not);
  }
  CalibrationRequest request = small_calibration(std::min(4, cuda::device_count()));
  const auto engines =
      device::make_engines({.communication = device::Communication::nccl, .kernels = "reference"},
                           request.ranks, *request.transport);
  request.engines = engines.get();
  const Bytes free = cuda::memory_free(0);
  const Calibration calibration = calibrate(request);
  check_samples(calibration);
  CHECK(calibration.series.at("links").empty() == (request.ranks == 1));
  CHECK_FALSE(engines->report().nccl.empty());
  if (emulated()) {
    CHECK(cuda::memory_free(0) == free);
  }
}
