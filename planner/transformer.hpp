// Everything around attention: what one rank of a sequence-parallel group does for its tokens.
//
// A rank holds seq/P tokens (padded) of each of `batch` sequences: T rows in all. Weights are whole
// on every rank while they are used. A layer is the list of its kernels (layer_forward,
// layer_backward): GEMMs with their shapes and memory-bound kernels with the bytes they touch; its
// time is the sum over them, each with one launch. Nothing of this overlaps with anything;
// transfers of the sharded weights are planner/zero.hpp, attention is the schedule's.
//
// Backward of C[m,n] = A[m,k] B[k,n] is two GEMMs: dA[m,k] = dC[m,n] B^T[n,k], dB[k,n] = A^T[k,m]
// dC[m,n].
#pragma once

#include "base/units.hpp"
#include "machine/kernel_cost.hpp"
#include "schedule/problem.hpp"
#include "transformer/model.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace spp {

/// What is kept for the backward.
///  none:      everything
///  selective: not the norms' outputs nor the MLP's product (memory-bound to compute again)
///  full:      the layer's input only; the layer runs again, attention and its transfers included
enum class Recompute : std::uint8_t { none, selective, full };
std::string_view to_string(Recompute);
Recompute parse_recompute(std::string_view, std::string_view where);

/// A whole step of training, or a prefill (forward only, logits of the last token).
enum class StepKind : std::uint8_t { train, prefill };

/// The tokens of one rank.
struct LocalTokens {
  std::int64_t tokens = 0;  // of one sequence: padded seq / P
  std::int64_t batch = 1;
  DType dtype = DType::bf16;
  [[nodiscard]] std::int64_t rows() const { return tokens * batch; }  // T
};

/// C[m,n] = A[m,k] B[k,n].
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  [[nodiscard]] FlopCount flops() const {
    return FlopCount(2.0 * static_cast<double>(m) * static_cast<double>(n) *
                     static_cast<double>(k));
  }
};
/// A kernel bound by memory: bytes read and written.
struct Stream {
  Bytes touched{};
};
/// Attention from the local tokens to the text (Model::cross_tokens); the text is on every rank.
struct CrossAttention {
  AttentionShape shape;
  [[nodiscard]] FlopCount flops() const;
};

struct LayerKernel {
  std::string_view name;
  std::variant<Gemm, Stream, CrossAttention> work;
  bool selective = false;  // Recompute::selective runs it again
};

/// Kernels of one layer in order, attention and its communication left out.
std::vector<LayerKernel> layer_forward(const Model& model, const LocalTokens& local);
std::vector<LayerKernel> layer_backward(const Model& model, const LocalTokens& local);
/// Embedding before the layers; final norm, loss head and cross-entropy (fp32) behind them. A
/// prefill computes logits for the last token of each sequence: on the rank that holds it.
std::vector<LayerKernel> ends_forward(const Model& model, const LocalTokens& local, StepKind step);
std::vector<LayerKernel> ends_backward(const Model& model, const LocalTokens& local);

Seconds time_of(std::span<const LayerKernel> kernels, const KernelCost& cost, DType dtype);
FlopCount flops_of(std::span<const LayerKernel> kernels);

struct BlockCost {
  Seconds forward{}, backward{}, recompute{};   // recompute is part of neither
  FlopCount forward_flops{}, backward_flops{};  // without recomputation
};

/// One layer around its attention. With Recompute::full the caller adds attention's forward, too.
BlockCost layer_cost(const Model& model, const LocalTokens& local, Recompute recompute,
                     const KernelCost& cost);
/// Embedding, final norm and loss head. backward is 0 in a prefill.
BlockCost ends_cost(const Model& model, const LocalTokens& local, StepKind step,
                    const KernelCost& cost);

/// Adam on this rank's shard: `updated` weights, after which `gradients` held ones are zeroed.
struct OptimizerWork {
  std::int64_t updated = 0;
  std::int64_t gradients = 0;
};
Seconds optimizer_cost(const OptimizerWork& work, const KernelCost& cost);

/// One step over all ranks; seq as requested, not padded.
struct ModelWork {
  std::int64_t seq = 0;
  std::int64_t batch = 1;
  Mask mask{};
  StepKind step = StepKind::train;
};
/// What counts as the model's FLOPs, for mfu. Recomputation never counts; a backward is twice a
/// forward. Of all ranks together.
struct ModelFlops {
  FlopCount causal_halved{};  // GEMMs, and the half of attention that a causal mask leaves (a
                              // window: its exact pairs)
  FlopCount full{};           // the same with unmasked attention
  FlopCount model_6n{};       // 6 (forward alone: 2) x parameters x tokens, no attention
};
ModelFlops model_flops(const Model& model, const ModelWork& work);

}  // namespace spp
