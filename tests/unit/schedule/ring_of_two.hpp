// The smallest schedule worth looking at: Ring Attention forward on two ranks, by hand. One hop,
// two attention kernels, a merge; full mask, so that both ranks do the same.
#pragma once

#include "schedule/builder.hpp"

#include <memory>

namespace spp::test {

inline Program ring_of_two_program(const Problem& problem, Rank rank) {
  constexpr StreamId compute{0};
  constexpr StreamId ring{1};
  const TokenSet mine = chunk_tokens(problem.seq, Layout::contiguous, rank.value, 2);
  const HeadRange heads{0, problem.q_heads};
  const HeadRange kv_heads{0, problem.kv_heads};
  ProgramBuilder b(problem, rank);
  const BufferId q = b.input("q", Tensor::q, mine, heads);
  const BufferId k = b.input("k", Tensor::k, mine, kv_heads);
  const BufferId v = b.input("v", Tensor::v, mine, kv_heads);
  const BufferId out = b.output("out", Tensor::out, mine, heads);
  const BufferId lse = b.output("lse", Tensor::lse, mine, heads);
  const BufferId k1 = b.scratch("k1", Tensor::k, mine.count(), problem.kv_heads);
  const BufferId v1 = b.scratch("v1", Tensor::v, mine.count(), problem.kv_heads);
  const BufferId part = b.scratch("part", Tensor::out, mine.count(), problem.q_heads);
  const BufferId part_lse = b.scratch("part_lse", Tensor::lse, mine.count(), problem.q_heads);

  const Rank other(1 - rank.value);
  b.op(ring, Exchange{.to = other, .from = other, .send = {k, v}, .receive = {k1, v1}});
  b.loop(2, [=](std::int64_t step, OpList& ops) {
    const Rank owner = step == 0 ? rank : other;
    const TokenSet keys = chunk_tokens(problem.seq, Layout::contiguous, owner.value, 2);
    ops.push_back({compute, AttentionForward{.q = q,
                                             .k = step == 0 ? k : k1,
                                             .v = step == 0 ? v : v1,
                                             .out = part,
                                             .lse = part_lse,
                                             .q_tokens = mine,
                                             .k_tokens = keys,
                                             .heads = heads,
                                             .kv_heads = kv_heads}});
    ops.push_back({compute, Merge{.out = out,
                                  .lse = lse,
                                  .part_out = part,
                                  .part_lse = part_lse,
                                  .tokens = mine,
                                  .initial = step == 0}});
  });
  return b.finish();
}

inline Schedule ring_of_two() {
  Schedule s;
  s.contract.attention = {.seq = 16,
                          .batch = 1,
                          .q_heads = 4,
                          .kv_heads = 2,
                          .head_dim = 8,
                          .mask = {.kind = MaskKind::full},
                          .dtype = DType::bf16};
  s.contract.requested = s.contract.attention;
  s.contract.requested.seq = 15;
  s.mesh = Mesh({{.name = "ring", .size = 2}});
  s.grain.heads = HeadSplit(s.contract.attention, 1, HeadPolicy::divide);
  s.streams = {"compute", "ring"};
  s.symmetry = {{.axis = "ring", .under = AxisMoves::rotations}};
  s.program = [problem = s.contract.attention](Rank rank) {
    return ring_of_two_program(problem, rank);
  };
  return s;
}

}  // namespace spp::test
