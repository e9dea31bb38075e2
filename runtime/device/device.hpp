// Runs on GPUs, seen from outside: what is compiled in, what this machine can, and the engines of a
// trial. No CUDA header is needed to include this, and no GPU, driver or NCCL to link it: without
// them the answers say what is missing.
#pragma once

#include "runtime/comm/transport.hpp"
#include "runtime/device/network.hpp"
#include "runtime/engine.hpp"
#include "samples/calibration.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp::runtime::device {

enum class Communication : std::uint8_t {
  inproc,  // ranks are threads, which may share a GPU
  nccl     // a GPU for every rank
};

struct DeviceOptions {
  Communication communication = Communication::inproc;
  std::string kernels;                     // of kernel_names(); "": the fastest that can run
  int ranks_per_gpu = 0;                   // inproc; 0: as few as the GPUs here allow
  std::optional<EmulatedNetwork> network;  // inproc: emulated links between ranks
};

/// Words of back ends that are compiled in: "cuda", "nccl", "cudnn".
std::vector<std::string> compiled();
/// "" if there is a GPU that we can use, else why not.
std::string why_not_cuda();
/// "" if NCCL can be loaded, else why not. Asks nothing about GPUs.
std::string why_not_nccl();
/// GPUs that this process sees; 0 where there are none, or no CUDA.
int gpu_count();
/// Attention kernels for GPUs, the fastest first.
std::vector<std::string> kernel_names();
/// The kernels that `options` mean for this problem. InputError("--kernels") if they do not exist
/// or cannot run it; with "" those that cannot are passed over, each with a line in `passed_over`.
std::string choose_kernels(const DeviceOptions& options, const Problem& problem,
                           std::vector<std::string>& passed_over);

using spp::DeviceReport;  // samples/calibration.hpp

class DeviceEngines : public EngineSource {
 public:
  [[nodiscard]] virtual DeviceReport report() const = 0;
};

/// For `ranks` ranks over `transport`, the control plane: "inproc" runs them as threads of this
/// process. InputError if they and the GPUs here do not go together; BackendError without CUDA.
std::unique_ptr<DeviceEngines> make_engines(const DeviceOptions& options, int ranks,
                                            const TransportBackend& transport);

}  // namespace spp::runtime::device
