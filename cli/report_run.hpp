// What `run` measured, beside what was predicted: document and table.
#pragma once

#include "cli/output.hpp"
#include "cli/request.hpp"
#include "runtime/device/device.hpp"
#include "runtime/trial/trial.hpp"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace spp::cli {

/// A run that has ended.
struct RunReport {
  StepPlan step;        // as asked
  SequencePlan plan;    // of its attention
  std::string scope;    // what runs: "attention", "layer", "step"
  std::string subject;  // the same for people
  std::string oracle;   // what it is checked against: "single-device attention"
  int ranks = 1;        // that run
  std::string comm, kernels;
  std::optional<DeviceReport> device;  // none: the host
  Phase first = Phase::forward;        // what the trial's first schedule is: also a step
  runtime::TrialResult trial;
  std::optional<Evaluation> predicted;     // none without a machine
  std::optional<Seconds> calibrated_pace;  // of the profile, for these kernels and dtype
  std::vector<std::string> warnings;
};

/// "on 1 x NVIDIA H200, 8 ranks a GPU with 16 SMs each"
std::string device_text(const DeviceReport& device);

/// Adds up both phases of the iteration in the middle.
struct MeasuredTimes {
  Breakdown all;
  Seconds step{}, p95{};
  double spread = 0;
  std::array<Bytes, comm_kinds> sent{};  // of each phase, by the rank that sends most
  double attention_flop_rate = 0;        // of attention kernels, mean over ranks, while they run
};
MeasuredTimes measured_times(const runtime::TrialResult& trial);

/// Time of the pace block while the profile was measured, over its time now: 0.8 is a machine that
/// computes 20 % slower than it was calibrated at. Nothing where either is not known.
std::optional<double> pace_of(const RunReport& report);

Json run_document(const Job& job, const RunReport& report, Seconds elapsed);
std::string run_table(const Job& job, const RunReport& report, const Style& style);

}  // namespace spp::cli
