// Every rule of the proof: a schedule that keeps it is proven, one spoiled op is refused with a
// counter-example that names the place. Ranks hold 16 tokens: rank r of a contiguous ring r*16:16.
#include "schedule/coverage.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/schedule/hand_written.hpp"

using namespace spp;
using namespace spp::test;

TEST_CASE("rings are proven, forward and backward, for every layout and mask") {
  const int ranks = GENERATE(1, 2, 3, 5);
  const Layout layout = GENERATE(Layout::contiguous, Layout::zigzag, Layout::striped);
  const Mask mask =
      GENERATE(Mask(full), Mask(causal), Mask{.kind = MaskKind::window, .window = 20});
  expect_proven(ring_forward(ranks, layout, mask));
  expect_proven(ring_backward(ranks, layout, mask));
}

TEST_CASE("a proof counts what it looked at") {
  // 3 ranks, full mask, one atom a rank: 3*3 blocks; 2 hops; exchange, attention, merge a step but
  // no last exchange, and the cast: 9 ops a rank.
  const Proof proof = ring_forward(3, Layout::contiguous, full).prove();
  CHECK(proof.pair_blocks == 9);
  CHECK(proof.messages == 6);
  CHECK(proof.ops == 27);
}

TEST_CASE("StarTrail with its initial exchange is proven") {
  expect_proven(startrail_forward(true));
}

TEST_CASE("StarTrail without its initial exchange meets half of the blocks twice, half never") {
  // Teams 0 and 1 (tokens 0:64) form a group, 2 and 3 another. Both members of team 0 meet the keys
  // of teams 0 and 1 and nobody brings them those of teams 2 and 3.
  expect_refused(startrail_forward(false),
                 {"Met twice: query tokens 0:32 and key tokens 0:64 (heads 0:4) by ranks 0 and 1",
                  "query tokens 64:32 and key tokens 64:64 (heads 0:4) by ranks 4 and 5",
                  "Never met: query tokens 0:64 and key tokens 64:64 (heads 0:4)",
                  "query tokens 64:64 and key tokens 0:64 (heads 0:4)"});
}

TEST_CASE("a sum of outs that were not rescaled is refused") {
  HandWritten w = startrail_forward(true);
  for (std::size_t r = 0; r < 8; ++r) {
    w.collective(r, OpKind::reduce_scatter, 0).from =
        w.buffer(r, "part");  // this block's, normalised by itself
  }
  expect_refused(w, {"reduce_scatter (stream team): sums out of query tokens",
                     "normalised over different keys"});
}

namespace {

/// StarTrail whose teams sum by all_reduce; every member keeps its own tokens of the sum.
HandWritten startrail_all_reduce() {
  HandWritten w = startrail_forward(true);
  for (std::size_t r = 0; r < w.ops.size(); ++r) {
    const std::size_t at = w.index(r, OpKind::reduce_scatter, 0);
    const Collective sum = w.collective(r, OpKind::reduce_scatter, 0);
    Buffer whole = w.buffers[r][sum.from.index()];
    whole.name = "whole";
    const BufferId id(w.buffers[r].size());
    w.buffers[r].push_back(whole);
    w.ops[r][at].body = Collective{.kind = CollectiveKind::all_reduce,
                                   .group = sum.group,
                                   .from = sum.from,
                                   .to = id,
                                   .to_tokens = w.op<AttentionForward>(r, 0).q_tokens,
                                   .to_heads = sum.to_heads};
    w.ops[r].push_back(
        {team, Collective{.kind = CollectiveKind::all_to_all,
                          .group = {.first = static_cast<int>(r), .stride = 1, .size = 1},
                          .from = id,
                          .to = sum.to,
                          .deal = HeadDeal{.direction = HeadDirection::gather_heads,
                                           .split = HeadSplit(w.schedule.contract.attention, 1,
                                                              HeadPolicy::divide),
                                           .tokens = tokens_per_rank},
                          .to_tokens = sum.to_tokens,
                          .to_heads = sum.to_heads}});
  }
  return w;
}

}  // namespace

TEST_CASE("an all_reduce gives every member the whole sum") {
  HandWritten w = startrail_all_reduce();
  SECTION("of rescaled outs: proven") { expect_proven(w); }
  SECTION("of outs that were not rescaled: refused") {
    for (std::size_t r = 0; r < 8; ++r) {
      w.collective(r, OpKind::all_reduce, 0).from = w.buffer(r, "part");
    }
    expect_refused(w, {"all_reduce (stream team): sums out of query tokens",
                       "normalised over different keys"});
  }
  SECTION("of a sum and a part of it: refused as counted twice") {
    for (std::size_t r = 0; r < 8; ++r) {
      w.insert(r, w.index(r, OpKind::all_reduce, 0) + 1,
               {team, w.collective(r, OpKind::all_reduce, 0)});
      std::swap(w.collective(r, OpKind::all_reduce, 1).from,
                w.collective(r, OpKind::all_reduce, 1).to);
    }
    expect_refused(w, {"all_reduce (stream team): out of query tokens", "twice"});
  }
  SECTION("out of a buffer with room beside it, which would be sent, too: refused") {
    w.buffers[1][w.collective(1, OpKind::all_reduce, 0).from.index()].tokens += 8;
    expect_refused(w, {"moves", "(tokens x heads) with"});
  }
  SECTION("whose members name different tokens: refused") {
    w.collective(1, OpKind::all_reduce, 0).to_tokens = w.home(1);
    expect_refused(w, {"meets another call of its group"});
  }
}

TEST_CASE("an all_reduce that does not divide over its group is refused") {
  HandWritten w = ring_forward(3, Layout::contiguous, full);
  for (std::size_t r = 0; r < 3; ++r) {
    w.insert(r, 0,
             {team, Collective{.kind = CollectiveKind::all_reduce,
                               .group = {.first = 0, .stride = 1, .size = 3},
                               .from = w.buffer(r, "q"),
                               .to = w.buffer(r, "q"),
                               .to_tokens = w.home(0),
                               .to_heads = all_heads}});
  }
  expect_refused(w, {"all_reduce (stream team): 16 tokens x 4 heads do not divide over 3 ranks"});
}

TEST_CASE("a missing hop is refused") {
  HandWritten w = ring_forward(3, Layout::contiguous, full);
  SECTION("on all ranks: the buffer was never filled") {
    for (std::size_t r = 0; r < 3; ++r) {
      w.erase(r, w.index<Exchange>(r, 1));
    }
    expect_refused(w, {"rank 2, op 5 attention_fwd (stream compute)",
                       "reads 'k1', which nothing was written to"});
  }
  SECTION("on all ranks, and the old buffer is used again") {
    for (std::size_t r = 0; r < 3; ++r) {
      w.erase(r, w.index<Exchange>(r, 1));
      w.op<AttentionForward>(r, 2).k = w.buffer(r, "k0");
      w.op<AttentionForward>(r, 2).v = w.buffer(r, "v0");
    }
    expect_refused(w,
                   {"finds no key tokens 0:16 (KV heads 0:2) in 'k0', which holds tokens 16:16"});
  }
  SECTION("on one rank: its neighbours wait") {
    w.erase(0, w.index<Exchange>(0, 1));
    w.erase(0, w.index<AttentionForward>(0, 2));
    w.erase(0, w.index<Merge>(0, 2));
    expect_refused(w, {"no partner: rank 1, op 3 exchange (stream ring) waits for a message from "
                       "rank 0, which has finished its program"});
  }
}

TEST_CASE("a merge done twice is refused") {
  HandWritten w = ring_forward(3, Layout::contiguous, full);
  const std::size_t second = w.index<Merge>(1, 1);
  w.insert(1, second + 1, w.ops[1][second]);
  expect_refused(w,
                 {"rank 1, op 6 merge (stream compute): out of query tokens 16:16 (heads 0:4) met "
                  "key tokens 0:16 twice: 'part' brings them, 'sum' already has them"});
}

TEST_CASE("what is no sum cannot be added up: nobody would see it counted twice") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  SECTION("queries") {
    w.insert(1, 0,
             {compute,
              Accumulate{.sum = w.buffer(1, "q"), .part = w.buffer(1, "q"), .tokens = w.home(1)}});
    expect_refused(w, {"rank 1, op 0 accumulate (stream compute): adds up q, which is no sum"});
  }
  SECTION("logarithms of sums") {
    w.insert(
        0, w.ops[0].size(),
        {compute,
         Accumulate{.sum = w.buffer(0, "lse"), .part = w.buffer(0, "lse"), .tokens = w.home(0)}});
    expect_refused(w, {"adds up lse, which is no sum"});
  }
}

TEST_CASE("tiles that share tokens are refused, though they are as many as there should be") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  const TokenSet half(TokenRange{.begin = tokens_per_rank / 2, .count = tokens_per_rank});
  for (Buffer& buffer : w.buffers[1]) {
    if (!buffer.tile.empty()) {
      buffer.tile = half;
    }
  }
  expect_refused(w, {"parts that share tokens: 0:16 and 8:16"});
}

TEST_CASE("a block computed twice is refused even if it is merged once") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  const std::size_t last = w.index<AttentionForward>(1, 1);
  w.insert(1, last + 1, w.ops[1][last]);
  expect_refused(w,
                 {"Met twice: query tokens 16:16 and key tokens 0:16 (heads 0:4) by rank 1 twice"});
}

TEST_CASE("a missing block is refused") {
  HandWritten w = ring_forward(3, Layout::contiguous, full);
  w.erase(2, w.index<AttentionForward>(2, 2));
  w.erase(2, w.index<Merge>(2, 2));
  expect_refused(
      w,
      {"rank 2: output 'out': out of query tokens 32:16 (heads 0:4) lacks the contribution of key "
       "tokens 0:16",
       "Never met: query tokens 32:16 and key tokens 0:16 (heads 0:4)"});
}

TEST_CASE("a block that was computed but never merged is refused") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  w.erase(0, w.index<Merge>(0, 1));
  expect_refused(w, {"rank 0: output 'out'", "lacks the contribution of key tokens 16:16"});
}

TEST_CASE("a fully masked block is refused") {
  HandWritten w = ring_forward(2, Layout::contiguous, causal);
  // Rank 0 sees none of rank 1's keys; compute them all the same.
  auto block = w.op<AttentionForward>(0, 0);
  block.k = w.buffer(0, "k0");
  block.v = w.buffer(0, "v0");
  block.k_tokens = w.home(1);
  w.insert(0, w.index<Copy>(0, 0), {compute, block});
  expect_refused(w, {"rank 0, op 3 attention_fwd (stream compute): computes a fully masked block: "
                     "query tokens 0:16, key tokens 16:16"});
}

TEST_CASE("the wrong half of a zigzag block is refused") {
  // 3 ranks, 6 chunks of 8: rank 0 holds 0:8 and 40:8, rank 1 8:8 and 32:8. Against rank 0's block
  // rank 1 needs all its queries but only the first half of the keys.
  HandWritten w = ring_forward(3, Layout::zigzag, causal);
  SECTION("of keys") {
    CHECK(w.op<AttentionForward>(1, 1).k_tokens == TokenSet({.begin = 0, .count = 8}));
    w.op<AttentionForward>(1, 1).k_tokens = TokenSet({.begin = 40, .count = 8});
    expect_refused(w, {"rank 1, op 4 attention_fwd", "fully masked block", "key tokens 40:8"});
  }
  SECTION("of queries in the merge: the other half of the part is still the last block's") {
    CHECK(w.op<Merge>(0, 1).tokens == TokenSet({.begin = 40, .count = 8}));
    w.op<Merge>(0, 1).tokens = TokenSet({.begin = 0, .count = 8});
    expect_refused(w,
                   {"rank 0, op 5 merge (stream compute): out of query tokens 0:8 (heads 0:4) met "
                    "key tokens 0:8 twice"});
  }
  SECTION("that is no half") {
    w.op<Merge>(0, 1).tokens = TokenSet({.begin = 40, .count = 4});
    expect_refused(w, {"names tokens 40:4, which are not whole parts"});
  }
}

TEST_CASE("a buffer that is too small is refused") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  w.buffers[0][w.buffer(0, "part").index()].tokens = 8;
  expect_refused(w, {"writes 64 (tokens x heads) to 'part', which has room for 8 x 4 = 32"});
}

TEST_CASE("accumulators may start from a fill instead of an initial merge") {
  HandWritten w = ring_forward(2, Layout::contiguous, causal);
  for (std::size_t r = 0; r < 2; ++r) {
    w.op<Merge>(r, 0).initial = false;
    for (const std::string_view name : {"sum", "lse"}) {
      w.insert(r, 0,
               {compute, Fill{.buffer = w.buffer(r, name),
                              .tokens = w.home(static_cast<int>(r)),
                              .heads = all_heads}});
    }
  }
  SECTION("of sums") { expect_proven(w); }
  SECTION("but inputs are no sums") {
    w.op<Fill>(0, 0) = {.buffer = w.buffer(0, "q"), .tokens = w.home(0), .heads = all_heads};
    expect_refused(w, {"rank 0, op 0 fill (stream compute): fills 'q', but q is no sum"});
  }
  SECTION("and without it there is nothing to merge into") {
    w.erase(0, 0);
    w.erase(0, 0);
    expect_refused(w, {"merge (stream compute): reads 'sum', which nothing was written to"});
  }
}

TEST_CASE("a backward with a local LSE is refused") {
  HandWritten w = ring_backward(2, Layout::contiguous, full);
  const auto local = [](std::string name, Tensor tensor) {
    Buffer buffer;
    buffer.name = std::move(name);
    buffer.tensor = tensor;
    buffer.dtype = DType::fp32;
    buffer.tokens = 16;
    buffer.heads = 4;
    return buffer;
  };
  // Recompute the first block's out and lse and use that lse.
  w.buffers[0].push_back(local("local_lse", Tensor::lse));
  w.buffers[0].push_back(local("local_out", Tensor::out));
  auto& first = w.op<AttentionBackward>(0, 0);
  first.lse = w.buffer(0, "local_lse");
  w.insert(0, 0,
           {compute, AttentionForward{.q = first.q,
                                      .k = first.k,
                                      .v = first.v,
                                      .out = w.buffer(0, "local_out"),
                                      .lse = first.lse,
                                      .q_tokens = first.q_tokens,
                                      .k_tokens = first.k_tokens,
                                      .heads = all_heads,
                                      .kv_heads = all_kv_heads}});
  SECTION("in the kernel") {
    expect_refused(w, {"rank 0, op 2 attention_bwd (stream compute): backward with a local LSE: "
                       "'local_lse' of query tokens 0:16 (heads 0:4) lacks key tokens 16:16"});
  }
  SECTION("and delta of a local out as well") {
    w.op<RowDot>(0, 0).out = w.buffer(0, "local_out");
    expect_refused(w, {"rank 0, op 1 row_dot (stream compute): delta of an incomplete output: "
                       "'local_out' of query tokens 0:16 (heads 0:4) lacks key tokens 16:16"});
  }
}

TEST_CASE("gradients of keys that do not reach home are refused") {
  HandWritten w = ring_backward(3, Layout::contiguous, full);
  SECTION("the last hop is missing") {
    for (std::size_t r = 0; r < 3; ++r) {
      w.erase(r, w.index<Exchange>(r, 2));
      w.op<Copy>(r, 0).from = w.buffer(r, "d_k2");
      w.op<Copy>(r, 1).from = w.buffer(r, "d_v2");
    }
    expect_refused(w, {"rank 0: output 'd_k' holds 0 pieces of key tokens 0:16 (KV heads 0:2)"});
  }
  SECTION("one contribution is left behind") {
    w.erase(1,
            w.index<Accumulate>(1, 4));  // the block of rank 0 at rank 1: d_q, d_k, d_v; 4 is d_k
    expect_refused(w, {"rank 0: output 'd_k': d_k of key tokens 0:16 (KV heads 0:2) lacks the "
                       "contribution of query tokens 16:16 (heads 0:4)"});
  }
  SECTION("one contribution is counted twice") {
    const std::size_t i = w.index<Accumulate>(1, 4);
    w.insert(1, i, w.ops[1][i]);
    expect_refused(w,
                   {"accumulate (stream compute): d_k of key tokens 0:16 (KV heads 0:2) met query "
                    "tokens 16:16 (heads 0:4) twice"});
  }
}

TEST_CASE("outputs that nobody or several ranks declare are refused") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  Buffer& out = w.buffers[1][w.buffer(1, "out").index()];
  out.role = BufferRole::scratch;
  expect_refused(w, {"no rank declares output out of query tokens 16:16 (heads 0:4)"});
}

TEST_CASE("inputs that hold other ranks' tokens are refused") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  w.buffers[1][w.buffer(1, "k").index()].tile = w.home(0);
  expect_refused(w, {"input k of key tokens 0:16 (KV heads 0:2) is declared twice"});
}

TEST_CASE("what an attention computes is not given to it") {
  HandWritten w = ring_backward(2, Layout::contiguous, full);
  Buffer given = w.buffers[1][w.buffer(1, "q").index()];
  given.name = "given";
  given.tensor = Tensor::d_q;
  w.buffers[1].push_back(given);
  expect_refused(w, {"rank 1: 'given' is an input, but d_q is to be computed"});
}

TEST_CASE("buffers that no program may have are refused") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  Buffer& q = w.buffers[0][w.buffer(0, "q").index()];
  SECTION("a state that nothing updates") {
    q.role = BufferRole::state;
    expect_refused(w, {"rank 0: 'q' is a state, but q is nothing that an update replaces"});
  }
  SECTION("an input of what lives within a program") {
    q.tensor = Tensor::scores;
    expect_refused(w, {"rank 0: 'q' is an input, but scores lives within a program alone"});
  }
  SECTION("an input of another type than the problem's") {
    q.dtype = DType::fp16;
    expect_refused(w, {"rank 0: 'q' has elements of fp16, but the problem's are of"});
  }
  SECTION("statistics in fewer bits") {
    w.buffers[0][w.buffer(0, "part_lse").index()].dtype = DType::fp16;
    expect_refused(w, {"rank 0: 'part_lse' has elements of fp16, but lse takes fp32"});
  }
}

TEST_CASE("ops that name what does not exist are refused") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  SECTION("a stream") {
    w.ops[0][0].stream = StreamId(9);
    expect_refused(w, {"rank 0, op 0 exchange: its stream 9 does not exist"});
  }
  SECTION("a buffer") {
    w.op<AttentionForward>(0, 0).out = BufferId(99);
    expect_refused(w, {"rank 0, op 1 attention_fwd (stream compute): buffer 99 does not exist"});
  }
  SECTION("a group without the rank") {
    w.insert(0, 0,
             {team, Collective{.kind = CollectiveKind::all_gather,
                               .group = {.first = 1, .stride = 1, .size = 1},
                               .from = w.buffer(0, "k"),
                               .to = w.buffer(0, "k0"),
                               .to_tokens = w.home(0),
                               .to_heads = all_kv_heads}});
    expect_refused(w, {"its group of 1 ranks from rank 1"});
  }
  SECTION("a buffer of another tensor") {
    w.op<AttentionForward>(0, 0).q = w.buffer(0, "sum");
    expect_refused(w, {"uses 'sum', a buffer of out, as q"});
  }
}
