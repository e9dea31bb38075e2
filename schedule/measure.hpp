// Bytes and FLOPs of ops, derived from shapes: the one place where sizes are counted.
#pragma once

#include "base/units.hpp"
#include "schedule/schedule.hpp"

#include <array>
#include <cstdint>
#include <span>

namespace spp {

/// Communication by kind, as reported under comm_bytes_per_rank.
enum class CommKind : std::uint8_t {
  send_recv,
  all_to_all,
  all_gather,
  reduce_scatter,
  all_reduce
};
constexpr std::size_t comm_kinds = 5;
std::string_view to_string(CommKind);
CommKind comm_kind_of(const Transfer& transfer);

/// What ops are counted against: the shapes of one rank's program.
struct Shapes {
  const Problem* problem = nullptr;
  std::span<const Buffer> buffers;
  Rank rank;
};

/// Bytes that this rank sends to *other* ranks (local copies are free of network).
Bytes sent_bytes(const Transfer& transfer, const Shapes& shapes);
/// Bytes of an all-to-all that this rank sends to member `peer` of its group. 0 for itself.
Bytes sent_bytes_to(const Collective& op, int peer, const Shapes& shapes);

/// Matmul FLOPs of one (query, key) pair of one head (FlashAttention-2, arXiv:2307.08691, section
/// 4.1): forward S = Q K^T and P V; backward S again, dP = dO V^T, dQ, dK, dV. `qk` is the
/// head_dim of queries and keys, `v` that of values and outputs: 4 and 10 of them if they are
/// equal.
constexpr double flops_per_pair(Phase phase, double qk, double v) {
  return phase == Phase::forward ? 2 * (qk + v) : 6 * qk + 4 * v;
}

/// Tokens that kernels of linear attention work on pair by pair before they turn to states: what
/// flash-linear-attention's chunked kernels take (their default).
constexpr std::int64_t linear_chunk = 64;

/// Matmul FLOPs of linear attention of one head over `tokens` of its own block under a causal mask,
/// in chunks: every chunk's state is made and read, and its own pairs are met. Backward: both
/// states, three gradients from them, and five products of pairs.
double linear_flops(std::int64_t tokens, int head_dim, Phase phase);

/// Matmul FLOPs of an attention kernel: exact under the mask, flops_per_pair of each pair, for one
/// that is fused; products of whole rows of scores meet every pair of their block; linear_flops of
/// linear attention. 0 for others.
FlopCount attention_flops(const Kernel& kernel, const Shapes& shapes);

GemmShape gemm_shape(const Gemm& op, const Shapes& shapes);
/// Matmul FLOPs of any kernel: of attention, or of a linear layer.
FlopCount kernel_flops(const Kernel& kernel, const Shapes& shapes);

/// Bytes that a kernel reads and writes in device memory. 0 of fused softmax attention, which is
/// not bound by them.
Bytes touched_bytes(const Kernel& kernel, const Shapes& shapes);

/// Sums over the ops of a program.
struct Totals {
  std::array<Bytes, comm_kinds> sent{};  // by CommKind
  FlopCount flops{};
  friend bool operator==(const Totals&, const Totals&) = default;
};
Totals totals_of(const Program& program, const Problem& problem, Rank rank);

}  // namespace spp
