// What one rank has of a list of tensor operations, and between which of them it needs the others.
//
// A tensor-parallel group of t ranks works on the same tokens. How it holds each tensor, the tensor
// says (Cut); a part is rounded up to whole units and rows. From that follow
//   a gather    where an operation reads a tensor cut by rows and writes one cut by width: each
//               rank needs all rows. Its gradient is a sum over the ranks: reduce-scattered.
//               Likewise where every rank computes all rows (an indexer's GEMMs, whose inputs get
//               no gradient: Megatron-LM #2440 gathers them).
//   a scatter   behind a row-parallel GEMM, or a table cut by words, whose results are sums over
//               the ranks: reduce-scattered to rows, their gradients gathered again.
// Without sequence parallelism what is cut by rows is whole on every rank: nothing is gathered, and
// the sums are all-reduced.
//
// Each rank routes its own tokens (without sequence parallelism all ranks the same: Megatron-Core
// refuses that for experts in training). Groups of experts lie on `expert` ranks, between which
// routed rows are exchanged, or all rows gathered (Dispatcher); `expert_tensor` ranks share each
// expert, and the rows that came to all of them.
#pragma once

#include "base/units.hpp"
#include "schedule/problem.hpp"
#include "transformer/layer.hpp"

#include <compare>
#include <cstdint>

namespace spp {

/// Ranks that share a layer.
struct LayerSplit {
  int tensor = 1;
  bool sequence_parallel = true;  // of a tensor-parallel group
  int expert = 1;                 // groups of experts
  int expert_tensor = 1;          // ranks that share each expert
  /// All experts are on ranks that have copies of the same tokens, each of which takes from its own
  /// what is its experts'.
  [[nodiscard]] bool has_experts_beside() const {
    return !sequence_parallel && tensor % (expert * expert_tensor) == 0;
  }
  /// Tokens go to experts on other ranks.
  [[nodiscard]] bool sends_to_experts() const {
    return expert * expert_tensor > 1 && !has_experts_beside();
  }
  friend auto operator<=>(const LayerSplit&, const LayerSplit&) = default;
};

/// The tokens of one tensor-parallel group.
struct LocalTokens {
  std::int64_t tokens = 0;  // of one sequence: padded seq / context-parallel degree
  std::int64_t batch = 1;
  DType dtype = DType::bf16;
  LayerSplit split{};
  std::int64_t joint = 0;  // of `tokens`: the text's (Model::diffusion)
  /// Of a prefill: tokens in front of the sequence whose keys and values a rank has, counted with
  /// all heads (of a part of the heads as so many fewer). From what else is cached of them, a
  /// latent, they are projected up again.
  std::int64_t cached = 0;
  double routed_excess = 1;  // rows that the fullest rank's experts receive, over the mean
  /// Bytes of what GEMMs keep of their inputs, over those in `dtype`: less than 1 where they keep
  /// them as they multiplied them, in fewer bits.
  double stored = 1;
  bool wide_attention = false;  // but not the GEMMs around attention
  /// All rows of what a GEMM gathered stay for its weight's gradient; else a rank keeps its own,
  /// and gathers again.
  bool gathered_kept = false;
  [[nodiscard]] std::int64_t rows() const { return tokens * batch; }
  friend auto operator<=>(const LocalTokens&, const LocalTokens&) = default;
};

/// Refers to `ops` and `local`.
class LocalShapes {
 public:
  LocalShapes(const TensorOps& ops, const LocalTokens& local);

  /// Rows and width of a tensor on this rank.
  [[nodiscard]] std::int64_t rows(LayerTensorId id) const;
  [[nodiscard]] std::int64_t width(LayerTensorId id) const;
  /// Rows on the ranks that share its tokens.
  [[nodiscard]] std::int64_t all_rows(LayerTensorId id) const;
  [[nodiscard]] Bytes bytes(LayerTensorId id) const { return sized(rows(id), id); }
  [[nodiscard]] Bytes bytes(const LayerTensors& ids) const;
  [[nodiscard]] Bytes all_bytes(LayerTensorId id) const { return sized(all_rows(id), id); }
  /// With a row for each token.
  [[nodiscard]] Bytes token_bytes(LayerTensorId id) const { return sized(local_->rows(), id); }
  /// Of all rows of an operation that gathers or scatters, `width` of `id`: of entries, all there
  /// are.
  [[nodiscard]] Bytes all_bytes(const TensorOp& op, LayerTensorId id) const {
    return sized(all_rows(ops_->at(id).rows == Rows::entries ? id : op.writes[0]), id);
  }
  /// What attention, norms keep besides.
  [[nodiscard]] Bytes statistics(const TensorOp& op) const;
  [[nodiscard]] std::int64_t heads(std::int64_t all) const;
  [[nodiscard]] AttentionCall heads(const AttentionCall& call) const;
  [[nodiscard]] StateScan heads(const StateScan& scan) const;

  /// Reads all rows of what each rank has a part of.
  [[nodiscard]] bool gathers(const TensorOp& op, LayerTensorId read) const;
  /// Every rank computes all rows of what it writes.
  [[nodiscard]] bool repeats(const TensorOp& op) const;
  /// The gradient that it gives `read` is this rank's part of a sum.
  [[nodiscard]] bool partial_gradient(const TensorOp& op, LayerTensorId read) const;
  /// What it writes is this rank's part of a sum.
  [[nodiscard]] bool partial_sum(const TensorOp& op) const;
  /// Of `all` experts.
  [[nodiscard]] std::int64_t experts(std::int64_t all) const;
  /// Experts are on several ranks.
  [[nodiscard]] bool exchanges() const;
  [[nodiscard]] bool sequence_parallel() const { return local_->split.sequence_parallel; }

  [[nodiscard]] const TensorOps& ops() const { return *ops_; }
  [[nodiscard]] const LocalTokens& local() const { return *local_; }

 private:
  /// Tokens whose norms and routes this rank computes. Where ranks that have copies of them
  /// exchange rows of experts, each does so for a part.
  [[nodiscard]] std::int64_t own_tokens() const;
  [[nodiscard]] Bytes sized(std::int64_t rows, LayerTensorId id) const;

  const TensorOps* ops_;
  const LocalTokens* local_;
};

/// Weights of one rank.
std::int64_t weights_of(const TensorOp& op, const TensorOps& ops, const LayerSplit& split);
std::int64_t weights_of(const TensorOps& ops, const LayerSplit& split);

}  // namespace spp
