// The instrument of a calibration on engines: times probes by running a schedule of them.
#pragma once

#include "runtime/calibrate/engine_suites.hpp"
#include "runtime/calibrate/probe_schedule.hpp"

#include <chrono>
#include <span>
#include <vector>

namespace spp::runtime {

/// How long it took to time probes.
struct Course {
  Seconds setup{};  // the engine and its first execution, which is thrown away
  Seconds once{};   // each further execution
};

/// All ranks make the same calls together.
class Instrument {
 public:
  explicit Instrument(const EngineBench& bench);

  /// Those who work when `active` ranks of every device do.
  [[nodiscard]] Crew crew(int active) const;
  [[nodiscard]] Crew everybody() const { return crew(setting_.ranks_per_device); }
  /// Of the budget, on rank 0's clock, which all go by.
  [[nodiscard]] Seconds left() const;
  /// Whether memory has room for all of them in one schedule.
  [[nodiscard]] bool fits(std::span<const Probe> probes) const;
  /// Adds samples to all of `probes`: at least 7, then until they agree or `budget` is used up.
  Course time(std::span<Probe> probes, Samples samples, Seconds budget) const;

 private:
  using Clock = std::chrono::steady_clock;
  /// Memory that each rank may use.
  struct Room {
    Bytes device, host;
  };

  [[nodiscard]] static Room room_of(const EngineBench& bench);
  /// Seconds of each probe on this rank.
  std::vector<double> execute(Engine& engine, const std::vector<TimedOps>& timed) const;
  /// Executions that do not count, until the device goes at the pace that it keeps up: clocks sink
  /// under load. (One attention block of 16K tokens took 3.13 ms on an H100 in its first tenth of a
  /// second, 3.58 to 3.88 ms inside layers: reports/measured/gpu-h100-80gb-layers.)
  void settle(Engine& engine, const std::vector<TimedOps>& timed, Seconds budget) const;
  /// Until all series agree; gives the time of an execution.
  Seconds repeat(Engine& engine, const std::vector<TimedOps>& timed, std::span<Probe> probes,
                 Samples samples, Seconds budget) const;

  const EngineBench& bench_;
  ProbeSetting setting_;
  Room room_;
  CommonClock clock_;
};

}  // namespace spp::runtime
