// One layer of a model, as a plan of a step splits it over its tensor and sequence ranks, or the
// whole step over these, its data-parallel replicas and the stages of its pipeline: the schedules,
// and what they take on a machine.
#pragma once

#include "parallel/layer/schedule.hpp"
#include "planner/plan.hpp"
#include "planner/step.hpp"
#include "schedule/demand.hpp"
#include "sim/folding.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace spp {

/// What is scheduled of a model: its first kind of layer, or all of a training step.
struct LayerQuestion {
  bool step = false;
  std::vector<Phase> phases;  // each a schedule of its own
  LayerGraph graph;
  Problem problem;  // attention of all heads, over one micro-batch
  LayerPlan plan;
  BuildOptions build;
  std::vector<std::string> notes;  // what the schedule has otherwise than the plan
  std::int64_t layers = 1;

  [[nodiscard]] Schedule schedule(Phase phase) const {
    return layer_schedule(graph, problem, plan, phase, build);
  }
  /// "one layer", "a step of 32 layers".
  [[nodiscard]] std::string subject() const;
};

/// The request asks for a whole step. InputError("--scope") if no schedule holds such a layer.
LayerQuestion layer_question(const Request& request, const StepPlan& plan);

/// The request asks for training. InputError("--scope") if no schedule holds such a step.
LayerQuestion step_question(const Request& request, const StepPlan& plan);

/// Attention of one tensor rank's heads inside a layer, whose ranks have the machine to themselves:
/// none of it is taken away for other tensor ranks.
AttentionQuestion layer_attention(const Request& request, const StepPlan& plan, const Mask& mask);

/// A phase of a question: its schedule, what that asks of whoever goes through it, and how its
/// ranks fold.
struct LayerPhase {
  Schedule schedule;
  Demand demand;
  sim::Folding folding;
};
/// One for each phase. The request has a cluster.
std::vector<LayerPhase> phases_of(const Request& request, const StepPlan& plan,
                                  const LayerQuestion& question, bool fold);

/// What evaluate_layer takes.
Effort effort_of(std::span<const LayerPhase> phases);

/// Simulates the phases. The interval is of the parts' spreads, as of any prediction; a step's only
/// schedule is the evaluation's `forward`. The request has a cluster. InputError if nobody knows
/// the GEMMs of its GPU.
Evaluation evaluate_layer(const Request& request, const StepPlan& plan,
                          const LayerQuestion& question, std::span<const LayerPhase> phases,
                          const EvaluationOptions& options);

}  // namespace spp
