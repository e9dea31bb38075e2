// The kernels that a list of tensor operations is on one rank, and their FLOPs. Of attention only
// that to a text is among them: attention over the sequence is a schedule's.
//
// A rank holds seq/P tokens (padded) of each of `batch` sequences: T rows in all. Nothing here
// overlaps with anything, each kernel is launched once.
#pragma once

#include "base/units.hpp"
#include "schedule/problem.hpp"
#include "transformer/layer.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spp {

/// What is kept for the backward.
///  none:      everything
///  selective: not what cheap operations write: the norms' outputs, the MLP's product
///  full:      the layer's input only; the layer runs again, attention and its transfers included
enum class Recompute : std::uint8_t { none, selective, full };
std::string_view to_string(Recompute);
Recompute parse_recompute(std::string_view, std::string_view where);

/// The tokens of one rank.
struct LocalTokens {
  std::int64_t tokens = 0;  // of one sequence: padded seq / P
  std::int64_t batch = 1;
  DType dtype = DType::bf16;
  [[nodiscard]] std::int64_t rows() const { return tokens * batch; }  // T
};

/// C[m,n] = A[m,k] B[k,n].
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  [[nodiscard]] FlopCount flops() const {
    return FlopCount(2.0 * static_cast<double>(m) * static_cast<double>(n) *
                     static_cast<double>(k));
  }
};
/// Bytes read and written. What it computes is not counted.
struct MemoryBound {
  Bytes touched{};
  [[nodiscard]] static FlopCount flops() { return FlopCount(0); }
};
/// Attention from the local tokens to the text, which is on every rank: all pairs.
struct CrossAttention {
  AttentionCall call;
  std::int64_t queries = 0, keys = 0;  // of one sequence
  std::int64_t batch = 1;
  Phase phase = Phase::forward;
  [[nodiscard]] FlopCount flops() const;
};

/// What a kernel does for its operation. `sum` adds two gradients of the tensor `name`.
enum class KernelRole : std::uint8_t {
  forward,
  backward,
  input_gradient,
  weight_gradient,
  bias_gradient,
  sum
};

struct LayerKernel {
  std::string_view name;  // of its operation
  KernelRole role = KernelRole::forward;
  std::variant<GemmShape, MemoryBound, CrossAttention> work;
};
/// "qkv", "d qkv input", "d qkv weight", "d qkv bias", "d rope", "d input sum".
std::string to_string(const LayerKernel& kernel);

std::vector<LayerKernel> forward_kernels(const TensorOps& ops, const LocalTokens& local);
std::vector<LayerKernel> backward_kernels(const TensorOps& ops, const LocalTokens& local);
/// What runs again in the backward.
std::vector<LayerKernel> recomputed_kernels(const TensorOps& ops, const LocalTokens& local,
                                            Recompute recompute);

FlopCount flops_of(std::span<const LayerKernel> kernels);

}  // namespace spp
