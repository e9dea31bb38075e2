// Calibration of GPUs whose ranks share one, and of links that are emulated between them.
#include "base/median.hpp"
#include "schedule/row_function.hpp"
#include "tests/device/device.hpp"
#include "tests/support/calibrations.hpp"

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

constexpr int ranks = 4;

runtime::CalibrationRequest on_one_gpu() {
  CalibrationRequest request = small_calibration(ranks);
  request.ranks_per_device = ranks;
  return request;
}

std::unique_ptr<device::DeviceEngines> engines_for(
    const CalibrationRequest& request, std::optional<EmulatedNetwork> network = std::nullopt) {
  return device::make_engines(
      {.kernels = "reference", .ranks_per_gpu = request.ranks, .network = network}, request.ranks,
      *request.transport);
}

}  // namespace

TEST_CASE("a GPU that ranks share is calibrated, and its memory is free again") {
  SPP_NEED_DEVICE();
  CalibrationRequest request = on_one_gpu();
  const auto engines = engines_for(request);
  request.engines = engines.get();
  const Bytes free = cuda::memory_free(0);
  const Calibration calibration = calibrate(request);
  check_samples(calibration);
  for (const std::string& suite : request.suites) {
    CHECK_FALSE(calibration.series.at(suite).empty());
  }
  for (const RowFunction& function : row_functions()) {
    INFO(to_string(function));
    CHECK(std::ranges::count(calibration.series.at("layer"), to_string(function), &Series::what) ==
          1);
  }
  if (emulated()) {
    CHECK(cuda::memory_free(0) == free);
  }
}

TEST_CASE("emulated links of two nodes take at least as long as they say") {
  SPP_NEED_DEVICE();
  CalibrationRequest request = on_one_gpu();
  request.suites = {"links", "collectives"};
  request.ranks_per_node = 2;
  request.largest_message = 64;
  constexpr double intra = 0.1e-3;
  constexpr double inter = 0.2e-3;
  const auto engines = engines_for(
      request, EmulatedNetwork{.intra = {.alpha = Seconds(intra), .beta = Bandwidth(1e12)},
                               .inter = {.alpha = Seconds(inter), .beta = Bandwidth(1e12)},
                               .ranks_per_node = 2});
  request.engines = engines.get();
  const Calibration calibration = calibrate(request);
  check_samples(calibration);
  CHECK(calibration.hosts.nodes() == 2);
  for (const auto& [suite, list] : calibration.series) {
    for (const Series& s : list) {
      INFO(suite << " " << s.what << " " << s.scope << " " << s.ranks);
      CHECK(median_of(s.seconds) >= 0.95 * (s.scope == "intra" ? intra : inter));
    }
  }
}

TEST_CASE("a report says what a profile needs to know of a GPU") {
  SPP_NEED_DEVICE();
  const auto engines = engines_for(on_one_gpu());
  const device::DeviceReport report = engines->report();
  CHECK(report.compute_capability >= 70);
  CHECK(report.memory.value() > 0);
  CHECK(report.l2.value() > 0);
  CHECK(report.all_multiprocessors >= report.multiprocessors);
  CHECK(report.split == (report.all_multiprocessors > report.multiprocessors));
  CHECK(report.nccl.empty());
  const auto versions = library_versions();
  CHECK(std::ranges::find(versions, "cuda", &std::pair<std::string, std::string>::first) !=
        versions.end());
}
