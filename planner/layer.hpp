// One layer of a model, as a plan of a step splits it over its tensor and sequence ranks: its
// schedules, and what they take on a machine.
#pragma once

#include "planner/plan.hpp"
#include "planner/step.hpp"
#include "step/layer_schedule.hpp"

#include <string>
#include <vector>

namespace spp {

/// What is scheduled of a model: its first kind of layer.
struct LayerQuestion {
  LayerGraph graph;
  Problem problem;  // attention of all heads, over one micro-batch
  LayerPlan plan;
  BuildOptions build;
  std::vector<std::string> notes;  // of a model with other kinds of layers

  [[nodiscard]] Schedule schedule(Phase phase) const {
    return layer_schedule(graph, problem, plan, phase, build);
  }
};

/// The request asks for a whole step. InputError("--scope") if no schedule holds such a layer.
LayerQuestion layer_question(const Request& request, const StepPlan& plan);

/// Attention of one tensor rank's heads inside a layer, whose ranks have the machine to themselves:
/// none of it is taken away for other tensor ranks.
AttentionQuestion layer_attention(const Request& request, const StepPlan& plan, const Mask& mask);

/// Simulates the layer's phases, with no rank standing for others. The interval is of the parts'
/// spreads, as of any prediction. The request has a cluster. InputError if nobody knows the GEMMs
/// of its GPU.
Evaluation evaluate_layer(const Request& request, const StepPlan& plan,
                          const LayerQuestion& question, const EvaluationOptions& options);

}  // namespace spp
