#include "planner/block_cost.hpp"

#include "base/error.hpp"

namespace spp {
namespace {

struct KernelTime {
  const KernelCost* cost;
  DType dtype;

  Seconds operator()(const GemmShape& gemm) const {
    return cost->gemm({.m = gemm.m, .n = gemm.n, .k = gemm.k}, dtype);
  }
  /// Groups of equal size.
  Seconds operator()(const GroupedGemm& gemm) const {
    const std::int64_t rows = (gemm.rows + gemm.groups - 1) / gemm.groups;
    return static_cast<double>(gemm.groups) * cost->gemm({.m = rows, .n = gemm.n, .k = gemm.k}, dtype);
  }
  Seconds operator()(const MemoryBound& kernel) const { return cost->memory_bound(kernel.touched); }
  Seconds operator()(const SelfAttention& /*call*/) const { return Seconds(0); }
  Seconds operator()(const LayerTransfer& /*transfer*/) const {
    throw InternalError("a layer that is shared by ranks");
  }
  Seconds operator()(const CrossAttention& cross) const {
    return cost->attention({.q = TokenSet(TokenRange{.begin = 0, .count = cross.queries}),
                            .k = TokenSet(TokenRange{.begin = 0, .count = cross.keys}),
                            .q_heads = cross.call.q_heads,
                            .kv_heads = cross.call.kv_heads,
                            .head_dim = cross.call.head_dim,
                            .batch = cross.batch,
                            .mask = {.kind = MaskKind::full},
                            .dtype = dtype,
                            .phase = cross.phase});
  }
};

}  // namespace

Seconds time_of(std::span<const LayerOp> ops, const KernelCost& cost, DType dtype) {
  const KernelTime time{.cost = &cost, .dtype = dtype};
  Seconds total{};
  for (const LayerOp& op : ops) {
    if (!std::holds_alternative<SelfAttention>(op.work)) {
      total += cost.launch();
      total += std::visit(time, op.work);
    }
  }
  return total;
}

BlockCost block_cost(const TensorOps& ops, const BlockRequest& request, const KernelCost& cost) {
  const LocalTokens& local = request.local;
  const std::vector<LayerOp> forward = forward_ops(ops, local);
  BlockCost result{.forward = time_of(forward, cost, local.dtype),
                   .forward_flops = flops_of(forward)};
  if (request.step == StepKind::prefill) {
    return result;
  }
  const std::vector<LayerOp> backward = backward_ops(ops, local);
  result.backward = time_of(backward, cost, local.dtype);
  result.backward_flops = flops_of(backward);
  result.recompute =
      time_of(recomputed_ops(ops, local, {.kind = request.recompute}), cost, local.dtype);
  return result;
}

Seconds optimizer_cost(const OptimizerWork& work, const KernelCost& cost) {
  // fp32 gradient norm: reads 4 B a weight. Adam: reads gradient, master, m, v (16 B), writes
  // master, m, v (12 B) and the bf16 weight (2 B). Zeroing: writes 4 B a gradient held.
  constexpr std::int64_t norm = 4;
  constexpr std::int64_t adam = 16 + 12 + 2;
  constexpr std::int64_t zeroing = 4;
  constexpr double kernels = 3;
  return cost.memory_bound(Bytes(work.updated * norm)) +
         cost.memory_bound(Bytes(work.updated * adam)) +
         cost.memory_bound(Bytes(work.gradients * zeroing)) + kernels * cost.launch();
}

}  // namespace spp
