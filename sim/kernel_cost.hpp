// Time of one kernel on one GPU, from its shape.
//
// Attention. Work items are tiles of queries (backward: of keys) times heads times batch; items are
// dealt out over sms * ctas_per_sm slots in waves. The matrix rate that a full GPU reaches is
// `efficiency * matrix_rate`; a kernel whose last wave is not full takes as long as a full one. The
// work of an item is its exact unmasked area plus a fixed overhead in rows; a causal block is
// balanced by the longest item when there are few. So few heads x short blocks are slow: what a ring
// does to attention.
// Other kernels are bound by memory: touched bytes / (efficiency * bandwidth).
#pragma once

#include "base/units.hpp"
#include "schedule/measure.hpp"
#include "sim/machine.hpp"

namespace spp::sim {

struct AttentionShape {
  TokenSet q, k;
  int q_heads = 1;
  int kv_heads = 1;
  int head_dim = 128;
  std::int64_t batch = 1;
  Mask mask{};
  DType dtype = DType::bf16;
  Phase phase = Phase::forward;
};

class KernelCost {
 public:
  explicit KernelCost(const GpuSpec& gpu) : gpu_(&gpu) {}

  /// An attention kernel alone on the GPU. Never below peak: at least flops / matrix_rate.
  [[nodiscard]] Seconds attention(const AttentionShape& shape) const;
  /// A kernel that streams `touched` bytes.
  [[nodiscard]] Seconds memory_bound(Bytes touched) const;
  /// C[m,n] = A[m,k] B[k,n].
  [[nodiscard]] Seconds gemm(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) const;
  /// Any op that is not communication, on one rank of a schedule.
  [[nodiscard]] Seconds of(const OpBody& body, const Shapes& shapes) const;
  /// Host time to launch one kernel.
  [[nodiscard]] Seconds launch() const { return gpu_->generation.launch.value; }
  [[nodiscard]] const GpuSpec& gpu() const { return *gpu_; }
  /// Best case for `flops` on this GPU in this phase, for lower bounds: saturated efficiency.
  [[nodiscard]] Seconds attention_at_best(FlopCount flops, const Problem& problem, Phase phase) const;

 private:
  const GpuSpec* gpu_;
};

}  // namespace spp::sim
