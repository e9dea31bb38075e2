// Prediction of a whole step under one plan: attention as its schedules simulate it, the rest of the step
// around it (step/cost.hpp).
#pragma once

#include "planner/plan.hpp"
#include "step/cost.hpp"

#include <map>
#include <string>
#include <vector>

namespace spp {

struct StepEvaluation {
  StepPlan plan;
  StepCost cost;
  std::vector<MemoryBytes> memory;  // by stage
  Seconds low{}, high{};            // of the step, a standard deviation each way
  bool fits = true;
  std::vector<std::string> lowering;  // algorithm by kind of communication
  [[nodiscard]] Seconds step() const { return Seconds(cost.total()); }
};

/// Evaluates plans of one question; keeps what they have in common (attention calls).
class StepEvaluator {
 public:
  /// `request`: train or prefill of a model on a cluster; what it fixes of plans, its batch and its
  /// number of GPUs do not count here. It must outlive this.
  explicit StepEvaluator(const Request& request);

  /// InputError if the plan is not legal, or there are fewer GPUs.
  [[nodiscard]] StepEvaluation evaluate(const StepPlan& plan);

 private:
  struct Call {
    AttentionCost cost;
    double spread = 0;  // relative, of its kernels
    std::vector<std::string> lowering;
  };
  [[nodiscard]] const Call& attention(const StepPlan& plan, const Mask& mask);
  [[nodiscard]] Call simulate(const StepPlan& plan, const Mask& mask) const;

  const Request& request_;
  const StepPractice& practice_;
  KernelCost kernels_;
  std::map<std::string, Call> calls_;
};

/// The problem of one tensor rank's attention call.
Problem attention_problem(const Request& request, const StepPlan& plan, const Mask& mask);

}  // namespace spp
