// What the ops of a layer, or of a whole step, take beside attention's, as a step's cost counts
// them: kernels as the stack has them, what its host takes for each op, and for what kernels wait
// for it.
#pragma once

#include "parallel/layer/streams.hpp"
#include "planner/evaluator.hpp"
#include "planner/layer.hpp"
#include "schedule/row_function.hpp"

#include <map>

namespace spp {

/// All that it is made of must outlive it. The request has a cluster.
class LayerCosts {
 public:
  /// `by_stack`: as EvaluationOptions::by_stack.
  LayerCosts(const Request& request, const StepPlan& plan, const LayerQuestion& question,
             const KernelCost& kernels, bool by_stack);

  /// A kernel that takes so long alone.
  [[nodiscard]] Seconds kernel(const Kernel& kernel, const Shapes& shapes, Seconds alone) const;
  /// Of a step, and of the host: an op for which attention's takes so long.
  [[nodiscard]] sim::HostTime host(const Op& op, const Shapes& shapes, Seconds attention) const;
  /// What the host takes before the first op.
  [[nodiscard]] Seconds call() const;

 private:
  [[nodiscard]] sim::HostTime host(const Kernel& kernel, Seconds attention) const;
  [[nodiscard]] sim::HostTime host(const Exchange& exchange, const Shapes& shapes,
                                   Seconds attention) const;
  [[nodiscard]] sim::HostTime host_of_collective(StreamId stream, Seconds attention) const;
  /// A row-wise function, which takes so long alone by the kernel that a schedule has for it.
  [[nodiscard]] Seconds row_wise(LayerFunction function, bool backward, const Kernel& kernel,
                                 const Shapes& shapes, Seconds alone) const;
  /// Where a virtual stage turns to a micro-batch.
  [[nodiscard]] Seconds turn() const;

  const LayerQuestion& question_;
  const Graph& graph_;
  const StepPractice& practice_;
  const KernelCost& kernels_;
  bool by_stack_;
  LayerStreams streams_;
  DType dtype_;
  std::map<RowFunction, double> traffic_;  // bytes of a stack's kernels over a schedule's
  std::int64_t held_for_one_;              // gradients that a rank holds for one that it updates
  Seconds tensor_, counts_;  // of the host, for a transfer of tensor ranks, and of experts
};

}  // namespace spp
