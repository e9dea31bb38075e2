// The rules of the proof for whole rows of scores and for states: one schedule of each that keeps
// them, and what is said of it with one op spoiled. Rank r holds tokens r*16:16.
#include "schedule/coverage.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/schedule/hand_written.hpp"

using namespace spp;
using namespace spp::test;

namespace {

TokenSet tokens_of(std::int64_t begin, std::int64_t count) {
  return TokenSet({.begin = begin, .count = count});
}

struct Home {
  BufferId q, k, v, out;
};

Home home_of(ProgramBuilder& b, const TokenSet& tokens) {
  return {.q = b.input("q", Tensor::q, tokens, all_heads),
          .k = b.input("k", Tensor::k, tokens, all_kv_heads),
          .v = b.input("v", Tensor::v, tokens, all_kv_heads),
          .out = b.output("out", Tensor::out, tokens, all_heads)};
}

/// Keys and values are gathered; each rank's whole rows of scores.
HandWritten rows_of_scores(int ranks) {
  HandWritten w(ranks, Layout::contiguous, Phase::forward, causal);
  for (int r = 0; r < ranks; ++r) {
    ProgramBuilder b = w.builder(r);
    const TokenSet own = w.home(r);
    const Home io = home_of(b, own);
    const std::int64_t seq = w.schedule.contract.attention.seq;
    const BufferId scores = b.scratch("scores", Tensor::scores, tokens_per_rank, 4);
    const BufferId weights = b.scratch("weights", Tensor::weights, tokens_per_rank, 4);
    const BufferId keys = b.scratch("keys", Tensor::k, seq, 2);
    const BufferId values = b.scratch("values", Tensor::v, seq, 2);
    for (const auto& [from, to] : {std::pair{io.k, keys}, std::pair{io.v, values}}) {
      b.op(ring, Collective{.kind = CollectiveKind::all_gather,
                            .group = {.first = 0, .stride = 1, .size = ranks},
                            .from = from,
                            .to = to,
                            .to_tokens = tokens_of(0, seq),
                            .to_heads = all_kv_heads});
    }
    for (int step = 0; step < ranks; ++step) {
      b.op(compute, Scores{.rows = io.q,
                           .columns = keys,
                           .to = scores,
                           .q_tokens = own,
                           .k_tokens = w.home(step),
                           .heads = all_heads,
                           .kv_heads = all_kv_heads,
                           .initial = step == 0});
    }
    b.op(compute, Softmax{.scores = scores, .weights = weights, .tokens = own});
    for (int step = 0; step < ranks; ++step) {
      b.op(compute, Weigh{.weights = weights,
                          .values = values,
                          .to = io.out,
                          .q_tokens = own,
                          .k_tokens = w.home(step),
                          .heads = all_heads,
                          .kv_heads = all_kv_heads,
                          .initial = step == 0});
    }
    w.add(b);
  }
  return w;
}

/// Every rank's state is gathered, those before it are applied.
HandWritten states(int ranks) {
  HandWritten w(ranks, Layout::contiguous, Phase::forward, causal);
  w.schedule.contract.attention.function = AttentionFunction::linear;
  w.schedule.contract.requested.function = AttentionFunction::linear;
  w.schedule.grain.slots = ranks;
  for (int r = 0; r < ranks; ++r) {
    ProgramBuilder b = w.builder(r);
    const TokenSet own = w.home(r);
    const Home io = home_of(b, own);
    const BufferId mine = b.scratch("mine", Tensor::state, 1, 2);
    const BufferId all = b.scratch("all", Tensor::state, ranks, 2);
    const BufferId before = b.scratch("before", Tensor::state, 1, 2);
    b.op(compute, MakeState{.rows = io.k,
                            .values = io.v,
                            .to = mine,
                            .tokens = own,
                            .heads = all_kv_heads,
                            .kv_heads = all_kv_heads,
                            .slot = r});
    b.op(ring, Collective{.kind = CollectiveKind::all_gather,
                          .group = {.first = 0, .stride = 1, .size = ranks},
                          .from = mine,
                          .to = all,
                          .to_tokens = tokens_of(0, ranks),
                          .to_heads = all_kv_heads});
    b.op(compute, LinearForward{.q = io.q,
                                .k = io.k,
                                .v = io.v,
                                .out = io.out,
                                .tokens = own,
                                .heads = all_heads,
                                .kv_heads = all_kv_heads});
    if (r > 0) {
      b.op(compute, SumStates{.from = all, .to = before, .slots = tokens_of(0, r), .slot = r});
      b.op(compute, ApplyState{.rows = io.q,
                               .state = before,
                               .to = io.out,
                               .tokens = own,
                               .heads = all_heads,
                               .kv_heads = all_kv_heads});
    }
    w.add(b);
  }
  return w;
}

}  // namespace

TEST_CASE("whole rows of scores are proven") { expect_proven(rows_of_scores(3)); }

TEST_CASE("a softmax over part of a row is refused") {
  HandWritten w = rows_of_scores(3);
  std::erase_if(w.ops[2], [&](const Op& op) {
    const auto* scores = op_if<Scores>(op.body);
    return scores != nullptr && scores->k_tokens == w.home(1);
  });
  expect_refused(w, {"rank 2", "softmax over part of a row", "lacks key tokens 16:16"});
}

TEST_CASE("a softmax is over the rows that it names, and no others") {
  HandWritten w = rows_of_scores(2);
  w.op<Softmax>(0, 0).tokens = w.home(1);
  expect_refused(w, {"rank 0", "softmax", "is over tokens 16:16, but 'scores' holds tokens 0:16"});
}

TEST_CASE("columns that are written twice, and values that are weighed twice, are refused") {
  HandWritten twice = rows_of_scores(2);
  twice.op<Scores>(1, 1).k_tokens = twice.home(0);
  expect_refused(twice, {"rank 1", "scores of query tokens 16:16", "met key tokens 0:16", "twice"});
  HandWritten weighed = rows_of_scores(2);
  weighed.op<Weigh>(1, 1).k_tokens = weighed.home(0);
  expect_refused(weighed, {"rank 1", "out of query tokens 16:16", "met key tokens 0:16", "twice"});
}

TEST_CASE("states are proven") { expect_proven(states(3)); }

TEST_CASE("a state that holds keys which the mask hides is refused") {
  HandWritten w = states(3);
  w.op<SumStates>(1, 0).slots = tokens_of(0, 2);  // its own, too
  expect_refused(w, {"rank 1", "apply_state", "applies a state with key tokens 16:16",
                     "which the mask forbids in part"});
}

TEST_CASE("a state is applied to the heads that attend to its own") {
  HandWritten w = states(3);
  w.schedule.grain.heads = HeadSplit(w.schedule.contract.attention, 2, HeadPolicy::divide);
  expect_proven(w);
  w.op<ApplyState>(1, 0).kv_heads = {0, 1};
  expect_refused(w, {"rank 1", "apply_state", "heads 0:4 do not attend to KV heads 0:1"});
}

TEST_CASE("a state that was left out, or comes twice, is refused") {
  HandWritten w = states(3);
  w.op<SumStates>(2, 0).slots = tokens_of(1, 1);
  expect_refused(w, {"Never met: query tokens 32:16 and key tokens 0:16"});
  HandWritten twice = states(3);
  const std::size_t last = twice.ops[2].size() - 1;
  twice.ops[2].push_back(twice.ops[2][last]);
  expect_refused(twice, {"rank 2", "out of query tokens 32:16", "met key tokens 0:32", "twice"});
}

TEST_CASE("ops of one attention do not stand in the other's problems") {
  HandWritten linear = states(2);
  linear.schedule.contract.attention.function = AttentionFunction::softmax;
  expect_refused(linear, {"computes linear attention, but the problem is softmax attention"});
  HandWritten rows = rows_of_scores(2);
  rows.schedule.contract.attention.function = AttentionFunction::linear;
  expect_refused(rows, {"computes softmax attention, but the problem is linear attention"});
}

TEST_CASE("linear attention of a rank's own tokens is causal, over tokens that rise") {
  HandWritten w = states(2);
  w.schedule.contract.attention.mask = {.kind = MaskKind::window, .window = 4};
  expect_refused(w, {"linear_fwd", "is causal over tokens that rise, not window:4"});
}

TEST_CASE("slots that a schedule does not have are refused") {
  HandWritten w = states(2);
  w.schedule.grain.slots = 1;
  expect_refused(w, {"names slots", "which the schedule does not have"});
}
