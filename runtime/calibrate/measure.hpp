// How a calibration measures: one thing, timed on all ranks of a transport at once.
//
// Short things are repeated inside a sample, so that neither the clock nor the ranks' way out of a
// barrier counts. All ranks see the same samples and so stop together (samples/stopping_rule.hpp).
#pragma once

#include "runtime/comm/transport.hpp"
#include "runtime/kernels/rows.hpp"
#include "samples/series.hpp"
#include "samples/statistics.hpp"
#include "samples/stopping_rule.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace spp::runtime {

/// Everybody's numbers, by rank. All ranks together.
std::vector<std::vector<double>> all_gather_numbers(Transport& transport,
                                                    const std::vector<double>& mine);
/// Rank 0's numbers, which all go by where they must come to the same decision. All ranks together.
std::vector<double> numbers_of_rank_0(Transport& transport, const std::vector<double>& mine);

/// Time since it began, on rank 0's clock.
class CommonClock {
 public:
  explicit CommonClock(Transport& transport) : transport_(transport) {}
  /// All ranks together.
  [[nodiscard]] Seconds elapsed() const;

 private:
  Transport& transport_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

enum class Samples : std::uint8_t {
  slowest,  // of each sample the slowest rank's time: an op that all end together
  /// Every active rank's own core time: kernels that run side by side. The cost model, too, counts
  /// kernels in seconds of a core; whatever else runs on this machine does not count.
  each
};

/// A number that no sample is: this rank was not active.
inline constexpr double absent = -1;
/// Adds to `seconds` the sample that has number `at` in everybody's `numbers`.
void add_sample(const std::vector<std::vector<double>>& numbers, std::size_t at, Samples samples,
                std::vector<double>& seconds);

/// Measures `work(repetitions)` on the ranks that are `active`; the others wait, without using
/// their core. All ranks together, all get the samples; none if they would take too long.
std::vector<double> measure(Transport& transport, const Patient& patient, Samples samples,
                            bool active, const std::function<void(int)>& work);

/// Time that this thread has had a core.
double core_seconds();

/// What a suite runs on.
struct Bench {
  Transport& transport;
  Seconds budget{};          // of the suite
  int per_node = 1;          // ranks of a node; they are neighbours
  int place = 0;             // of this rank among those that share its cores
  int sharing = 1;           // how many they are
  std::int64_t cores = 1;    // that they share
  std::int64_t largest = 0;  // bytes of the largest message

  [[nodiscard]] int ranks() const { return transport.size(); }
  [[nodiscard]] int nodes() const { return transport.size() / per_node; }
};

/// Numbers that look random, `middle` plus or minus `reach`.
void fill_numbers(const Rows& rows, float middle, float reach);

/// Parts of a piece of memory that is larger than caches, one after the other and round again: what
/// a plan sends and receives has not been touched for a while.
class Pool {
 public:
  explicit Pool(std::int64_t bytes) : memory_(static_cast<std::size_t>(bytes)) {}
  std::span<std::byte> next(std::int64_t bytes);

 private:
  std::vector<std::byte> memory_;
  std::size_t at_ = 0;
};

}  // namespace spp::runtime
