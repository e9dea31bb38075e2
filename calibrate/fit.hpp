// Fits: from samples to the constants of the cost model.
#pragma once

#include "base/fit.hpp"
#include "base/numbers.hpp"
#include "machine/attention_table.hpp"
#include "machine/machine.hpp"
#include "samples/series.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace spp::calibrate {

/// The block as the cost model names it.
AttentionShape shape_of(const AttentionBlock& block);

/// Messages of one scope. Rates are those that a call reaches when nobody shares cores, GPUs or
/// NICs with it: the simulator lets ranks share them itself.
struct FittedTransport {
  Fitted rate;       // the best of all kinds; inter: of a NIC
  Fitted cpu_share;  // of a rank's core
  Fitted hop;        // seconds of a ring's step
  std::array<std::vector<LineSegment>, comm_kinds> segments;  // by CommKind; empty: not measured
  std::array<std::int64_t, comm_kinds> samples{};
  std::vector<std::pair<int, double>> all_to_all_by_ranks;  // factor on the rate
  /// One latency stands for all-to-alls of all numbers of ranks: how far the others' lie from it.
  double all_to_all_latency_spread = 0;
  int nics = 1;  // inter
};

/// What ranks shared while messages were timed, and what is known of their links.
struct Sharing {
  int nodes = 1, per_node = 1;
  std::int64_t cores = 0;  // that the ranks of these nodes share; 0: ranks are GPUs
  int nodes_on_cores = 1;
  int ranks_per_gpu = 1;
  double gpu_memory_rate = 0;  // bytes/s that the ranks of a GPU reach together
  int ranks_per_nic = 0;       // 0: to be found out
  double hop = 0;              // seconds, where no small messages were timed
  double own_copy = 0;         // as TransportSpec has it
};

/// `scope`: "intra" or "inter". Nothing if no message of that scope was timed.
std::optional<FittedTransport> fit_transport(const std::vector<Series>& series,
                                             std::string_view scope, const Sharing& sharing);

/// How attention kernels fill a GPU or a core (machine/kernel_cost), as parts of its matrix rate.
struct FittedAttention {
  struct OfPhase {
    Fitted full, causal;  // efficiencies
    Fitted startup;       // seconds
    double item_overhead = 1;
  };
  OfPhase forward, backward;
};
/// `kernel`: tiles, order and head dimensions; its efficiencies and times count for nothing.
FittedAttention fit_attention(const std::vector<Series>& series, const AttentionKernelSpec& kernel,
                              const GpuSpec& gpu, DType dtype);

struct FittedMemory {
  Fitted bandwidth;   // of the fastest kernel, a layer's row-wise functions among them
  Fitted efficiency;  // part of it that kernels around attention reach
  Fitted launch;      // seconds of an op in the executor
};
FittedMemory fit_memory(const std::vector<Series>& series);

/// Peak by dtype, which no measured kernel or GEMM exceeds: 1.1 times the fastest. Empty without
/// samples.
std::map<DType, Fitted> fit_peaks(const std::vector<Series>& series);

}  // namespace spp::calibrate
