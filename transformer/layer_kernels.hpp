// The ops that a list of tensor operations is on one rank, kernels and transfers between the ranks
// that share the layer, and their FLOPs. Attention over the sequence is only named: its time is a
// schedule's.
//
// The order is Megatron-Core's (d98e8a64dd, megatron/core/tensor_parallel/layers.py). With sequence
// parallelism a layer's forward has all-gather, reduce-scatter, all-gather, reduce-scatter; its
// backward gathers the gradient in front of each row-parallel GEMM's, and at each column-parallel
// one the saved input again (only its rows were kept), beside the GEMM of the input's gradient,
// which is reduce-scattered beside the GEMM of the weight's.
#pragma once

#include "base/units.hpp"
#include "schedule/measure.hpp"
#include "transformer/layer.hpp"
#include "transformer/layer_split.hpp"
#include "transformer/recompute.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spp {

/// `groups` GEMMs in one kernel, [rows/groups, k] [k, n] each on average: rows of all groups.
/// For the gradient of the weights [k, rows/groups] [rows/groups, n], of as many FLOPs.
struct GroupedGemm {
  std::int64_t rows = 0, n = 0, k = 0, groups = 1;
  [[nodiscard]] FlopCount flops() const {
    return FlopCount(2.0 * static_cast<double>(rows) * static_cast<double>(n) *
                     static_cast<double>(k));
  }
};
/// Bytes read and written. What it computes is not counted; `function`: it is named where a
/// schedule could compute it (graph.hpp), and what the kernel that does touches is `by_kernel`; 0:
/// that of another op has it inside.
struct MemoryBound {
  Bytes touched{};
  std::optional<LayerFunction> function = std::nullopt;
  Bytes by_kernel{};
  [[nodiscard]] static FlopCount flops() { return FlopCount(0); }
};
/// Attention from tokens of the rank to keys that lie on it, too, all pairs: to the text, which is
/// on every rank, or among frames.
struct CrossAttention {
  AttentionCall call;                  // heads of this rank
  std::int64_t queries = 0, keys = 0;  // of one sequence
  std::int64_t batch = 1;
  Phase phase = Phase::forward;
  [[nodiscard]] FlopCount flops() const;
};
/// Where attention over the sequence runs. Its kernels, transfers and FLOPs are a schedule's; of
/// picked keys step/sparse_attention.hpp's.
struct SelfAttention {
  AttentionCall call;  // heads of this rank
  Phase phase = Phase::forward;
  [[nodiscard]] static FlopCount flops() { return FlopCount(0); }
};

/// Where an indexer picks the keys that attention behind it meets: its time is attention's
/// (step/sparse_attention.hpp), its FLOPs are model_flops.hpp's.
struct PickKernel {
  Indexer indexer;
  Phase phase = Phase::forward;
  [[nodiscard]] static FlopCount flops() { return FlopCount(0); }
};

/// The short convolution in front of linear attention. What it computes is not counted.
struct ConvolutionKernel {
  std::int64_t tokens = 0, batch = 1;  // of a sequence, sequences
  std::int64_t channels = 0;
  Phase phase = Phase::forward;
  [[nodiscard]] static FlopCount flops() { return FlopCount(0); }
};
/// Where linear attention carries its state through the rank's tokens. Its time and transfers are
/// step/linear_attention.hpp's.
struct ScanKernel {
  StateScan scan;           // heads of this rank
  std::int64_t tokens = 0;  // of all sequences
  Phase phase = Phase::forward;
  /// Backward each product has two gradients.
  [[nodiscard]] FlopCount flops() const;
};

enum class LayerAxis : std::uint8_t { tensor, expert, expert_tensor };
std::string_view to_string(LayerAxis);

/// Between the ranks of an axis. Bytes: all_gather, what all have then; reduce_scatter, what each
/// had before; all_reduce, the tensor; all_to_all, what one rank brings, its own part included.
struct LayerTransfer {
  CommKind kind = CommKind::all_gather;
  LayerAxis axis = LayerAxis::tensor;
  Bytes bytes{};
  [[nodiscard]] static FlopCount flops() { return FlopCount(0); }
};

/// What an op does for its operation. `sum` adds two gradients of the tensor `name`. A transfer has
/// the role of what it is for.
enum class KernelRole : std::uint8_t {
  forward,
  backward,
  input_gradient,
  weight_gradient,
  bias_gradient,
  sum
};

struct LayerOp {
  std::string_view name;  // of its operation
  KernelRole role = KernelRole::forward;
  std::variant<GemmShape, GroupedGemm, MemoryBound, CrossAttention, SelfAttention, PickKernel,
               ConvolutionKernel, ScanKernel, LayerTransfer>
      work;
  bool beside = false;  // a transfer that runs beside the next GEMM
  /// As its operation says: of a GEMM, of a row-wise kernel.
  bool stays_wide = false;
  InPosition in_position = InPosition::no;
};
/// "qkv", "d qkv input", "d qkv weight", "d qkv bias", "d rope", "d input sum"; of transfers
/// "qkv all_gather", "d qkv input reduce_scatter".
std::string to_string(const LayerOp& op);

std::vector<LayerOp> forward_ops(const TensorOps& ops, const LocalTokens& local);
std::vector<LayerOp> backward_ops(const TensorOps& ops, const LocalTokens& local);
/// What runs again in the backward.
std::vector<LayerOp> recomputed_ops(const TensorOps& ops, const LocalTokens& local,
                                    const Recomputation& recomputation,
                                    Replay replay = Replay::whole);
/// By operation of the list: whether a replay to the end runs it again.
std::vector<bool> runs_again(const TensorOps& ops, const Recomputation& recomputation);

FlopCount flops_of(std::span<const LayerOp> ops);

}  // namespace spp
