// The pace of a machine: how fast it computes at the moment.
//
// The constants of a profile hold at the speed that the machine had while it was calibrated. Clocks
// and neighbours on a shared host change it later. So a calibration times one small attention block
// again and again, and a run times the same one between its iterations: their ratio tells a machine
// that changed from a model that errs.
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

  void sample();
  /// Of a sample, on rank 0; all ranks know it.
  [[nodiscard]] Seconds cost() const { return cost_; }
  /// Core seconds of a block, of all ranks, in the order in which they were taken.
  std::vector<double> of_all() const;

 private:
  void run(int repetitions);

  Transport& transport_;
  AttentionKernels& kernels_;
  BlockOperands operands_;
  bool active_;
  int repetitions_ = 1;
  Seconds cost_{};
  std::vector<double> samples_;
};

}  // namespace spp::runtime
