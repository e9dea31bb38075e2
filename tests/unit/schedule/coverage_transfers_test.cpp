// The proof of transfers: exchanges and collectives that fit together, and what happens when they
// do not. Ranks hold 16 tokens: rank r of a contiguous ring r*16:16.
#include "schedule/coverage.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/schedule/hand_written.hpp"

using namespace spp;
using namespace spp::test;

TEST_CASE("a wrong peer is refused") {
  HandWritten w = ring_forward(3, Layout::contiguous, full);
  SECTION("of one rank: nobody takes its message") {
    w.op<Exchange>(0, 0).to = Rank(2);
    expect_refused(
        w, {"deadlock: rank 0, op 0 exchange (stream ring) waits to send to rank 2; rank 2, op 3 "
            "exchange (stream ring) waits for a message from rank 1; rank 1, op 0 exchange (stream "
            "ring) waits for a message from rank 0"});
  }
  SECTION("of all ranks: blocks arrive from the wrong side") {
    for (int r = 0; r < 3; ++r) {
      auto& first = w.op<Exchange>(static_cast<std::size_t>(r), 0);
      std::swap(first.to, first.from);
    }
    expect_refused(w, {"rank 0, op 4 attention_fwd (stream compute): finds no key tokens 32:16 "
                       "(KV heads 0:2) in 'k0', which holds tokens 16:16"});
  }
  SECTION("that does not exist") {
    w.op<Exchange>(0, 0).to = Rank(3);
    expect_refused(w, {"rank 0, op 0 exchange (stream ring): sends 2 buffers to rank 3"});
  }
}

TEST_CASE("messages without a partner or of another size are refused") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  SECTION("a send that nobody receives") {
    w.ops[0].push_back(
        {ring, Exchange{.to = Rank(1), .from = {}, .send = {w.buffer(0, "k")}, .receive = {}}});
    expect_refused(w, {"no partner: rank 0, op 6 exchange (stream ring) waits to send to rank 1, "
                       "which has finished its program"});
  }
  SECTION("another number of buffers") {
    w.op<Exchange>(0, 0).send = {w.buffer(0, "k")};
    expect_refused(w, {"sends 1 buffers to rank 1, which receives 2 in op 0"});
  }
  SECTION("another tensor") {
    w.op<Exchange>(0, 0).send = {w.buffer(0, "v"), w.buffer(0, "k")};
    expect_refused(w, {"sends 'v' (bf16 v, 16 x 2) to rank 1", "'k0' (bf16 k, 16 x 2)"});
  }
  SECTION("another size") {
    w.buffers[1][w.buffer(1, "k0").index()].tokens = 8;
    expect_refused(w, {"sends 'k' (bf16 k, 16 x 2) to rank 1", "'k0' (bf16 k, 8 x 2)"});
  }
  SECTION("into the buffer that is being sent") {
    w.op<Exchange>(0, 0).receive = w.op<Exchange>(0, 0).send;
    expect_refused(w, {"sends and receives 'k' at the same time"});
  }
}

TEST_CASE("two exchanges in cyclic order are a deadlock") {
  HandWritten w = ring_forward(2, Layout::contiguous, full);
  for (std::size_t r = 0; r < 2; ++r) {
    auto v = w.op<Exchange>(r, 0);
    v.send = {w.buffer(r, "v")};
    v.receive = {w.buffer(r, "v0")};
    auto& k = w.op<Exchange>(r, 0);
    k.send = {w.buffer(r, "k")};
    k.receive = {w.buffer(r, "k0")};
    w.insert(r, r, {gradient, v});  // after k on rank 1, before it on rank 0
  }
  expect_refused(
      w, {"deadlock: ", "rank 0, op 0 exchange (stream gradient) waits for a message from rank 1",
          "rank 1, op 0 exchange (stream ring) waits for a message from rank 0"});
}

TEST_CASE("a message to oneself is a local copy") {
  HandWritten w = ring_forward(1, Layout::contiguous, full);
  w.buffers[0].push_back(w.buffers[0][w.buffer(0, "k").index()]);
  w.buffers[0].back().name = "copy";
  w.buffers[0].back().role = BufferRole::scratch;
  w.insert(0, 0,
           {ring, Exchange{.to = Rank(0),
                           .from = Rank(0),
                           .send = {w.buffer(0, "k")},
                           .receive = {w.buffer(0, "copy")}}});
  w.op<AttentionForward>(0, 0).k = w.buffer(0, "copy");
  expect_proven(w);
  CHECK(w.prove().messages == 0);
}

TEST_CASE("Ulysses on two ranks is proven") { expect_proven(ulysses_forward()); }

TEST_CASE("collectives whose members disagree are refused") {
  HandWritten w = ulysses_forward();
  SECTION("about the heads that they name") {
    w.op<Collective>(1, 1).to_heads = {0, 1};
    expect_refused(w, {"finds no key tokens 0:16 (KV heads 1:1) in 'k_all'"});
  }
  SECTION("about heads that are no part of the split") {
    w.op<Collective>(1, 0).to_heads = {1, 3};
    expect_refused(w, {"names heads 1:2, which are not whole parts of the Ulysses split"});
  }
  SECTION("about the kind") {
    std::get<HeadDeal>(w.op<Collective>(1, 0).deal).direction = HeadDirection::gather_heads;
    expect_refused(w, {"all_to_all (stream team): meets another call of its group: rank 0, op 0"});
  }
  SECTION("about the order of calls") {
    std::swap(w.ops[1][0], w.ops[1][1]);
    expect_refused(w, {"meets another call of its group"});
  }
  SECTION("about the stream") {
    w.ops[1][0].stream = ring;
    expect_refused(
        w, {"deadlock: rank 0, op 0 all_to_all (stream team) waits for rank 1 to take part; "
            "rank 1, op 0 all_to_all (stream ring) waits for rank 0 to take part"});
  }
  SECTION("about the size") {
    for (std::size_t r = 0; r < 2; ++r) {
      std::get<HeadDeal>(w.op<Collective>(r, 3).deal).tokens = 8;
    }
    expect_refused(w, {"receives 32 (tokens x heads) from rank 0, but the op's shape says 8 x 2"});
  }
  SECTION("because one never calls") {
    w.erase(1, w.index<Collective>(1, 3));
    expect_refused(w, {"no partner: rank 0, op 4 all_to_all (stream team) waits for rank 1 to take "
                       "part, which has finished its program"});
  }
}
