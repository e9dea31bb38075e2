// All-gather context parallelism. Llama 3 (arXiv:2407.21783, section 3.3.2), Megatron-LM
// --cp-comm-type allgather, TransformerEngine AttnFuncWithCPAndKVAllGather.
//
// k and v of the whole ring dimension are gathered once, put into sequence order, and each of the
// rank's (one or two) chunks attends to the prefix that it may see: no merge, no overlap, full k
// and v in memory. Backward gathers again and reduce-scatters d_k and d_v.
//
//   R = 4, zigzag:  rank 1 holds chunks 1 and 6 of 8;  chunk 1 x keys 0..1,  chunk 6 x keys 0..6
//
// Layouts that deal documents out are the same, a piece of every document for a token: "sequence
// order" is then the order of the pieces, and a chunk's prefix all earlier pieces. Balanced chunks
// (WLB-LLM's per-document sharding, MagiAttention's dispatch) are up to eight calls a rank.
//
// Combines with Ulysses (the gather then runs over the ring dimension on this rank's heads).
//
// Bytes sent per rank: forward blocks of k and v; backward the same again, and R-1 blocks of
// d_k and d_v. FLOPs as Ring Attention. Memory: k and v of the whole sequence; while v is reordered
// (zigzag) one more; backward also parts and sums of d_k and d_v.
#include "parallel/attention/compose.hpp"
#include "parallel/attention/sizes.hpp"
#include "parallel/attention/strategy.hpp"
#include "schedule/balanced.hpp"

#include <algorithm>
#include <array>

namespace spp::strategies::all_gather {
namespace {

/// What ranks hold follows each other in the sequence.
bool in_order(const Problem& problem, const SequencePlan& plan) {
  return chunk_layout(plan.layout) == Layout::contiguous && problem.cached == 0;
}

Bytes scratch_peak(const Sizes& s, const SequencePlan& plan, Phase phase) {
  const Tiles own = s.busiest(s.ring);
  const Tiles all = s.busiest(s.problem.seq);
  if (phase ==
      Phase::backward) {  // at the kernel: d_out, d_q, delta, k, v, their parts, their sums
    return s.framed(own.out + own.q) + own.lse + all.kv() * 2 + s.wide(all.kv());
  }
  const Bytes kernel = s.framed(own.q + own.out) + all.kv();
  const Bytes gathering = s.framed(own.q) + s.framed_kv(own.kv()) + all.k;
  if (in_order(s.problem, plan)) {
    return std::max(kernel, gathering);
  }
  // While k, or v, is put in order.
  const Bytes ordering = std::max(s.framed_kv(own.v) + all.k * 2, all.k + all.v * 2);
  return std::max({kernel, gathering, s.framed(own.q) + ordering});
}

/// Chunks of the rank with most that do not continue each other.
std::int64_t calls_of(const Sizes& s, const SequencePlan& plan) {
  if (s.problem.mask.kind == MaskKind::full) {
    return 1;
  }
  std::int64_t most = chunk_layout(plan.layout) == Layout::zigzag ? 2 : 1;
  if (plan.layout == Layout::balanced) {
    for (const TokenSet& chunks : balanced_chunks(s.problem, plan.ring)) {
      most = std::max<std::int64_t>(most, std::ssize(chunks.ranges()));
    }
  }
  return most;
}

ClosedForm closed_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                       const BuildOptions& options) {
  const Sizes s(requested, plan, options);
  ClosedForm form = ring_form(s, plan, phase);
  form.attention_calls = calls_of(s, plan);
  form.calls_of_busiest = plan.layout != Layout::balanced;
  const std::int64_t copies = std::int64_t{plan.ring} * (plan.ring - 1);
  const Bytes kv = s.all_parts(s.ring).kv() * copies;
  form.add({.kind = CommKind::all_gather,
            .axis = Axis::ring,
            .group_size = plan.ring,
            .calls = 2,
            .total = kv});
  if (phase == Phase::backward) {
    form.add({.kind = CommKind::reduce_scatter,
              .axis = Axis::ring,
              .group_size = plan.ring,
              .calls = 2,
              .total = s.wide(kv)});
  }
  form.peak_buffers = s.inputs_and_outputs(phase) + s.busiest(s.ring).lse +
                      std::max(scratch_peak(s, plan, phase), s.frame_peak(phase));
  return form;
}

std::string why_not_gather(const Problem&, const SequencePlan& plan) {
  return plan.ring < 2 ? "a ring of one rank has nothing to gather (that is Ulysses)" : "";
}

/// One kernel call: a chunk of queries against the keys it may see.
struct Call {
  TokenSet q, k;
};

/// Causal: one call per chunk, against its prefix (with a window: against what it sees). Full: one
/// call.
std::vector<Call> calls(const TokenSet& tokens, const Problem& problem) {
  const TokenSet all({.begin = 0, .count = problem.end()});
  if (problem.mask.kind == MaskKind::full) {
    return {{.q = tokens, .k = all}};
  }
  std::vector<Call> result;
  for (const TokenRange& range : tokens.ranges()) {
    result.push_back(
        {.q = TokenSet(range), .k = TokenSet({.begin = 0, .count = range.last() + 1})});
  }
  return result;
}

struct Gathered {
  BufferId k, v;
};

/// Gathers one tensor over the ring and puts it into sequence order.
BufferId gather(ProgramBuilder& b, const RankGroup& ring, const CoreContext& c, Tensor tensor,
                BufferId from) {
  const std::int64_t all = b.problem().end();
  const std::string name(to_string(tensor));
  const BufferId received = b.scratch(name + "_all_chunks", tensor, all, c.kv_heads.count());
  b.op(ring_stream, Collective{.kind = CollectiveKind::all_gather,
                               .group = ring,
                               .from = from,
                               .to = received,
                               .to_tokens = TokenSet({.begin = 0, .count = all}),
                               .to_heads = c.kv_heads});
  if (in_order(b.problem(), c.plan) || c.plan.ring == 1) {
    return received;
  }
  const BufferId ordered = b.scratch(name + "_all", tensor, all, c.kv_heads.count());
  b.op(compute, Copy{.kind = CopyKind::reorder, .from = received, .to = ordered});
  return ordered;
}

/// Sums one gradient over the ring; every rank keeps its own chunk.
void scatter(ProgramBuilder& b, const RankGroup& ring, const CoreContext& c, Tensor tensor,
             BufferId sum, BufferId to) {
  const std::string name(to_string(tensor));
  const DType wide = c.options.gradient;
  BufferId chunks = sum;
  if (chunk_layout(c.plan.layout) != Layout::contiguous) {
    chunks = b.scratch(name + "_chunks", tensor, b.problem().seq, c.kv_heads.count(), wide);
    b.op(compute, Copy{.kind = CopyKind::deal,
                       .from = sum,
                       .to = chunks,
                       .layout = c.plan.layout,
                       .chunks = c.plan.ring});
  }
  const BufferId mine =
      b.scratch(name + "_mine", tensor, c.tokens.count(), c.kv_heads.count(), wide);
  b.op(ring_stream, Collective{.kind = CollectiveKind::reduce_scatter,
                               .group = ring,
                               .from = chunks,
                               .to = mine,
                               .to_tokens = c.tokens,
                               .to_heads = c.kv_heads});
  b.op(compute, Copy{.kind = CopyKind::cast, .from = mine, .to = to});
}

BufferId gather_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                        ForwardBuffers io) {
  const RankGroup ring = mesh.ring_group(b.rank());
  const BufferId lse = b.output("lse", Tensor::lse, c.tokens, c.heads);
  const Gathered all{.k = gather(b, ring, c, Tensor::k, io.k),
                     .v = gather(b, ring, c, Tensor::v, io.v)};
  for (const Call& call : calls(c.tokens, b.problem())) {
    b.op(compute, AttentionForward{.q = io.q,
                                   .k = all.k,
                                   .v = all.v,
                                   .out = io.out,
                                   .lse = lse,
                                   .q_tokens = call.q,
                                   .k_tokens = call.k,
                                   .heads = c.heads,
                                   .kv_heads = c.kv_heads});
  }
  return lse;
}

Statistics gather_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                           BackwardBuffers io) {
  const RankGroup ring = mesh.ring_group(b.rank());
  const std::int64_t seq = b.problem().seq;
  const TokenSet everything({.begin = 0, .count = seq});
  const DType wide = c.options.gradient;
  const BufferId lse = b.input("lse", Tensor::lse, c.tokens, c.heads);
  const BufferId delta = b.scratch("delta", Tensor::delta, c.tokens.count(), c.heads.count());
  b.op(compute, RowDot{.out = io.out, .d_out = io.d_out, .delta = delta});
  const Gathered all{.k = gather(b, ring, c, Tensor::k, io.k),
                     .v = gather(b, ring, c, Tensor::v, io.v)};
  const BufferId k_part = b.scratch("d_k_part", Tensor::d_k, seq, c.kv_heads.count());
  const BufferId v_part = b.scratch("d_v_part", Tensor::d_v, seq, c.kv_heads.count());
  const BufferId k_sum = b.scratch("d_k_sum", Tensor::d_k, seq, c.kv_heads.count(), wide);
  const BufferId v_sum = b.scratch("d_v_sum", Tensor::d_v, seq, c.kv_heads.count(), wide);
  b.op(compute, Fill{.buffer = k_sum, .tokens = everything, .heads = c.kv_heads});
  b.op(compute, Fill{.buffer = v_sum, .tokens = everything, .heads = c.kv_heads});
  for (const Call& call : calls(c.tokens, b.problem())) {
    b.op(compute, AttentionBackward{.q = io.q,
                                    .k = all.k,
                                    .v = all.v,
                                    .d_out = io.d_out,
                                    .lse = lse,
                                    .delta = delta,
                                    .d_q = io.d_q,
                                    .d_k = k_part,
                                    .d_v = v_part,
                                    .q_tokens = call.q,
                                    .k_tokens = call.k,
                                    .heads = c.heads,
                                    .kv_heads = c.kv_heads});
    b.op(compute, Accumulate{.sum = k_sum, .part = k_part, .tokens = call.k});
    b.op(compute, Accumulate{.sum = v_sum, .part = v_part, .tokens = call.k});
  }
  scatter(b, ring, c, Tensor::d_k, k_sum, io.d_k);
  scatter(b, ring, c, Tensor::d_v, v_sum, io.d_v);
  return {.lse = lse, .delta = delta};
}

Schedule build(const Problem& problem, const SequencePlan& plan, Phase phase,
               const BuildOptions& options) {
  return compose(problem, plan, phase, options,
                 {.forward = gather_forward, .backward = gather_backward, .ring_symmetric = true});
}

constexpr std::array layouts{Layout::zigzag, Layout::contiguous, Layout::document_zigzag,
                             Layout::document_contiguous, Layout::balanced};

}  // namespace

extern const Strategy entry{
    .name = "all-gather",
    .title = "All-gather context parallelism",
    .paper = "Llama 3, arXiv:2407.21783; Megatron-LM",
    .degrees = {.ulysses = true, .ring = true},
    .layouts = layouts,
    .why_not = why_not_gather,
    .build = build,
    .closed_form = closed_form,
    .behind_cache = true,
    .gathers_keys = true,
};

}  // namespace spp::strategies::all_gather
