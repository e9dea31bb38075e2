// The suites of a calibration. All ranks of a transport call them together, all get the samples.
#pragma once

#include "runtime/calibrate/probes.hpp"
#include "runtime/kernels/attention.hpp"

#include <algorithm>

namespace spp::runtime {

/// Messages between neighbours (links.cpp):
///   ring      every rank of a node (scope intra), or every first rank of a node (inter), sends to
///             the next one and receives from the one before: what a ring's exchange does
///   pair      the first two ranks of a node (intra), the first ranks of the first two nodes
///             (inter): both ways at once, everybody else quiet
///   one_way   the first of these sends, the other one receives: shows what both ways at once cost.
///             The model's rates are those of both ways, as in rings and collectives. (Small
///             messages follow each other without waiting: not their latency.)
///   pairs     inter: every rank with its like in the next node
///   cpu       core `seconds` per byte that a rank sends, and receives, while all ranks exchange
///             and compute attention; the pace is noted beside it
std::vector<Series> links_suite(const Bench& bench, const AttentionBackend& kernels, DType dtype);

/// all_to_all, all_gather, reduce_scatter, all_reduce (collectives.cpp): in groups of neighbours of
/// every divisor of a node's ranks and in groups across nodes, all groups of a kind at the same
/// time, as the dimensions of a mesh use them. `size`: bytes that a rank sends in the call.
/// all_reduce inside nodes only: across them the model puts it together of the two that it is made
/// of (sim/all_reduce.hpp).
std::vector<Series> collectives_suite(const Bench& bench);

/// Attention kernels (attention.cpp), on as many ranks of a host as have a core of their own, since
/// the cores of a host slow each other down; cold operands, as a plan has them.
///   attention  the blocks, in sweeps over all of them, until every median's standard error is at
///              most 1 % or the budget is used up. The smallest of each phase whatever it takes; if
///              the budget does not suffice for all others, evenly spread ones by FLOPs, the
///              largest that it has room for first
///   pace       the block of pace.hpp, between all samples of the others
///   peak       one 512 wide head, where softmax hardly counts: close to a plain product; every
///              dtype that the kernels can do
std::vector<Series> attention_suite(const Bench& bench, const AttentionBackend& kernels,
                                    const std::vector<AttentionBlock>& blocks);

/// merge, accumulate, cast, copy, row_dot by bytes touched, and `op`: an op of the executor that
/// does next to nothing (elementwise.cpp). Of `shape`: heads, head_dim and dtype. The pace is noted
/// beside all but `op`.
std::vector<Series> elementwise_suite(const Bench& bench, const AttentionBackend& kernels,
                                      const Problem& shape);

/// The kernels of a layer beside attention, and of a step beside its layers (layer.cpp), as those
/// around attention; the pace is noted beside all.
///   gemm       forward and both gradients, of shapes with few and many rows, narrow, square and
///              wide, as many as go into the budget by rising FLOPs
///   rms_norm, rms_norm_backward, …, embedding, word_sums, adam, …   row-wise functions, by bytes
///              touched
/// Of `shape`: heads, head_dim and dtype.
std::vector<Series> layer_suite(const Bench& bench, const AttentionBackend& kernels,
                                const Problem& shape);

/// Whether this rank has a core of its own while the ranks behind it wait.
inline bool has_core(const Bench& bench) { return bench.place < bench.cores; }
/// Ranks of a host that have one.
inline int with_core(const Bench& bench) {
  return static_cast<int>(std::min<std::int64_t>(bench.cores, bench.sharing));
}
/// All ranks that have one.
inline Crew crew_of(const Bench& bench) {
  Crew crew{.works = {}, .active = with_core(bench)};
  for (int r = 0; r < bench.ranks(); ++r) {
    crew.works.push_back(r % bench.sharing < bench.cores);
  }
  return crew;
}

}  // namespace spp::runtime
