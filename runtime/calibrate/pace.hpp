// Measures the pace of a machine (samples/pace.hpp).
#pragma once

#include "runtime/calibrate/operands.hpp"
#include "samples/pace.hpp"

#include <vector>

namespace spp::runtime {

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

}  // namespace spp::runtime
