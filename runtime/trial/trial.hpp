// A trial: schedules run for real on P ranks, some times, checked and timed.
#pragma once

#include "runtime/engine.hpp"
#include "runtime/execute.hpp"
#include "runtime/trial/check.hpp"
#include "schedule/breakdown.hpp"

#include <functional>
#include <optional>

namespace spp::runtime {

struct TrialRequest {
  std::optional<Schedule> forward;  // needed by a backward, too, to make its inputs
  std::optional<Schedule> backward;
  bool time_forward = true;                     // false: the forward only prepares the backward
  const TransportBackend* transport = nullptr;  // with `engines`: the control plane only
  const AttentionBackend* kernels = nullptr;    // of the host; not used with `engines`
  EngineSource* engines = nullptr;              // null: the host runs the programs
  int warmup = 1;
  int iterations = 5;
  bool check = true;
  bool pace = false;  // of the host (samples/pace.hpp), between iterations; not with `engines`
  std::uint64_t seed = 1;
  ExecuteOptions execution;
  CheckOptions checking;
  /// On rank 0, from time to time: iterations done.
  std::function<void(int)> progress;
};

/// One phase, all ranks.
struct PhaseResult {
  Timeline timeline;                                // of TrialResult::middle; all ranks
  Breakdown breakdown;                              // of this timeline
  std::vector<Seconds> samples;                     // of each iteration: the slowest rank's time
  std::vector<std::array<Bytes, comm_kinds>> sent;  // by rank, in one iteration
  std::optional<CheckReport> check;
};

struct TrialResult {
  bool complete = false;  // on the process of rank 0; others know nothing
  /// Why it did not run: too little memory. Else "".
  std::string refused;
  std::optional<PhaseResult> forward, backward;
  std::vector<Seconds> samples;  // of each iteration: both phases
  /// The iteration whose sample is the median; of an even number the lower of the two in the
  /// middle, so that there is one whose times are all shown, and add up.
  std::size_t middle = 0;
  /// Of the pace block, before every sample and after the last, of the slowest rank, which the
  /// others wait for; empty if nobody asked.
  std::vector<Seconds> pace;
  /// Of how the ranks found each other.
  std::vector<std::string> warnings;

  [[nodiscard]] bool passed() const;
};

/// Returns on every process when all ranks have ended; BackendError if one failed.
TrialResult run_trial(const TrialRequest& request);

/// The smallest sample that 95 % of all do not exceed.
Seconds percentile_95(std::vector<Seconds> samples);
/// Median absolute deviation from the median, over the median.
double relative_spread(const std::vector<Seconds>& samples);

}  // namespace spp::runtime
