// What a point of a whole training step asks the planner: its model, its plan, and what its source
// leaves open.
#pragma once

#include "machine/machine.hpp"
#include "planner/plan.hpp"
#include "regress/corpus.hpp"
#include "step/plan.hpp"

#include <string>
#include <vector>

namespace spp::regress {

struct TrainingPoint {
  std::string refused;  // why it cannot be asked; else ""
  Model model;
  StepPlan plan;
  /// ZeRO stages, and recomputations under each, to try; the first that fits is taken: one, if the
  /// source states it.
  std::vector<int> zero;
  std::vector<Recomputation> recompute;
  /// What lies between none and all: layers of each stage run again until the rest fits.
  bool by_layers = false;
  std::vector<Assumption> assumed;
};

/// `request`: problem, cluster and stack are set.
TrainingPoint training_point(const Point& point, const Request& request);

}  // namespace spp::regress
