// Time of the kernels around attention on one rank: a list of tensor operations (transformer/),
// kernel after kernel, each with one launch; nothing overlaps with anything. Layers are whole on a
// rank: transfers between ranks that share one are refused. Transfers of sharded weights are
// planner/zero.hpp, attention is the schedule's.
#pragma once

#include "base/units.hpp"
#include "machine/kernel_cost.hpp"
#include "transformer/layer_kernels.hpp"

#include <cstdint>
#include <span>

namespace spp {

Seconds time_of(std::span<const LayerOp> ops, const KernelCost& cost, DType dtype);

struct BlockCost {
  Seconds forward{}, backward{}, recompute{};   // recompute is part of neither
  FlopCount forward_flops{}, backward_flops{};  // without recomputation
};

struct BlockRequest {
  LocalTokens local{};
  StepKind step = StepKind::train;  // prefill: backward and recompute are 0
  Recompute recompute = Recompute::none;
};

/// A layer around its attention, or the model's ends. With Recompute::full the caller adds
/// attention's forward, too.
BlockCost block_cost(const TensorOps& ops, const BlockRequest& request, const KernelCost& cost);

/// Adam on this rank's shard: `updated` weights, after which `gradients` held ones are zeroed.
struct OptimizerWork {
  std::int64_t updated = 0;
  std::int64_t gradients = 0;
};
Seconds optimizer_cost(const OptimizerWork& work, const KernelCost& cost);

}  // namespace spp
