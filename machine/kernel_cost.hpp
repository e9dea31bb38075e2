// Time of one kernel on one GPU, from its shape.
//
// Attention. A work item is a tile of queries (backward: of keys) of one head of one sequence; it
// walks over the keys (queries) that the mask leaves it, in whole tiles, and costs `item_overhead`
// rows more. Items are dealt out over slots = sms * ctas_per_sm; a slot works at
// efficiency * matrix_rate / slots on 4 * head_dim FLOPs a pair (backward: 10).
//
//   nothing masked   all items are equal: ceil(items / slots) * item         (wave quantisation)
//   partly masked    items differ:        between max(work / slots, longest, whole waves of the
//                    shortest), which dealing out the longest first nearly reaches, and
//                    work / slots + (1 - 1/slots) * longest, which no order exceeds (R. L. Graham,
//                    SIAM J. Appl. Math. 17, 1969). Where in
//                    between follows from the kernel's launch order (`forward_order`; unknown:
//                    the middle); if items <= slots, the longest item.
//
// So few heads x short blocks are slow: what a ring does to attention.
// FlashAttention-2 keeps two forward items on an SM: one alone works at `lone_item` of its rate.
// It splits K and V where query tiles are few (`forward_minimum_fill`; behind a cache every kernel
// does): pieces of 64 queries run at
// `split_rate` of the forward's rate, and a second kernel adds them up.
// The backward's small kernels (`backward_bytes`) stream dO, O and dQ; with GQA dK and dV as well.
// head_dim: the time of a pair is linear in it; `head_dim_64` and `head_dim_256` are its points.
// Sums over tiles are sums over clamped arithmetic progressions: no loop over tiles, O(ranges^2).
//
// What a calibration measured comes before all this: the median of the very block, or the formula
// corrected by its relatives (attention_table.hpp), never faster than flops / matrix_rate.
//
// GEMM: gemm_cost.hpp.
// Products with whole rows of scores take as much of a fused kernel over all pairs of their block
// as they have of its FLOPs (so a calibration corrects them, too); products with states are grouped
// GEMMs, a group for each head; linear attention runs at the best rate of fused kernels or streams
// its chunks' states. Assumed: no published measurement of these was found. None is faster than
// attention_at_best, which keeps the search's bounds true.
// Other kernels are bound by memory: touched bytes / (efficiency * bandwidth).
#pragma once

#include "base/units.hpp"
#include "machine/attention_table.hpp"
#include "machine/gemm_cost.hpp"
#include "machine/machine.hpp"
#include "schedule/measure.hpp"

#include <optional>
#include <span>

namespace spp {

/// The block of an attention kernel; nothing for other ops.
std::optional<AttentionShape> shape_of(const Kernel& kernel, const Problem& problem);

class KernelCost {
 public:
  /// `gpu` must outlive this. With the generation's default attention kernel.
  explicit KernelCost(const GpuSpec& gpu) : KernelCost(gpu, gpu.generation.attention) {}
  /// With another kernel (attention_kernel in machine/machine.hpp); it must outlive this, too.
  KernelCost(const GpuSpec& gpu, const AttentionKernelSpec& kernel);

  /// An attention kernel alone on the GPU: never faster than attention_at_best, and so never
  /// faster than flops / (matrix_rate * matrix_rate_factor). InputError if the GPU lacks the dtype.
  [[nodiscard]] Seconds attention(const AttentionShape& shape) const;
  /// Whether a calibration measured attention kernels.
  [[nodiscard]] bool measured() const { return !measured_.empty(); }
  /// Relative standard error of exactly this block (AttentionTable).
  [[nodiscard]] std::optional<double> standard_error(const AttentionKey& block) const {
    return measured_.standard_error(block);
  }
  /// A kernel that streams `touched` bytes.
  [[nodiscard]] Seconds memory_bound(Bytes touched) const;
  /// A row-wise kernel of a layer or a step over `touched` bytes: as timed on this machine, else as
  /// any that streams them.
  [[nodiscard]] Seconds row_kernel(const RowFunction& function, Bytes touched) const;
  /// Whether a calibration timed it.
  [[nodiscard]] bool times(const RowFunction& function) const {
    return gpu_->generation.layer.rows.contains(function);
  }
  /// Relative spread of GEMMs.
  [[nodiscard]] double gemm_spread() const;
  /// Relative spread of the kernels around attention, and of a layer's row-wise ones.
  [[nodiscard]] double streaming_spread() const;
  /// A GEMM alone on the GPU, or a grouped one whose groups have equally many rows; quantising
  /// included. InputError if the GPU lacks the format.
  [[nodiscard]] Seconds gemm(const GemmWork& work, DType dtype) const;
  /// A grouped GEMM of these rows; `work.m` and `work.groups` do not count.
  [[nodiscard]] Seconds grouped_gemm(std::span<const std::int64_t> rows, const GemmWork& work,
                                     DType dtype) const {
    return gemm_time(*gpu_, rows, work, dtype);
  }
  /// What one rank's experts take. InputError if nobody knows how this generation runs them.
  [[nodiscard]] Seconds expert_layer(const ExpertLayerWork& work, DType dtype) const;
  /// How much longer GEMMs take inside a training step than alone: at least 1.
  [[nodiscard]] double gemm_in_training() const {
    const auto& own = gpu_->gemm_training;
    const auto& kept = own ? own : gpu_->generation.gemm_training;
    return kept ? 1 / kept->value : 1.0;
  }
  /// Any op that is not communication, on one rank of a schedule.
  [[nodiscard]] Seconds of(const Kernel& kernel, const Shapes& shapes) const;
  /// Host time to launch one kernel.
  [[nodiscard]] Seconds launch() const { return gpu_->generation.launch.value; }
  [[nodiscard]] const GpuSpec& gpu() const { return *gpu_; }
  /// Lower bound of attention() for `flops`: saturated efficiency, no overheads.
  [[nodiscard]] Seconds attention_at_best(FlopCount flops, const Problem& problem,
                                          Phase phase) const;
  /// Lower bound of what a kernel takes beside these.
  [[nodiscard]] Seconds least_startup(Phase phase) const;
  /// Relative spread of attention(): of the measurements of these kernels, if there are any, else
  /// of the formula.
  [[nodiscard]] double attention_spread(const Problem& problem, Phase phase) const;

 private:
  [[nodiscard]] Seconds formula(const AttentionShape& shape) const;
  [[nodiscard]] Seconds streamed(double bytes) const;
  /// Kernels beside the main backward: dO * O before; dQ in fp32 is cleared before and rounded
  /// after; with fewer K/V heads their gradients are summed over the query heads, written and read
  /// in 16 bits.
  [[nodiscard]] Seconds backward_streams(const AttentionShape& shape) const;
  /// Part of peak() that a kernel reaches on this GPU, which has `of_kernel` at head_dim 128.
  [[nodiscard]] double efficiency(double of_kernel, int head_dim, int value_dim) const;
  /// Matrix rate that the kernel's number format has; `dtype` is that of the tensors around it.
  [[nodiscard]] FlopRate peak(DType dtype) const;

  const GpuSpec* gpu_;
  const AttentionKernelSpec* kernel_;
  AttentionTable measured_;
};

}  // namespace spp
