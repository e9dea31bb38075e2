// What an op that enters a rank's window takes: a kernel its time, a transfer its flows.
#pragma once

#include "sim/rank_window.hpp"
#include "sim/simulate.hpp"

#include <vector>

namespace spp::sim {

/// What ops were found to take, by loop that others are like (Loop::like), of one rank.
class KnownOps {
 public:
  /// Fills in what op `index` of the loop takes. False: it is not known.
  bool recall(std::size_t loop, std::size_t index, Slot& slot) const;
  /// The next op of the loop.
  void remember(std::size_t loop, const Slot& slot);

 private:
  struct KnownOp {
    OpClass op_class = OpClass::kernel;
    bool streams = false;
    CommKind comm = CommKind::send_recv;
    double seconds = 0, flops = 0, host = 0, stand = 0;
    std::int64_t bytes = 0;
    Rank to, from;
    RankGroup group;
    LoweredComm lowered;
  };
  std::vector<std::vector<KnownOp>> loops_;
};

class OpCosts {
 public:
  /// Kernels around attention that touch more than `cached` bytes take those of a memory that ranks
  /// share. `timeline`: FLOPs and bytes of kernels are wanted.
  OpCosts(const Placement& placement, const SimulationCosts& costs, double cached, bool timeline)
      : placement_(placement), costs_(costs), cached_(cached), timeline_(timeline) {}

  /// Of the rank of `shapes`.
  void fill(const Op& op, const Shapes& shapes, Slot& slot) const;

 private:
  void fill(const Kernel& kernel, const Shapes& shapes, Slot& slot) const;
  void fill(const Transfer& transfer, const Shapes& shapes, Slot& slot) const;
  [[nodiscard]] double local_copy_seconds(const Exchange& exchange, const Shapes& shapes) const;

  const Placement& placement_;
  const SimulationCosts& costs_;
  double cached_;
  bool timeline_;
};

}  // namespace spp::sim
