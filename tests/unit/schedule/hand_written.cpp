#include "tests/unit/schedule/hand_written.hpp"

#include "tests/support/catch.hpp"

namespace spp::test {
namespace {

/// The parts of a block that the mask needs (see the zigzag picture in the layout's documentation).
TokenSet needed(const TokenSet& tokens, auto allowed) {
  TokenSet kept;
  for (const TokenRange& range : tokens.ranges()) {
    if (allowed(TokenSet(range))) {
      kept.append(range);
    }
  }
  return kept;
}

/// Ring Attention forward: at step i rank r meets block r - i, while the block moves on to rank r
/// + 1.

}  // namespace

HandWritten ring_forward(int ranks, Layout layout, Mask mask) {
  HandWritten w(ranks, layout, Phase::forward, mask);
  for (int r = 0; r < ranks; ++r) {
    ProgramBuilder b = w.builder(r);
    const TokenSet mine = w.home(r);
    const BufferId q = b.input("q", Tensor::q, mine, all_heads);
    BufferId k = b.input("k", Tensor::k, mine, all_kv_heads);
    BufferId v = b.input("v", Tensor::v, mine, all_kv_heads);
    const BufferId out = b.output("out", Tensor::out, mine, all_heads);
    const BufferId lse = b.output("lse", Tensor::lse, mine, all_heads);
    const BufferId sum = b.scratch("sum", Tensor::out, mine.count(), 4, DType::fp32);
    const BufferId part = b.scratch("part", Tensor::out, mine.count(), 4);
    const BufferId part_lse = b.scratch("part_lse", Tensor::lse, mine.count(), 4);
    for (int i = 0; i < ranks; ++i) {
      const BufferId held_k = k;
      const BufferId held_v = v;
      if (i + 1 < ranks) {
        k = b.scratch(fmt::format("k{}", i), Tensor::k, mine.count(), 2);
        v = b.scratch(fmt::format("v{}", i), Tensor::v, mine.count(), 2);
        b.op(ring, Exchange{.to = Rank((r + 1) % ranks),
                            .from = Rank((r + ranks - 1) % ranks),
                            .send = {held_k, held_v},
                            .receive = {k, v}});
      }
      const TokenSet block = w.home((r - i + ranks) % ranks);
      const TokenSet queries =
          needed(mine, [&](const TokenSet& t) { return allowed_pairs(t, block, mask) > 0; });
      const TokenSet keys =
          needed(block, [&](const TokenSet& t) { return allowed_pairs(mine, t, mask) > 0; });
      if (!queries.empty()) {
        b.op(compute, AttentionForward{.q = q,
                                       .k = held_k,
                                       .v = held_v,
                                       .out = part,
                                       .lse = part_lse,
                                       .q_tokens = queries,
                                       .k_tokens = keys,
                                       .heads = all_heads,
                                       .kv_heads = all_kv_heads});
        b.op(compute, Merge{.out = sum,
                            .lse = lse,
                            .part_out = part,
                            .part_lse = part_lse,
                            .tokens = queries,
                            .initial = i == 0});
      }
    }
    b.op(compute, Copy{.kind = CopyKind::cast, .from = sum, .to = out});
    w.add(b);
  }
  return w;
}

HandWritten ring_backward(int ranks, Layout layout, Mask mask) {
  HandWritten w(ranks, layout, Phase::backward, mask);
  for (int r = 0; r < ranks; ++r) {
    ProgramBuilder b = w.builder(r);
    const TokenSet mine = w.home(r);
    const std::int64_t n = mine.count();
    const BufferId q = b.input("q", Tensor::q, mine, all_heads);
    BufferId k = b.input("k", Tensor::k, mine, all_kv_heads);
    BufferId v = b.input("v", Tensor::v, mine, all_kv_heads);
    const BufferId out = b.input("out", Tensor::out, mine, all_heads);
    const BufferId lse = b.input("lse", Tensor::lse, mine, all_heads);
    const BufferId d_out = b.input("d_out", Tensor::d_out, mine, all_heads);
    const BufferId d_q = b.output("d_q", Tensor::d_q, mine, all_heads);
    const BufferId home_d_k = b.output("d_k", Tensor::d_k, mine, all_kv_heads);
    const BufferId home_d_v = b.output("d_v", Tensor::d_v, mine, all_kv_heads);
    const BufferId delta = b.scratch("delta", Tensor::delta, n, 4);
    const BufferId d_q_part = b.scratch("d_q_part", Tensor::d_q, n, 4);
    const BufferId d_k_part = b.scratch("d_k_part", Tensor::d_k, n, 2);
    const BufferId d_v_part = b.scratch("d_v_part", Tensor::d_v, n, 2);
    BufferId d_k = b.scratch("d_k0", Tensor::d_k, n, 2);
    BufferId d_v = b.scratch("d_v0", Tensor::d_v, n, 2);
    b.op(compute, RowDot{.out = out, .d_out = d_out, .delta = delta});
    for (int i = 0; i < ranks; ++i) {
      const TokenSet block = w.home((r - i + ranks) % ranks);
      const TokenSet queries =
          needed(mine, [&](const TokenSet& t) { return allowed_pairs(t, block, mask) > 0; });
      const TokenSet keys =
          needed(block, [&](const TokenSet& t) { return allowed_pairs(mine, t, mask) > 0; });
      if (!queries.empty()) {
        b.op(compute, AttentionBackward{.q = q,
                                        .k = k,
                                        .v = v,
                                        .d_out = d_out,
                                        .lse = lse,
                                        .delta = delta,
                                        .d_q = d_q_part,
                                        .d_k = d_k_part,
                                        .d_v = d_v_part,
                                        .q_tokens = queries,
                                        .k_tokens = keys,
                                        .heads = all_heads,
                                        .kv_heads = all_kv_heads});
        b.op(compute,
             Accumulate{.sum = d_q, .part = d_q_part, .tokens = queries, .initial = i == 0});
        b.op(compute, Accumulate{.sum = d_k, .part = d_k_part, .tokens = keys, .initial = i == 0});
        b.op(compute, Accumulate{.sum = d_v, .part = d_v_part, .tokens = keys, .initial = i == 0});
      }
      const BufferList moved{k, v, d_k, d_v};
      k = b.scratch(fmt::format("k{}", i + 1), Tensor::k, n, 2);
      v = b.scratch(fmt::format("v{}", i + 1), Tensor::v, n, 2);
      d_k = b.scratch(fmt::format("d_k{}", i + 1), Tensor::d_k, n, 2);
      d_v = b.scratch(fmt::format("d_v{}", i + 1), Tensor::d_v, n, 2);
      b.op(ring, Exchange{.to = Rank((r + 1) % ranks),
                          .from = Rank((r + ranks - 1) % ranks),
                          .send = moved,
                          .receive = {k, v, d_k, d_v}});
    }
    b.op(compute, Copy{.kind = CopyKind::cast, .from = d_k, .to = home_d_k});
    b.op(compute, Copy{.kind = CopyKind::cast, .from = d_v, .to = home_d_v});
    w.add(b);
  }
  return w;
}

HandWritten startrail_forward(bool initial_exchange) {
  constexpr int c = 2;
  constexpr int s = 2;
  constexpr std::int64_t n = c * tokens_per_rank;
  HandWritten w(8, Layout::contiguous, Phase::forward, full);
  for (int r = 0; r < 8; ++r) {
    const int t = r / c;  // the order ulysses,team,ring: rank = C * team + member
    const int m = r % c;
    ProgramBuilder b = w.builder(r);
    const TokenSet mine = w.home(r);
    const TokenSet block =
        chunk_tokens(w.schedule.contract.attention.seq, Layout::contiguous, t, 8 / c);
    const RankGroup members{.first = t * c, .stride = 1, .size = c};
    const auto gather = [&](Tensor tensor, HeadRange heads) {
      const BufferId from = b.input(std::string(to_string(tensor)), tensor, mine, heads);
      const BufferId to =
          b.scratch(fmt::format("{}_team", to_string(tensor)), tensor, n, heads.count());
      b.op(team, Collective{.kind = CollectiveKind::all_gather,
                            .group = members,
                            .from = from,
                            .to = to,
                            .to_tokens = block,
                            .to_heads = heads});
      return to;
    };
    const BufferId q = gather(Tensor::q, all_heads);
    BufferId k = gather(Tensor::k, all_kv_heads);
    BufferId v = gather(Tensor::v, all_kv_heads);
    const auto move = [&](std::string_view suffix, int to, int from) {
      const BufferId next_k = b.scratch(fmt::format("k{}", suffix), Tensor::k, n, 2);
      const BufferId next_v = b.scratch(fmt::format("v{}", suffix), Tensor::v, n, 2);
      b.op(ring,
           Exchange{
               .to = Rank(to), .from = Rank(from), .send = {k, v}, .receive = {next_k, next_v}});
      k = next_k;
      v = next_v;
    };
    if (initial_exchange) {  // to team m*S + T/C, member T mod C; from team C*(T mod S) + m, member
                             // T/S
      move("_initial", (m * s + t / c) * c + t % c, (c * (t % s) + m) * c + t / s);
    }
    const BufferId out = b.output("out", Tensor::out, mine, all_heads);
    const BufferId lse = b.output("lse", Tensor::lse, block, all_heads);
    const BufferId sum = b.scratch("sum", Tensor::out, n, 4, DType::fp32);
    const BufferId sum_lse = b.scratch("sum_lse", Tensor::lse, n, 4);
    const BufferId part = b.scratch("part", Tensor::out, n, 4);
    const BufferId part_lse = b.scratch("part_lse", Tensor::lse, n, 4);
    for (int i = 0; i < s; ++i) {
      const int position = (t % s - i + s) % s;
      const int met = initial_exchange ? c * position + m : t / s * s + position;
      b.op(compute, AttentionForward{.q = q,
                                     .k = k,
                                     .v = v,
                                     .out = part,
                                     .lse = part_lse,
                                     .q_tokens = block,
                                     .k_tokens = chunk_tokens(w.schedule.contract.attention.seq,
                                                              Layout::contiguous, met, 8 / c),
                                     .heads = all_heads,
                                     .kv_heads = all_kv_heads});
      b.op(compute, Merge{.out = sum,
                          .lse = sum_lse,
                          .part_out = part,
                          .part_lse = part_lse,
                          .tokens = block,
                          .initial = i == 0});
      if (i + 1 < s) {  // next team of the group, same member
        move("_next", (t / s * s + (t + 1) % s) * c + m, (t / s * s + (t + s - 1) % s) * c + m);
      }
    }
    const BufferId gathered = b.scratch("gathered_lse", Tensor::lse, n * c, 4);
    const BufferId scaled = b.scratch("scaled", Tensor::out, n, 4);
    b.op(team, Collective{.kind = CollectiveKind::all_gather,
                          .group = members,
                          .from = sum_lse,
                          .to = gathered,
                          .to_tokens = block,
                          .to_heads = all_heads});
    b.op(compute, Rescale{.out = sum,
                          .lse = sum_lse,
                          .gathered_lse = gathered,
                          .scaled = scaled,
                          .global_lse = lse});
    b.op(team, Collective{.kind = CollectiveKind::reduce_scatter,
                          .group = members,
                          .from = scaled,
                          .to = out,
                          .to_tokens = mine,
                          .to_heads = all_heads});
    w.add(b);
  }
  return w;
}

HandWritten ulysses_forward() {
  HandWritten w(2, Layout::contiguous, Phase::forward, causal);
  const HeadSplit split(w.schedule.contract.attention, 2, HeadPolicy::divide);
  w.schedule.grain.heads = split;
  const RankGroup both{.first = 0, .stride = 1, .size = 2};
  const TokenSet everything({.begin = 0, .count = w.schedule.contract.attention.seq});
  for (int r = 0; r < 2; ++r) {
    ProgramBuilder b = w.builder(r);
    const TokenSet mine = w.home(r);
    const auto scatter = [&](Tensor tensor, bool kv) {
      const HeadRange all = kv ? all_kv_heads : all_heads;
      const HeadRange heads = kv ? split.kv(r) : split.q(r);
      const std::string name(to_string(tensor));
      const BufferId from = b.input(name, tensor, mine, all);
      const BufferId to = b.scratch(name + "_all", tensor, everything.count(), heads.count());
      b.op(team, Collective{.kind = CollectiveKind::all_to_all,
                            .group = both,
                            .from = from,
                            .to = to,
                            .deal = HeadDeal{.direction = HeadDirection::scatter_heads,
                                             .split = split,
                                             .kv = kv,
                                             .tokens = mine.count()},
                            .to_tokens = everything,
                            .to_heads = heads});
      return to;
    };
    const BufferId q = scatter(Tensor::q, false);
    const BufferId k = scatter(Tensor::k, true);
    const BufferId v = scatter(Tensor::v, true);
    const BufferId out_all = b.scratch("out_all", Tensor::out, everything.count(), 2);
    const BufferId lse = b.output("lse", Tensor::lse, everything, split.q(r));
    const BufferId out = b.output("out", Tensor::out, mine, all_heads);
    b.op(compute, AttentionForward{.q = q,
                                   .k = k,
                                   .v = v,
                                   .out = out_all,
                                   .lse = lse,
                                   .q_tokens = everything,
                                   .k_tokens = everything,
                                   .heads = split.q(r),
                                   .kv_heads = split.kv(r)});
    b.op(team, Collective{.kind = CollectiveKind::all_to_all,
                          .group = both,
                          .from = out_all,
                          .to = out,
                          .deal = HeadDeal{.direction = HeadDirection::gather_heads,
                                           .split = split,
                                           .tokens = mine.count()},
                          .to_tokens = mine,
                          .to_heads = all_heads});
    w.add(b);
  }
  return w;
}

void expect_proven(const HandWritten& schedule) {
  const Proof proof = schedule.prove();
  INFO(proof.counter_example);

  CHECK(proof.proven);
}

void expect_refused(const HandWritten& schedule, std::initializer_list<std::string> words) {
  const Proof proof = schedule.prove();
  CHECK_FALSE(proof.proven);
  for (const std::string& word : words) {
    CHECK_THAT(proof.counter_example, Catch::Matchers::ContainsSubstring(word));
  }
}

}  // namespace spp::test
