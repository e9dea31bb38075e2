#include "parallel/attention/rotation.hpp"

#include "parallel/attention/sizes.hpp"

#include <algorithm>

namespace spp::strategies {
namespace {

/// The ring of one rank: who is next, and whose tokens a rank holds at step i.
struct Walk {
  int ring = 1;
  int position = 0;
  std::int64_t steps = 1;
  Rank next, previous;
  Rank lender, borrower;  // whose block is here in the last step; where this rank's then is
  Problem problem;
  Layout layout = Layout::contiguous;

  Walk(const ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c)
      : ring(c.plan.ring), problem(b.problem()), layout(c.plan.layout) {
    const RankGroup group = mesh.ring_group(b.rank());
    position = mesh.at(b.rank()).position;
    steps = rotation_steps(problem, c.plan);
    next = group.rank((position + 1) % ring);
    previous = group.rank((position + ring - 1) % ring);
    const auto last = static_cast<int>(steps - 1);
    lender = group.rank((position + ring - last) % ring);
    borrower = group.rank((position + last) % ring);
  }
  [[nodiscard]] TokenSet block(std::int64_t step) const {
    const auto owner = static_cast<int>((position - step % ring + ring) % ring);
    return chunk_of_keys(problem, layout, owner, ring);
  }
};

/// A buffer pair that alternates; with one partner only, the second is never used.
struct Slots {
  BufferId k[2], v[2];
};

Slots slots(ProgramBuilder& b, const CoreContext& c, std::string_view prefix, Tensor k, Tensor v,
            DType dtype, int count) {
  Slots s;
  for (int i = 0; i < 2; ++i) {
    const bool own = i < count;
    s.k[i] = own ? b.scratch(fmt::format("{}k{}", prefix, i), k, c.keys.count(), c.kv_heads.count(),
                             dtype)
                 : s.k[0];
    s.v[i] = own ? b.scratch(fmt::format("{}v{}", prefix, i), v, c.keys.count(), c.kv_heads.count(),
                             dtype)
                 : s.v[0];
  }
  return s;
}

}  // namespace

BufferId rotate_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                        ForwardBuffers io) {
  const Walk walk(b, mesh, c);
  const std::int64_t steps = walk.steps;
  const BufferId lse = b.output("lse", Tensor::lse, c.tokens, c.heads);
  const AttentionForward attend{.q = io.q,
                                .k = io.k,
                                .v = io.v,
                                .out = io.out,
                                .lse = lse,
                                .q_tokens = c.tokens,
                                .k_tokens = c.keys,
                                .heads = c.heads,
                                .kv_heads = c.kv_heads};
  if (steps == 1) {
    b.op(compute, attend);
    return lse;
  }
  const Slots arriving =
      slots(b, c, "", Tensor::k, Tensor::v, b.problem().dtype, steps > 2 ? 2 : 1);
  const std::int64_t tokens = c.tokens.count();
  const BufferId sum = b.scratch("out_sum", Tensor::out, tokens, c.heads.count(), DType::fp32);
  const BufferId part = b.scratch("out_part", Tensor::out, tokens, c.heads.count());
  const BufferId part_lse = b.scratch("lse_part", Tensor::lse, tokens, c.heads.count());

  b.loop(steps, [=](std::int64_t i, OpList& ops) {
    const auto held = static_cast<std::size_t>((i + 1) % 2);
    const auto free = static_cast<std::size_t>(i % 2);
    const BufferId k = i == 0 ? io.k : arriving.k[held];
    const BufferId v = i == 0 ? io.v : arriving.v[held];
    if (i + 1 < steps) {
      ops.emplace_back(ring_stream, Exchange{.to = walk.next,
                                             .from = walk.previous,
                                             .send = {k, v},
                                             .receive = {arriving.k[free], arriving.v[free]}});
    }
    const Section section = needed_section(c.tokens, walk.block(i), walk.problem.mask, c.options);
    if (section.empty()) {
      return;
    }
    AttentionForward block = attend;
    block.k = k;
    block.v = v;
    block.out = part;
    block.lse = part_lse;
    block.q_tokens = section.q;
    block.k_tokens = section.k;
    ops.emplace_back(compute, block);
    ops.emplace_back(compute, Merge{.out = sum,
                                    .lse = lse,
                                    .part_out = part,
                                    .part_lse = part_lse,
                                    .tokens = section.q,
                                    .initial = i == 0});
  });
  b.op(compute, Copy{.kind = CopyKind::cast, .from = sum, .to = io.out});
  return lse;
}

Statistics rotate_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                           BackwardBuffers io) {
  const Walk walk(b, mesh, c);
  const std::int64_t steps = walk.steps;
  const std::int64_t tokens = c.tokens.count();
  const BufferId lse = b.input("lse", Tensor::lse, c.tokens, c.heads);
  const BufferId delta = b.scratch("delta", Tensor::delta, tokens, c.heads.count());
  b.op(compute, RowDot{.out = io.out, .d_out = io.d_out, .delta = delta});
  const AttentionBackward attend{.q = io.q,
                                 .k = io.k,
                                 .v = io.v,
                                 .d_out = io.d_out,
                                 .lse = lse,
                                 .delta = delta,
                                 .d_q = io.d_q,
                                 .d_k = io.d_k,
                                 .d_v = io.d_v,
                                 .q_tokens = c.tokens,
                                 .k_tokens = c.tokens,
                                 .heads = c.heads,
                                 .kv_heads = c.kv_heads};
  if (steps == 1) {
    b.op(compute, attend);
    return {.lse = lse, .delta = delta};
  }
  const DType wide = c.options.gradient;
  const Slots arriving =
      slots(b, c, "", Tensor::k, Tensor::v, b.problem().dtype, steps > 2 ? 2 : 1);
  const Slots travelling = slots(b, c, "d_", Tensor::d_k, Tensor::d_v, wide, 2);
  const BufferId q_sum = b.scratch("d_q_sum", Tensor::d_q, tokens, c.heads.count(), wide);
  const BufferId q_part = b.scratch("d_q_part", Tensor::d_q, tokens, c.heads.count());
  const BufferId k_part = b.scratch("d_k_part", Tensor::d_k, tokens, c.kv_heads.count());
  const BufferId v_part = b.scratch("d_v_part", Tensor::d_v, tokens, c.kv_heads.count());
  const auto pass = [=](std::int64_t i, Rank target, Rank source) {  // the gradients of step i-1
    const auto from = static_cast<std::size_t>((i + 1) % 2);
    const auto to = static_cast<std::size_t>(i % 2);
    return Op{gradient_stream, Exchange{.to = target,
                                        .from = source,
                                        .send = {travelling.k[from], travelling.v[from]},
                                        .receive = {travelling.k[to], travelling.v[to]}}};
  };

  b.loop(steps, [=](std::int64_t i, OpList& ops) {
    const auto held = static_cast<std::size_t>((i + 1) % 2);
    const auto free = static_cast<std::size_t>(i % 2);
    AttentionBackward block = attend;
    block.k = i == 0 ? io.k : arriving.k[held];
    block.v = i == 0 ? io.v : arriving.v[held];
    if (i > 0) {
      ops.push_back(pass(i, walk.next, walk.previous));
    }
    if (i + 1 < steps) {
      ops.emplace_back(ring_stream, Exchange{.to = walk.next,
                                             .from = walk.previous,
                                             .send = {block.k, block.v},
                                             .receive = {arriving.k[free], arriving.v[free]}});
    }
    const Section section = needed_section(c.tokens, walk.block(i), walk.problem.mask, c.options);
    if (section.empty()) {
      return;
    }
    block.d_q = q_part;
    block.d_k = k_part;
    block.d_v = v_part;
    block.q_tokens = section.q;
    block.k_tokens = section.k;
    ops.emplace_back(compute, block);
    ops.emplace_back(
        compute, Accumulate{.sum = q_sum, .part = q_part, .tokens = section.q, .initial = i == 0});
    ops.emplace_back(
        compute,
        Accumulate{
            .sum = travelling.k[free], .part = k_part, .tokens = section.k, .initial = i == 0});
    ops.emplace_back(
        compute,
        Accumulate{
            .sum = travelling.v[free], .part = v_part, .tokens = section.k, .initial = i == 0});
  });
  const auto home = static_cast<std::size_t>(steps % 2);
  b.once([=](OpList& ops) {
    ops.push_back(pass(steps, walk.lender, walk.borrower));
    ops.emplace_back(compute, Copy{.kind = CopyKind::cast, .from = q_sum, .to = io.d_q});
    ops.emplace_back(compute,
                     Copy{.kind = CopyKind::cast, .from = travelling.k[home], .to = io.d_k});
    ops.emplace_back(compute,
                     Copy{.kind = CopyKind::cast, .from = travelling.v[home], .to = io.d_v});
  });
  return {.lse = lse, .delta = delta};
}

Schedule build_rotation(const Problem& problem, const SequencePlan& plan, Phase phase,
                        const BuildOptions& options) {
  return compose(problem, plan, phase, options,
                 {.forward = rotate_forward,
                  .backward = rotate_backward,
                  .ring_symmetric = true,
                  .ring_alike = true});
}

std::string rotation_why_not(const Problem&, const SequencePlan& plan) {
  return plan.ring < 2 ? "a ring of one rank has no neighbour" : "";
}

}  // namespace spp::strategies
