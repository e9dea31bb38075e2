// The pace of a machine: how fast it computes at the moment.
//
// The constants of a profile hold at one speed of the machine. Clocks and neighbours on a shared
// host change it, by a third within seconds. So a calibration times one small attention block again
// and again: times of kernels are scaled by what it took beside them. And a run times the same one
// between its iterations: their ratio tells a machine that changed from a model that errs.
#pragma once

#include "runtime/calibrate/operands.hpp"

#include <vector>

namespace spp::runtime {

/// 512 queries and keys, one head of 64, no mask, forward: under a millisecond, mostly products, in
/// the cache of a core.
AttentionBlock pace_block(DType dtype);

/// Part of the samples in which the machine was more than 10 % slower than in the median.
double slow_part(const std::vector<double>& samples);

/// All ranks of a transport together. Those that are `active` take the samples, side by side; let
/// it be ranks with a core of their own, since ranks that share one have no pace.
class Pace {
 public:
  Pace(Transport& transport, AttentionKernels& kernels, DType dtype, bool active);

  /// Core seconds of a block, of every active rank; all ranks know them.
  std::vector<double> sample();

 private:
  void run(int repetitions);

  Transport& transport_;
  AttentionKernels& kernels_;
  BlockOperands operands_;
  bool active_;
  int repetitions_ = 1;
};

/// Takes samples of the pace before and after what it measures.
class Paced {
 public:
  Paced(Transport& transport, AttentionKernels& kernels, DType dtype, bool active);

  /// Notes the pace beside the samples that `series` got since the last call: each rank's own where
  /// every active rank took samples in turn (Samples::each), else the mean of them.
  void beside(Series& series, Samples samples);
  /// All that were taken.
  [[nodiscard]] const std::vector<double>& of_all() const { return all_; }

 private:
  Pace pace_;
  std::vector<double> last_;  // by active rank
  std::vector<double> all_;
};

/// Samples in units of the pace beside them; in seconds if none is noted.
std::vector<double> over_pace(const Series& series);

/// Times of kernels as they would be if the machine had kept the median pace of its calibration
/// (series `pace`; without one they stay as they are).
std::vector<Series> at_one_pace(std::vector<Series> series);

}  // namespace spp::runtime
