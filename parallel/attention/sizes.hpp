// What closed forms are made of: the sizes of one plan, computed once, without loops or allocation.
//
// The rank with most. Heads: Ulysses part 0 (uneven heads: the larger parts come first). Allowed
// pairs, where a rank computes its own queries against all keys: the last ring chunk, under every
// layout and mask. A query sees min(position + 1, window) keys, which grows with the position
// (contiguous, striped), and is concave, so of two mirrored chunks (zigzag) the middle pair has
// most.
#pragma once

#include "parallel/attention/closed_form.hpp"
#include "schedule/mesh.hpp"

namespace spp::strategies {

/// Bytes of one tensor tile: with query heads q or d_q, out or d_out, and lse or delta (fp32); with
/// KV heads k or d_k, v or d_v. Values, and what is summed of them, may be narrower than keys.
struct Tiles {
  Bytes q, k, v, out, lse;
  [[nodiscard]] Bytes kv() const { return k + v; }
};

struct Sizes {
  Sizes(const Problem& requested, const SequencePlan& plan, const BuildOptions& options);

  Problem problem;  // padded
  HeadSplit split;
  DType gradient = DType::fp32;
  std::int64_t home = 0;  // tokens of one rank
  std::int64_t ring = 0;  // tokens of one ring rank: home * U
  std::int64_t team = 0;  // tokens of a team: ring * C

  /// `tokens` x the heads of the rank with most; problem.dtype. Of keys and values also their part
  /// of the cached ones.
  [[nodiscard]] Tiles busiest(std::int64_t tokens) const;
  /// `tokens` x all heads, as a rank holds them at home; of keys and values their part of the
  /// cached ones, unless Ulysses ranks hold these by heads.
  [[nodiscard]] Tiles all_heads(std::int64_t tokens) const;
  /// `tokens` x the heads of all Ulysses parts together: replicated KV heads count once a copy.
  [[nodiscard]] Tiles all_parts(std::int64_t tokens) const;
  /// The same without the cached ones: what the all-to-alls of compose() move.
  [[nodiscard]] Tiles dealt_parts(std::int64_t tokens) const;
  /// The same tile in the dtype of travelling gradients, and in fp32.
  [[nodiscard]] Bytes wide(Bytes tile) const { return in(gradient, tile); }
  [[nodiscard]] Bytes fp32(Bytes tile) const { return in(DType::fp32, tile); }
  /// What is scratch only if the Ulysses frame stands around the core: else it is the caller's.
  [[nodiscard]] Bytes framed(Bytes tile) const { return split.parts() > 1 ? tile : Bytes(0); }
  /// The same of keys or values, which then go into the cache, if there is one.
  [[nodiscard]] Bytes framed_kv(Bytes tile) const {
    return problem.cached > 0 ? Bytes(0) : framed(tile);
  }

  /// Inputs and outputs of compose() on the rank with most, but for lse, which the core declares.
  [[nodiscard]] Bytes inputs_and_outputs(Phase phase) const;
  /// Most scratch that the all-to-alls of compose() take, before and after the core.
  [[nodiscard]] Bytes frame_peak(Phase phase) const;
  /// FLOPs of `pairs` allowed pairs on `heads` heads.
  [[nodiscard]] FlopCount flops(std::int64_t pairs, int heads, Phase phase) const;

 private:
  struct Rows {
    std::int64_t queries, keys;
  };
  /// So many tokens of the sequence, and their part of the cached ones.
  [[nodiscard]] Rows with_cached(std::int64_t tokens) const {
    return {.queries = tokens, .keys = tokens * problem.end() / problem.seq};
  }
  static Rows of_sequence(std::int64_t tokens) { return {.queries = tokens, .keys = tokens}; }
  [[nodiscard]] Tiles tiles(Rows of, std::int64_t q_heads, std::int64_t kv_heads) const;
  [[nodiscard]] Bytes in(DType dtype, Bytes tile) const {
    return tile / size_of(problem.dtype) * size_of(dtype);
  }
};

/// Steps of a rotation in which some rank needs the block that has come to it. Under a window over
/// contiguous chunks only those of the chunks just before, however long the ring is.
std::int64_t rotation_steps(const Problem& padded, const SequencePlan& plan);

/// FLOPs of all ranks (every allowed pair once, padded heads too) and the four all-to-alls of
/// compose().
ClosedForm frame_form(const Sizes& sizes, const SequencePlan& plan, Phase phase);

/// frame_form() and the busiest rank of a core in which each ring rank computes its own queries
/// against the blocks of all ring ranks, one kernel a block that the mask does not hide.
/// Precondition: a window mask has at least 2 tokens (with 1 no block but the own one is needed and
/// buffers die earlier: peak_buffers is then an upper bound).
ClosedForm ring_form(const Sizes& sizes, const SequencePlan& plan, Phase phase);

}  // namespace spp::strategies
