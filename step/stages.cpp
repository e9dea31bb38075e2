#include "step/stages.hpp"

namespace spp {

std::vector<Stage> stages_of(const Model& model, const StepPlan& plan) {
  const std::int64_t count = std::int64_t{plan.pipeline} * plan.virtual_stages;
  std::vector<Stage> stages(static_cast<std::size_t>(count));
  std::int64_t next = 0;
  for (std::int64_t s = 0; s < count; ++s) {
    Stage& stage = stages[static_cast<std::size_t>(s)];
    stage.first = next;
    stage.layers = model.layers / count + (s < model.layers % count ? 1 : 0);
    next += stage.layers;
  }
  stages.front().embeds = true;
  stages.back().ends = true;
  return stages;
}

HeldWeights held_weights(const TensorOps& ops, const LayerSplit& split) {
  return {.dense = weights_of(ops, split)};
}

}  // namespace spp
