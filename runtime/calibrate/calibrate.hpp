// A calibration: the suites, one after the other, on all ranks of a transport.
#pragma once

#include "runtime/calibrate/suites.hpp"
#include "runtime/engine.hpp"

#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace spp::runtime {

inline constexpr std::array<std::string_view, 4> calibration_suites{"links", "collectives",
                                                                    "attention", "elementwise"};

/// Where the ranks are.
struct Hosts {
  std::vector<std::string> names;  // by node
  int per_node = 1;                // ranks of a node, neighbours
  std::int64_t cores = 1;          // of a node that this program may use; or of the whole machine
  bool one_machine = false;        // all nodes are: their cores are the same ones
  Bytes memory{};                  // of a node
  [[nodiscard]] int nodes() const { return static_cast<int>(names.size()); }
};
/// All ranks together. InputError unless the ranks of a host are neighbours and equally many.
Hosts find_hosts(Transport& transport);

struct CalibrationRequest {
  const TransportBackend* transport = nullptr;
  const AttentionBackend* kernels = nullptr;  // of the host
  EngineSource* engines = nullptr;            // devices; null: the host
  int ranks = 1;
  int ranks_per_node = 0;    // of emulated nodes; 0: hosts are the nodes
  int ranks_per_device = 1;  // that share a GPU
  Problem shape;             // heads, head_dim and dtype of elementwise kernels
  std::vector<AttentionBlock> blocks;
  std::vector<std::string> suites;  // to measure now; rank 0's count
  Seconds budget{60};
  std::int64_t largest_message = 16 << 20;
  /// On rank 0: a suite begins; it has ended.
  std::function<void(std::size_t done, const std::string& suite)> begins;
  std::function<void(const std::string& suite, const std::vector<Series>&)> ended;
};

struct Calibration {
  bool complete = false;  // on the process of rank 0; others know nothing
  Hosts hosts;
  std::map<std::string, std::vector<Series>> series;  // by suite
};

/// Returns on every process when all ranks have ended; BackendError if one failed.
Calibration calibrate(const CalibrationRequest& request);

/// Versions of libraries that measurements depend on: "mpi", "onednn", "compiler".
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace spp::runtime
