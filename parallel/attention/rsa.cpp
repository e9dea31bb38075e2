// Ring Self-Attention. Li, Xue, Baranwal, Li, You (arXiv:2105.13120, section 3.2 and figure 3): the
// first ring, from before online softmax, kept as the baseline of history.
//
// Keys go round the ring once and every rank writes its whole rows of scores; a softmax of whole
// rows; then values go round. The backward passes values (d_weights) and keys (d_q) round again;
// d_v and d_k of the whole sequence are made in one product each and summed over the ring.
//
//   R = 4, rank 1 of forward:   k1 k0 k3 k2 -> scores [N/4, N] -> softmax -> v1 v0 v3 v2 -> out
//
// Its memory wall: the rows of scores, N/R x N a head, kept as weights for the backward. All pairs
// are multiplied, masked or not.
// Deviations: scores and their gradients are fp32 (the softmax of mixed-precision training is); d_k
// and d_v are reduce-scattered, where ColossalAI's code all-reduces them and each rank keeps its
// part.
//
// Closed form (per rank): forward R-1 hops of k and R-1 of v; backward the same, and R-1 blocks of
// d_k and of d_v. FLOPs: 2 products of N/R x N pairs forward, 4 backward.
#include "parallel/attention/compose.hpp"
#include "parallel/attention/sizes.hpp"
#include "parallel/attention/strategy.hpp"

#include <algorithm>
#include <array>

namespace spp::strategies::rsa {
namespace {

/// Blocks of one tensor that go round: at step i a rank holds that of the rank i before it.
struct Round {
  int ring = 1;
  int position = 0;
  std::int64_t seq = 0;
  Rank next, previous;
  BufferId own;
  std::array<BufferId, 2> arriving;

  Round(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c, Tensor tensor,
        BufferId home)
      : ring(c.plan.ring), position(mesh.at(b.rank()).position), seq(b.problem().seq), own(home) {
    const RankGroup group = mesh.ring_group(b.rank());
    next = group.rank((position + 1) % ring);
    previous = group.rank((position + ring - 1) % ring);
    const std::string name(to_string(tensor));
    for (std::size_t i = 0; i < arriving.size(); ++i) {
      const bool used = static_cast<int>(i) < ring - 1;
      arriving.at(i) = used ? b.scratch(fmt::format("{}{}", name, i), tensor, c.tokens.count(),
                                        c.kv_heads.count())
                            : arriving[0];
    }
  }

  [[nodiscard]] TokenSet block(std::int64_t step) const {
    const auto owner = static_cast<int>((position - step + ring) % ring);
    return chunk_tokens(seq, Layout::contiguous, owner, ring);
  }
};

/// Runs `kernel` on each block: its `held` buffer is the block's, its keys are the block's tokens.
template <class Op>
void pass_round(ProgramBuilder& b, const Round& round, const Op& kernel, BufferId Op::* held) {
  b.loop(round.ring, [round, kernel, held](std::int64_t i, OpList& ops) {
    Op of_block = kernel;
    of_block.*held = i == 0 ? round.own : round.arriving.at(static_cast<std::size_t>((i + 1) % 2));
    of_block.k_tokens = round.block(i);
    of_block.initial = i == 0;
    if (i + 1 < round.ring) {
      ops.push_back(
          {ring_stream, Exchange{.to = round.next,
                                 .from = round.previous,
                                 .send = {of_block.*held},
                                 .receive = {round.arriving.at(static_cast<std::size_t>(i % 2))}}});
    }
    ops.push_back({compute, of_block});
  });
}

/// Products of this rank's rows with all columns, which go round.
void pass_scores(ProgramBuilder& b, const Round& round, const CoreContext& c, BufferId rows,
                 BufferId to) {
  pass_round(b, round,
             Scores{.rows = rows,
                    .columns = {},
                    .to = to,
                    .q_tokens = c.tokens,
                    .k_tokens = {},
                    .heads = c.heads,
                    .kv_heads = c.kv_heads},
             &Scores::columns);
}

/// Sums over all values, which go round.
void pass_sums(ProgramBuilder& b, const Round& round, const CoreContext& c, BufferId weights,
               BufferId to) {
  pass_round(b, round,
             Weigh{.weights = weights,
                   .values = {},
                   .to = to,
                   .q_tokens = c.tokens,
                   .k_tokens = {},
                   .heads = c.heads,
                   .kv_heads = c.kv_heads},
             &Weigh::values);
}

BufferId rsa_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                     ForwardBuffers io) {
  const std::int64_t tokens = c.tokens.count();
  const BufferId weights = b.output("weights", Tensor::weights, c.tokens, c.heads);
  const BufferId scores = b.scratch("scores", Tensor::scores, tokens, c.heads.count());
  pass_scores(b, Round(b, mesh, c, Tensor::k, io.k), c, io.q, scores);
  b.op(compute, Softmax{.scores = scores, .weights = weights, .tokens = c.tokens});
  const BufferId sum = b.scratch("out_sum", Tensor::out, tokens, c.heads.count(), DType::fp32);
  pass_sums(b, Round(b, mesh, c, Tensor::v, io.v), c, weights, sum);
  b.op(compute, Copy{.kind = CopyKind::cast, .from = sum, .to = io.out});
  return {};
}

/// The gradient of all keys or values from this rank's queries, summed over the ring.
void sum_back(ProgramBuilder& b, const RankGroup& ring, const CoreContext& c, Tensor tensor,
              BufferId weights, BufferId rows, BufferId to) {
  const std::int64_t seq = b.problem().seq;
  const std::string name(to_string(tensor));
  const DType wide = c.options.gradient;
  const BufferId sum = b.scratch(name + "_sum", tensor, seq, c.kv_heads.count(), wide);
  const BufferId mine =
      b.scratch(name + "_mine", tensor, c.tokens.count(), c.kv_heads.count(), wide);
  b.op(compute, WeighBack{.weights = weights,
                          .rows = rows,
                          .to = sum,
                          .q_tokens = c.tokens,
                          .k_tokens = TokenSet({.begin = 0, .count = seq}),
                          .heads = c.heads,
                          .kv_heads = c.kv_heads});
  b.op(gradient_stream, Collective{.kind = CollectiveKind::reduce_scatter,
                                   .group = ring,
                                   .from = sum,
                                   .to = mine,
                                   .to_tokens = c.tokens,
                                   .to_heads = c.kv_heads});
  b.op(compute, Copy{.kind = CopyKind::cast, .from = mine, .to = to});
}

Statistics rsa_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                        BackwardBuffers io) {
  const RankGroup ring = mesh.ring_group(b.rank());
  const std::int64_t tokens = c.tokens.count();
  const BufferId weights = b.input("weights", Tensor::weights, c.tokens, c.heads);
  const BufferId d_weights = b.scratch("d_weights", Tensor::d_weights, tokens, c.heads.count());
  const BufferId d_scores = b.scratch("d_scores", Tensor::d_scores, tokens, c.heads.count());
  pass_scores(b, Round(b, mesh, c, Tensor::v, io.v), c, io.d_out, d_weights);
  b.op(compute, SoftmaxBackward{.weights = weights, .d_weights = d_weights, .d_scores = d_scores});
  sum_back(b, ring, c, Tensor::d_v, weights, io.d_out, io.d_v);
  const BufferId sum = b.scratch("d_q_sum", Tensor::d_q, tokens, c.heads.count(), DType::fp32);
  pass_sums(b, Round(b, mesh, c, Tensor::k, io.k), c, d_scores, sum);
  b.op(compute, Copy{.kind = CopyKind::cast, .from = sum, .to = io.d_q});
  sum_back(b, ring, c, Tensor::d_k, d_scores, io.q, io.d_k);
  return {};
}

Bytes scratch_peak(const Sizes& s, const SequencePlan& plan, Phase phase) {
  const Tiles own = s.busiest(s.ring);
  const Bytes rows = own.q / s.problem.head_dim * s.problem.seq;  // of weights
  const int slots = plan.ring > 2 ? 2 : 1;
  if (phase == Phase::forward) {
    return std::max(s.fp32(rows) + own.k * slots, own.v * slots + s.fp32(own.out));
  }
  const Tiles all = s.busiest(s.problem.seq);
  // d_scores outlive the sum of d_v, not that of d_k.
  const Bytes summing =
      std::max({rows + s.wide(all.v + own.v), rows + s.wide(all.k), s.wide(all.k + own.k)});
  return std::max({s.fp32(rows) + own.v * slots, s.fp32(rows) + rows, summing,
                   rows + own.k * slots + s.fp32(own.q)});
}

ClosedForm closed_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                       const BuildOptions& options) {
  const Sizes s(requested, plan, options);
  const bool forward = phase == Phase::forward;
  ClosedForm form = frame_form(s, plan, phase);
  const double products = forward ? 2 : 4;
  const double pairs = static_cast<double>(s.ring) * static_cast<double>(s.problem.seq);
  form.busiest_flops = FlopCount(products * pairs * (s.problem.head_dim + s.problem.v_dim()) *
                                 s.problem.q_heads * static_cast<double>(s.problem.batch));
  form.flops = form.busiest_flops * plan.ring;
  form.attention_calls = std::int64_t{plan.ring} * 2 + (forward ? 0 : 2);
  const std::int64_t hops = plan.ring - 1;
  const Bytes kv = s.all_heads(s.ring).kv() * plan.ring;  // a hop of either, of all ranks
  form.add({.kind = CommKind::send_recv,
            .axis = Axis::ring,
            .group_size = plan.ring,
            .calls = hops * 2,
            .total = kv * hops});
  if (!forward) {
    form.add({.kind = CommKind::reduce_scatter,
              .axis = Axis::ring,
              .group_size = plan.ring,
              .calls = 2,
              .total = s.wide(kv) * hops});
  }
  form.kept = s.busiest(s.ring).q / s.problem.head_dim * s.problem.seq;  // weights
  form.peak_buffers = s.inputs_and_outputs(phase) - (forward ? Bytes(0) : s.busiest(s.ring).out) +
                      form.kept + scratch_peak(s, plan, phase);
  return form;
}

std::string why_not_rsa(const Problem& problem, const SequencePlan& plan) {
  if (plan.ring < 2) {
    return "a ring of one rank has no neighbour";
  }
  // What no memory holds is not counted either: sizes stay far below 2^63 bytes.
  constexpr double most = 1e17;
  const auto seq = static_cast<double>(problem.seq);
  const double rows = seq * seq / plan.ring * problem.q_heads *
                      static_cast<double>(problem.batch * size_of(DType::fp32));
  return rows > most ? fmt::format("whole rows of scores of {} tokens take {:.2g} TB a rank",
                                   problem.seq, rows * 1e-12)
                     : "";
}

Schedule build(const Problem& problem, const SequencePlan& plan, Phase phase,
               const BuildOptions& options) {
  return compose(problem, plan, phase, options,
                 {.forward = rsa_forward,
                  .backward = rsa_backward,
                  .ring_symmetric = true,
                  .keeps_out = false});
}

constexpr std::array layouts{Layout::contiguous};

}  // namespace

extern const Strategy entry{
    .name = "rsa",
    .title = "Ring Self-Attention",
    .paper = "arXiv:2105.13120",
    .degrees = {.ring = true},
    .layouts = layouts,
    .why_not = why_not_rsa,
    .build = build,
    .closed_form = closed_form,
    .no_sinks = "its softmax of whole rows has no attention sinks",
};

}  // namespace spp::strategies::rsa
