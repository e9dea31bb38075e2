// Runs on GPUs, seen from outside: what is compiled in, what this machine can, and the engines of a
// trial. No CUDA header is needed to include this, and no GPU, driver or NCCL to link it: without
// them the answers say what is missing.
#pragma once

#include "runtime/comm/transport.hpp"
#include "runtime/device/network.hpp"
#include "runtime/engine.hpp"

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

/// How a run was spread over GPUs, as seen by this process.
struct DeviceReport {
  std::string gpu;                          // "NVIDIA H100 80GB HBM3"
  int gpus = 0;                             // that this process uses
  int ranks_per_gpu = 1;                    // most
  int multiprocessors = 0;                  // that a rank has; all of a GPU, or its share
  int all_multiprocessors = 0;              // of a GPU
  bool split = false;                       // each rank has SMs of its own (green contexts)
  int compute_capability = 0;               // 90 is 9.0
  Bytes memory{}, l2{};                     // of a GPU
  int driver = 0, runtime = 0;              // CUDA versions, 13000 is 13.0
  std::string nccl, cudnn;                  // versions, "2.28.9"; "": not used, not compiled in
  int clock_khz = 0, memory_clock_khz = 0;  // highest; 0: not known
  Seconds timed_event{};                    // what a timed event costs its stream; two for every op
  /// What cuDNN's plans were made for: "16 SMs", "the whole GPU"; "": other kernels, nothing ran.
  std::string attention_made_for;
  /// What cuDNN said when it did not take streams of the ranks' shares, so that attention runs on
  /// all SMs; "": it takes them.
  std::string attention_refused;
  int attention_plans = 0;        // of cuDNN, that this process has compiled
  Seconds compiling_attention{};  // what they took
  /// What a rank was taken to need beside the buffers of its programs before anything was
  /// allocated: estimates (runtime/device/cuda/workspaces.hpp).
  Bytes attention_workspaces{}, communication_workspaces{};
  /// Between ranks of one process: "beside kernels", or "plain" where the driver cannot; "": none.
  std::string copies;
};

class DeviceEngines : public EngineSource {
 public:
  [[nodiscard]] virtual DeviceReport report() const = 0;
};

/// For `ranks` ranks over `transport`, the control plane: "inproc" runs them as threads of this
/// process. InputError if they and the GPUs here do not go together; BackendError without CUDA.
std::unique_ptr<DeviceEngines> make_engines(const DeviceOptions& options, int ranks,
                                            const TransportBackend& transport);

}  // namespace spp::runtime::device
