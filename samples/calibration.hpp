// All that one calibration timed, and on what.
#pragma once

#include "base/units.hpp"
#include "samples/series.hpp"

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// Hosts with equally many ranks each.
struct Hosts {
  std::vector<std::string> names;  // by node; "host:1" if nodes are emulated
  int per_node = 1;                // ranks of a node, neighbours
  std::int64_t cores = 1;          // that the ranks of these neighbouring nodes may use:
  int nodes_on_cores = 1;          // several on one machine, unless each has cores of its own
  Bytes memory{};                  // of a node
  [[nodiscard]] int nodes() const { return static_cast<int>(names.size()); }
};

/// How a run was spread over GPUs, as seen by this process.
struct DeviceReport {
  std::string gpu;                          // "NVIDIA H100 80GB HBM3"
  int gpus = 0;                             // of all ranks
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

/// 13000 is "13.0".
std::string cuda_version(int number);

inline constexpr std::array<std::string_view, 5> calibration_suites{
    "links", "collectives", "attention", "elementwise", "layer"};

struct Calibration {
  bool complete = false;  // on the process of rank 0; others know nothing
  Hosts hosts;
  std::map<std::string, std::vector<Series>> series;  // by suite
  std::vector<std::string> warnings;                  // of how the ranks found each other
};

/// All series of a calibration, suite after suite, as they were measured.
std::vector<Series> raw_series(const Calibration& calibration);
/// At one pace (pace.hpp): what constants are fitted to.
std::vector<Series> all_series(const Calibration& calibration);

}  // namespace spp
