// The tiny model's step on H100 nodes, under a practice without anything beside tensors and
// kernels, so that sums by hand come out even.
#pragma once

#include "machine/machine.hpp"
#include "step/cost.hpp"
#include "tests/support/catalog.hpp"
#include "tests/unit/transformer/tiny_model.hpp"

namespace spp::test {

inline StepPractice bare_practice() {
  StepPractice p = default_practice();
  for (auto* time : {&p.host_kernel, &p.host_transfer, &p.host_tensor_node, &p.host_tensor_rank,
                     &p.host_exchange, &p.host_counts, &p.host_micro_batch, &p.host_message,
                     &p.host_step, &p.host_add}) {
    time->value = Seconds(0);
  }
  p.elementwise.value = p.optimizer.value = 1;
  p.slowdown.value = p.slack.value = 0;
  p.context.value = p.communicator.value = Bytes(0);
  return p;
}

/// Its parts refer to each other: not copied.
struct TinyStep {
  TinyStep() { request.model = &model; }
  TinyStep(const TinyStep&) = delete;
  TinyStep& operator=(const TinyStep&) = delete;

  Model model = tiny_model();
  MachineSpec machine = catalog().machine("dgx-h100", "test");
  sim::Cluster cluster{machine, 2, 16};
  KernelCost kernels{machine.gpu, machine.gpu.generation.attention};
  StepPractice practice = bare_practice();
  StepRequest request{.cluster = &cluster, .kernels = &kernels, .practice = &practice};
  std::int64_t seq = 12;
  std::vector<AttentionCost> attention{1};

  [[nodiscard]] std::vector<MemoryBytes> memory(const StepPlan& plan) const {
    StepCommon common(request);
    return step_memory(common, plan, seq, attention);
  }
  [[nodiscard]] StepCost cost(const StepPlan& plan) const {
    StepCommon common(request);
    return step_cost(common, plan, seq, attention);
  }
  /// By a rank of the slowest stage.
  [[nodiscard]] SentBytes sent(const StepPlan& plan) const {
    StepCommon common(request);
    const int stage = step_cost(common, plan, seq, attention).slowest;
    return step_sent(common, plan, seq, attention, stage);
  }
};

}  // namespace spp::test
