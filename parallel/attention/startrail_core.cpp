#include "parallel/attention/startrail_core.hpp"

#include <array>

namespace spp::strategies {
namespace {

/// Where a rank sits and whom it talks to.
struct Place {
  int sub_ring = 1, team_size = 1, position = 0, member = 0;
  Rank next, previous;
  Rank exchange_to, exchange_from;  // initial exchange
  Rank return_to, return_from;      // the query side's way home
  RankGroup team;
  TokenSet team_block;
  Problem problem;
  Layout layout = Layout::contiguous;

  Place(const ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c)
      : sub_ring(mesh.sub_ring()),
        team_size(mesh.team()),
        problem(b.problem()),
        layout(c.plan.layout) {
    const Coordinates at = mesh.at(b.rank());
    position = at.position;
    member = at.member;
    const int t = mesh.team_of(at);
    const int s_count = sub_ring;
    team = mesh.team_group(b.rank());
    team_block = mesh.team_tokens(problem, t);
    const RankGroup ring = mesh.ring_group(b.rank());
    next = ring.rank((position + 1) % s_count);
    previous = ring.rank((position + s_count - 1) % s_count);
    // Algorithm 2: to team m*S + T/C, member T mod C; so (T, m) hears from team C*s + m, member g.
    const int target_team = member * s_count + t / team_size;
    const int target_member = t % team_size;
    exchange_to = mesh.rank_of_team(at.ulysses, target_team, target_member);
    exchange_from = mesh.rank_of_team(at.ulysses, team_size * position + member, at.group);
    // After S-1 hops a block is one place before where it started.
    return_to = mesh.rank_of_team(at.ulysses, block_index(s_count - 1), at.group);
    return_from = mesh.rank_of_team(
        at.ulysses, member * s_count + (target_team % s_count + s_count - 1) % s_count,
        target_member);
  }
  /// The block that this rank works on at a step.
  [[nodiscard]] int block_index(std::int64_t step) const {
    return team_size * static_cast<int>((position - step + sub_ring) % sub_ring) + member;
  }
  [[nodiscard]] TokenSet block(std::int64_t step) const {
    return chunk_tokens(problem.seq, layout, block_index(step), team_size * sub_ring);
  }
};

BufferId gather(ProgramBuilder& b, const Place& place, std::string name, Tensor tensor,
                BufferId from, HeadRange heads) {
  const BufferId to = b.scratch(std::move(name), tensor, place.team_block.count(), heads.count());
  b.op(team_stream, Collective{.kind = CollectiveKind::all_gather,
                               .group = place.team,
                               .from = from,
                               .to = to,
                               .to_tokens = place.team_block,
                               .to_heads = heads});
  return to;
}

}  // namespace

BufferId startrail_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                           ForwardBuffers io) {
  const Place place(b, mesh, c);
  const std::int64_t steps = place.sub_ring;
  const std::int64_t tokens = place.team_block.count();
  const int heads = c.heads.count();
  const BufferId k_team = gather(b, place, "k_team", Tensor::k, io.k, c.kv_heads);
  const BufferId v_team = gather(b, place, "v_team", Tensor::v, io.v, c.kv_heads);
  std::array<BufferId, 2> k;
  std::array<BufferId, 2> v;
  for (std::size_t i = 0; i < 2; ++i) {
    k[i] = i == 0 || steps > 1
               ? b.scratch(fmt::format("k{}", i), Tensor::k, tokens, c.kv_heads.count())
               : k[0];
    v[i] = i == 0 || steps > 1
               ? b.scratch(fmt::format("v{}", i), Tensor::v, tokens, c.kv_heads.count())
               : v[0];
  }
  b.op(ring_stream, Exchange{.to = place.exchange_to,
                             .from = place.exchange_from,
                             .send = {k_team, v_team},
                             .receive = {k[0], v[0]}});
  const BufferId q_team = gather(b, place, "q_team", Tensor::q, io.q, c.heads);

  const BufferId sum = b.scratch("out_sum", Tensor::out, tokens, heads, DType::fp32);
  const BufferId sum_lse = b.scratch("lse_sum", Tensor::lse, tokens, heads);
  const BufferId part = b.scratch("out_part", Tensor::out, tokens, heads);
  const BufferId part_lse = b.scratch("lse_part", Tensor::lse, tokens, heads);
  b.op(compute, Fill{.buffer = sum, .tokens = place.team_block, .heads = c.heads});
  b.op(compute, Fill{.buffer = sum_lse, .tokens = place.team_block, .heads = c.heads});
  b.loop(steps, [=](std::int64_t i, OpList& ops) {
    const auto held = static_cast<std::size_t>(i % 2);
    const auto free = 1 - held;
    if (i + 1 < steps) {
      ops.push_back({ring_stream, Exchange{.to = place.next,
                                           .from = place.previous,
                                           .send = {k[held], v[held]},
                                           .receive = {k[free], v[free]}}});
    }
    const Section section =
        needed_section(place.team_block, place.block(i), place.problem.mask, c.options);
    if (section.empty()) {
      return;
    }
    ops.push_back({compute, AttentionForward{.q = q_team,
                                             .k = k[held],
                                             .v = v[held],
                                             .out = part,
                                             .lse = part_lse,
                                             .q_tokens = section.q,
                                             .k_tokens = section.k,
                                             .heads = c.heads,
                                             .kv_heads = c.kv_heads}});
    ops.push_back({compute, Merge{.out = sum,
                                  .lse = sum_lse,
                                  .part_out = part,
                                  .part_lse = part_lse,
                                  .tokens = section.q}});
  });

  const BufferId all_lse = b.scratch("lse_gathered", Tensor::lse, tokens * place.team_size, heads);
  const BufferId scaled = b.scratch("out_scaled", Tensor::out, tokens, heads);
  const BufferId lse = b.output("lse", Tensor::lse, place.team_block, c.heads);
  b.op(team_stream, Collective{.kind = CollectiveKind::all_gather,
                               .group = place.team,
                               .from = sum_lse,
                               .to = all_lse,
                               .to_tokens = place.team_block,
                               .to_heads = c.heads});
  b.op(compute, Rescale{.out = sum,
                        .lse = sum_lse,
                        .gathered_lse = all_lse,
                        .scaled = scaled,
                        .global_lse = lse});
  b.op(team_stream, Collective{.kind = CollectiveKind::reduce_scatter,
                               .group = place.team,
                               .from = scaled,
                               .to = io.out,
                               .to_tokens = c.tokens,
                               .to_heads = c.heads});
  return lse;
}

Statistics startrail_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                              BackwardBuffers io) {
  const Place place(b, mesh, c);
  const std::int64_t steps = place.sub_ring;
  const std::int64_t tokens = place.team_block.count();
  const DType wide = c.options.gradient;
  const int heads = c.heads.count();
  const int kv_heads = c.kv_heads.count();
  const BufferId lse_team = b.input("lse", Tensor::lse, place.team_block, c.heads);
  const BufferId delta = b.scratch("delta", Tensor::delta, c.tokens.count(), heads);
  b.op(compute, RowDot{.out = io.out, .d_out = io.d_out, .delta = delta});
  const BufferId q_team = gather(b, place, "q_team", Tensor::q, io.q, c.heads);
  const BufferId d_out_team = gather(b, place, "d_out_team", Tensor::d_out, io.d_out, c.heads);
  const BufferId delta_team = gather(b, place, "delta_team", Tensor::delta, delta, c.heads);

  struct QuerySide {
    BufferId q, d_out, lse, delta;
  };
  std::array<QuerySide, 2> side;
  std::array<BufferId, 2> d_q;
  for (std::size_t i = 0; i < 2; ++i) {
    d_q[i] = b.scratch(fmt::format("d_q{}", i), Tensor::d_q, tokens, heads, wide);
    side[i] =
        i == 1 && steps == 1
            ? side[0]
            : QuerySide{
                  .q = b.scratch(fmt::format("q{}", i), Tensor::q, tokens, heads),
                  .d_out = b.scratch(fmt::format("d_out{}", i), Tensor::d_out, tokens, heads),
                  .lse = b.scratch(fmt::format("lse{}", i), Tensor::lse, tokens, heads),
                  .delta = b.scratch(fmt::format("delta{}", i), Tensor::delta, tokens, heads)};
  }
  const auto list = [](const QuerySide& s) { return BufferList{s.q, s.d_out, s.lse, s.delta}; };
  b.op(ring_stream, Exchange{.to = place.exchange_to,
                             .from = place.exchange_from,
                             .send = {q_team, d_out_team, lse_team, delta_team},
                             .receive = list(side[0])});
  const BufferId k_team = gather(b, place, "k_team", Tensor::k, io.k, c.kv_heads);
  const BufferId v_team = gather(b, place, "v_team", Tensor::v, io.v, c.kv_heads);

  const BufferId q_part = b.scratch("d_q_part", Tensor::d_q, tokens, heads);
  const BufferId k_part = b.scratch("d_k_part", Tensor::d_k, tokens, kv_heads);
  const BufferId v_part = b.scratch("d_v_part", Tensor::d_v, tokens, kv_heads);
  const BufferId k_sum = b.scratch("d_k_sum", Tensor::d_k, tokens, kv_heads, wide);
  const BufferId v_sum = b.scratch("d_v_sum", Tensor::d_v, tokens, kv_heads, wide);
  b.op(compute, Fill{.buffer = k_sum, .tokens = place.team_block, .heads = c.kv_heads});
  b.op(compute, Fill{.buffer = v_sum, .tokens = place.team_block, .heads = c.kv_heads});
  b.op(compute, Fill{.buffer = d_q[0], .tokens = place.block(0), .heads = c.heads});
  b.loop(steps, [=](std::int64_t i, OpList& ops) {
    const auto held = static_cast<std::size_t>(i % 2);
    const auto free = 1 - held;
    if (i + 1 < steps) {
      ops.push_back({ring_stream, Exchange{.to = place.next,
                                           .from = place.previous,
                                           .send = list(side[held]),
                                           .receive = list(side[free])}});
    }
    if (i > 0) {
      ops.push_back({gradient_stream, Exchange{.to = place.next,
                                               .from = place.previous,
                                               .send = {d_q[free]},
                                               .receive = {d_q[held]}}});
    }
    const Section section =
        needed_section(place.block(i), place.team_block, place.problem.mask, c.options);
    if (section.empty()) {
      return;
    }
    ops.push_back({compute, AttentionBackward{.q = side[held].q,
                                              .k = k_team,
                                              .v = v_team,
                                              .d_out = side[held].d_out,
                                              .lse = side[held].lse,
                                              .delta = side[held].delta,
                                              .d_q = q_part,
                                              .d_k = k_part,
                                              .d_v = v_part,
                                              .q_tokens = section.q,
                                              .k_tokens = section.k,
                                              .heads = c.heads,
                                              .kv_heads = c.kv_heads}});
    ops.push_back({compute, Accumulate{.sum = d_q[held], .part = q_part, .tokens = section.q}});
    ops.push_back({compute, Accumulate{.sum = k_sum, .part = k_part, .tokens = section.k}});
    ops.push_back({compute, Accumulate{.sum = v_sum, .part = v_part, .tokens = section.k}});
  });
  const auto last = static_cast<std::size_t>((steps - 1) % 2);
  b.op(gradient_stream, Exchange{.to = place.return_to,
                                 .from = place.return_from,
                                 .send = {d_q[last]},
                                 .receive = {d_q[1 - last]}});
  const auto deliver = [&](std::string name, Tensor tensor, BufferId sum, BufferId to,
                           HeadRange range) {
    const BufferId mine = b.scratch(std::move(name), tensor, c.tokens.count(), range.count(), wide);
    b.op(team_stream, Collective{.kind = CollectiveKind::reduce_scatter,
                                 .group = place.team,
                                 .from = sum,
                                 .to = mine,
                                 .to_tokens = c.tokens,
                                 .to_heads = range});
    b.op(compute, Copy{.kind = CopyKind::cast, .from = mine, .to = to});
  };
  deliver("d_k_mine", Tensor::d_k, k_sum, io.d_k, c.kv_heads);
  deliver("d_v_mine", Tensor::d_v, v_sum, io.d_v, c.kv_heads);
  deliver("d_q_mine", Tensor::d_q, d_q[1 - last], io.d_q, c.heads);
  return {.lse = lse_team, .delta = delta};
}

Schedule build_startrail(const Problem& problem, const SequencePlan& plan, Phase phase,
                         const BuildOptions& options) {
  return compose(
      problem, plan, phase, options,
      {.forward = startrail_forward, .backward = startrail_backward, .ring_symmetric = false});
}

std::string startrail_why_not(const Problem& problem, const SequencePlan& plan) {
  if (plan.own[parameters::team] < 2) {
    return "a team of one is a plain ring";
  }
  if (problem.mask.kind == MaskKind::window) {
    return "a sliding window is not supported: the far blocks of a sub-ring would be empty";
  }
  return "";
}

}  // namespace spp::strategies
