// A calibration: the suites, one after the other, on all ranks of a transport.
#pragma once

#include "runtime/calibrate/hosts.hpp"
#include "runtime/calibrate/suites.hpp"
#include "runtime/engine.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace spp::runtime {

struct CalibrationRequest {
  const TransportBackend* transport = nullptr;  // with `engines`: the control plane only
  const AttentionBackend* kernels = nullptr;    // of the host; not used with `engines`
  EngineSource* engines = nullptr;              // null: the host is measured
  int ranks = 1;
  int ranks_per_node = 0;     // with `engines`; 0: nodes are hosts, else they are emulated
  int ranks_per_device = 1;   // with `engines`: neighbours that share a device
  bool split_devices = true;  // into parts for each; else their kernels take turns on all of it
  Problem shape;              // heads, head_dim and dtype of elementwise kernels
  std::vector<AttentionBlock> blocks;
  std::vector<std::string> suites;
  /// On rank 0, when all ranks have met: those of the suites that are to be measured now, others
  /// were by an earlier start. `places`: where each rank runs (describe_places). Not set: all.
  std::function<std::vector<std::string>(const std::vector<std::string>& places)> remaining;
  Seconds budget{60};
  Seconds timeout{120};                     // of silence: comm/deadlines.hpp
  std::int64_t largest_message = 16 << 20;  // bytes; with `engines` of operands of kernels, too
  std::int64_t cold = 128 << 20;  // with `engines`: bytes that push all else out of their caches
  /// On rank 0: a suite begins; it has ended.
  std::function<void(std::size_t done, const std::string& suite)> begins;
  std::function<void(const std::string& suite, const std::vector<Series>&)> ended;
};

/// What a suite has of the budget: its part among those that are asked for.
Seconds budget_of(std::string_view suite, const CalibrationRequest& request);

/// Returns on every process when all ranks have ended; BackendError if one failed.
Calibration calibrate(const CalibrationRequest& request);

/// The host's CPU as its kernel names it; "unknown" where it does not.
std::string cpu_model();

/// Versions of libraries that measurements depend on, as compiled in: "mpi", "onednn", "cuda",
/// "cudnn", "nccl", "compiler".
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace spp::runtime
