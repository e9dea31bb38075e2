// From a calibration to a profile (machine/profile.hpp), with all raw samples.
#pragma once

#include "base/json.hpp"
#include "base/numbers.hpp"
#include "machine/machine.hpp"
#include "samples/calibration.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spp::calibrate {

struct ProfileInput {
  std::string name;
  std::string kernels;
  std::string comm;
  DType dtype = DType::fp32;
  Calibration calibration;
  std::string cpu;                                             // as its kernel names it
  std::vector<std::pair<std::string, std::string>> libraries;  // name and version; of cores
  std::optional<DeviceReport> device;                          // none: ranks are cores
  const Catalog* catalog = nullptr;                            // what is known of GPUs; of them
  std::string topology;        // GPUs: which machine this is; "": not said
  std::string emulated_links;  // as --emulate-link had them; "": none
};
/// "sp-plan/profile". `environment` is of this process.
Json profile_document(const ProfileInput& input);

/// The machine of such a profile: of CPU cores (cores.cpp), of GPUs or parts of one (gpus.cpp).
Json machine_of_cores(const ProfileInput& input, const Numbers& numbers);
Json machine_of_gpus(const ProfileInput& input, const Numbers& numbers);

/// Whether a machine of these GPUs can be described after the calibration; asked before it.
/// InputError("--topology").
void expect_describable(const DeviceReport& device, int ranks, const std::string& topology,
                        const Catalog& catalog);

/// Letters of the longest name of `gpu` in topologies/ that the driver's name for one contains.
std::size_t name_in(const GpuSpec& gpu, std::string_view driver_name);

}  // namespace spp::calibrate
