// What a calibration measures, and how long it goes on measuring.
//
// A series is one thing, timed again and again: at least 7 times, until the median absolute
// deviation is small against the median or the time for it is used up. Short things are repeated
// inside a sample, so that neither the clock nor the ranks' way out of a barrier counts. All ranks
// see the same samples and so stop together.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"
#include "runtime/comm/transport.hpp"
#include "runtime/rows.hpp"
#include "schedule/op.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace spp::runtime {

/// A block of an attention kernel as a plan runs it; tokens as the kernel sees them.
struct AttentionBlock {
  Phase phase = Phase::forward;
  TokenSet q, k;
  int q_heads = 1;
  int kv_heads = 1;
  int head_dim = 128;
  std::int64_t batch = 1;
  Mask mask{};
  DType dtype = DType::fp32;
  friend bool operator==(const AttentionBlock&, const AttentionBlock&) = default;
};
/// FLOPs of the pairs that the mask allows: 4 (backward 10) * head_dim a pair and head.
FlopCount flops_of(const AttentionBlock& block);

/// Raw samples of one thing.
struct Series {
  std::string suite;            // "links", …
  std::string what;             // "ring", "all_to_all", "merge", …: see the suite
  std::string scope;            // "intra", "inter"; "" if no message is sent
  int ranks = 1;                // of a group
  int active = 1;               // ranks at work at the same time; kernels: of a host, or a device
  double size = 0;              // bytes: sent by a rank, or touched; 0 for attention
  std::vector<double> seconds;  // by sample: of one repetition
  std::vector<double> pace;     // by sample: of the pace block (pace.hpp) meanwhile; or empty
  std::optional<AttentionBlock> block;
};

double median_of(std::vector<double> values);
/// Median absolute deviation from the median, over the median; 0 of nothing.
double spread_of(const std::vector<double>& values);
/// Relative standard error of their median, if they are independent and normally distributed:
/// 1.2533 sigma / sqrt(n), where sigma is 1.4826 median absolute deviations.
double error_of_median(const std::vector<double>& values);

Json to_json(const Series& series);
/// InputError names file and key.
Series read_series(const JsonView& view);

/// Everybody's numbers, by rank. All ranks together.
std::vector<std::vector<double>> all_gather_numbers(Transport& transport,
                                                    const std::vector<double>& mine);

/// When a series is long enough.
struct Patient {
  int least = 7;
  int most = 61;
  double spread = 0.02;
  Seconds sample{0.002};  // a sample repeats what is shorter
  Seconds budget{0.1};    // of the whole series; `least` samples are taken whatever it says
  Seconds longest{1e9};   // what `least` samples would take longer for is left out
  Seconds once{};         // of the work, as far as is known; 0: tried first
};

enum class Samples : std::uint8_t {
  slowest,  // of each sample the slowest rank's time: an op that all end together
  /// Every active rank's own core time: kernels that run side by side. The cost model, too, counts
  /// kernels in seconds of a core; whatever else runs on this machine does not count.
  each
};

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

/// 8 B, 64 B, 256 B, … by factors of 4 up to `largest`.
std::vector<std::int64_t> message_sizes(std::int64_t largest);

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
