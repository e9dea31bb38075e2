// From a calibration's samples to a profile (sim/profile.hpp): which attention blocks to measure,
// fits, and the document.
#pragma once

#include "base/fit.hpp"
#include "base/json.hpp"
#include "runtime/calibrate/calibrate.hpp"
#include "sim/attention_table.hpp"
#include "sim/machine.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spp::cli {

/// The attention blocks of all legal plans of `problem` over `ranks`, forward and backward; blocks
/// that a profile cannot tell apart (sim/attention_table) once.
std::vector<runtime::AttentionBlock> blocks_of_plans(const Problem& problem, int ranks);

/// The block as the cost model names it.
sim::AttentionShape shape_of(const runtime::AttentionBlock& block);

/// A fitted number.
struct Fitted {
  double value = 0;
  double spread = 0;
  std::int64_t samples = 0;  // 0: assumed
};

/// Messages of one scope. Rates are those that a call reaches when nobody shares cores or NICs with
/// it: the simulator lets ranks share them itself.
struct FittedTransport {
  Fitted rate;       // the best of all kinds, nominal from here on; inter: of a NIC
  Fitted cpu_share;  // of a rank's core
  Fitted hop;        // seconds of a ring's step
  std::array<std::vector<LineSegment>, comm_kinds> segments;  // by CommKind; empty: not measured
  std::array<std::int64_t, comm_kinds> samples{};
  std::vector<std::pair<int, double>> all_to_all_by_ranks;  // factor on the rate
  int nics = 1;                                             // inter
};

/// `scope`: "intra" or "inter". Nothing if no message of that scope was timed. `cores`, `nodes`:
/// what `active` ranks of a series share.
std::optional<FittedTransport> fit_transport(const std::vector<runtime::Series>& series,
                                             std::string_view scope, const runtime::Hosts& hosts);

/// How attention kernels fill a core (sim/kernel_cost), as parts of `peak`.
struct FittedAttention {
  std::int64_t q_tile = 1, kv_tile = 1, backward_tile = 1;
  struct OfPhase {
    Fitted full, causal;  // efficiencies
    Fitted startup;       // seconds
    double item_overhead = 1;
  };
  OfPhase forward, backward;
};
FittedAttention fit_attention(const std::vector<runtime::Series>& series, std::string_view kernels,
                              const sim::GpuSpec& gpu, DType dtype);

struct FittedMemory {
  Fitted bandwidth;   // of the fastest kernel
  Fitted efficiency;  // part of it that kernels around attention reach
  Fitted launch;      // seconds of an op in the executor
};
FittedMemory fit_memory(const std::vector<runtime::Series>& series);

/// Peak by dtype, which no measured kernel exceeds: 1.1 times the fastest. Empty without samples.
std::map<DType, Fitted> fit_peaks(const std::vector<runtime::Series>& series);

struct ProfileInput {
  std::string name;
  std::string kernels;
  std::string comm;
  DType dtype = DType::fp32;
  runtime::Calibration calibration;
};
/// "sp-plan/profile", with all raw samples. `environment` is of this process.
Json profile_document(const ProfileInput& input);

/// What it says, for people.
std::string profile_table(const Json& profile, const ProfileInput& input, bool color);

/// All series of a calibration, suite after suite.
std::vector<runtime::Series> all_series(const runtime::Calibration& calibration);

}  // namespace spp::cli
