// Which layers stand on which virtual stage of a pipeline, and what a rank holds of the weights.
#pragma once

#include "step/plan.hpp"

#include <cstdint>
#include <vector>

namespace spp {

/// A count in arithmetic that leaves the integers.
constexpr double real_of(std::int64_t n) { return static_cast<double>(n); }

/// A virtual stage: layers from `first` on, with the embedding before the first and the loss head
/// behind the last one.
struct Stage {
  std::int64_t first = 0, layers = 0;
  bool embeds = false, ends = false;
};

/// By virtual stage. `even_times`: the loss head counts with the time that it takes, else it does
/// not (or as a layer, where the layers do not divide).
std::vector<Stage> stages_of(const Model& model, const StepPlan& plan, bool even_times);

/// Weights on one rank: those that all `replicas()` hold, and those of experts, which fewer do.
struct HeldWeights {
  std::int64_t dense = 0, experts = 0;
  [[nodiscard]] std::int64_t all() const { return dense + experts; }
};
HeldWeights held_weights(const TensorOps& ops, const LayerSplit& split);

}  // namespace spp
