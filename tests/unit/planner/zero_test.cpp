#include "planner/zero.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/transformer/tiny_model.hpp"

#include <algorithm>

using namespace spp;
using spp::test::tiny_model;

namespace {

/// A network that moves one byte a second: times below are bytes.
Seconds one_byte_a_second(CommKind, Bytes sent) { return Seconds(sent.as_double()); }

/// The tiny model on 4 ranks, whose layers take `compute` seconds in each direction.
ZeroCost cost_of(int zero, double compute, bool train = true) {
  return zero_cost(
      tiny_model(),
      {.ranks = 4,
       .zero = zero,
       .train = train,
       .times = {.forward_layer = Seconds(compute), .backward_layer = Seconds(compute)}},
      one_byte_a_second);
}

Bytes sent(const ZeroCost& cost, CommKind kind) {
  return cost.sent.at(static_cast<std::size_t>(kind));
}

}  // namespace

// Weights: embedding 80, two layers of 592, head with final norm 88. Each rank sends 3/4 of a
// bucket: of fp32 gradients 240, 1776, 264 B; of bf16 parameters 120, 888, 132 B.

TEST_CASE("stage 0 hides all but the last bucket behind a long backward") {
  // In all 1352 * 4 B * 3/4 = 4056 each way. All-reduce is twice that: 480, 3552, 528 s. Left over:
  // the first layer's and the embedding's.
  const ZeroCost cost = cost_of(0, 1e6);
  CHECK(cost.exposed == Seconds(3552 + 480));
  CHECK(cost.hidden == Seconds(528 + 3552));
  CHECK(sent(cost, CommKind::reduce_scatter) == Bytes(4056));
  CHECK(sent(cost, CommKind::all_gather) == Bytes(4056));
  CHECK(cost.bytes() == Bytes(8112));
}

TEST_CASE("stage 0 behind no backward at all is exposed") {
  const ZeroCost cost = cost_of(0, 0);
  CHECK(cost.exposed == Seconds(528 + 2 * 3552 + 480));
  CHECK(cost.hidden == Seconds(0));
}

TEST_CASE("what is left over equals a simulation of the stream") {
  for (const double compute : {0.0, 100.0, 1776.0, 3000.0, 3552.0, 4000.0, 1e5}) {
    // Ready: head at 0, layers at compute and 2 compute, embedding with the second.
    double stream = 0;
    for (const auto& [ready, time] :
         {std::pair{0.0, 528.0}, std::pair{compute, 3552.0}, std::pair{2 * compute, 3552.0},
          std::pair{2 * compute, 480.0}}) {
      stream = std::max(stream, ready) + time;
    }
    INFO("compute " << compute);
    CHECK(cost_of(0, compute).exposed.count() == Catch::Approx(stream - 2 * compute));
  }
}

TEST_CASE("stages 1 and 2 reduce behind the backward and gather parameters in the open") {
  for (const int stage : {1, 2}) {
    const ZeroCost cost = cost_of(stage, 1e6);
    // First layer 1776 and embedding 240; all parameters 1352 * 2 * 3/4 = 2028.
    CHECK(cost.exposed == Seconds(1776 + 240 + 2028));
    CHECK(cost.hidden == Seconds(264 + 1776));
    CHECK(sent(cost, CommKind::reduce_scatter) == Bytes(4056));
    CHECK(sent(cost, CommKind::all_gather) == Bytes(2028));
  }
}

TEST_CASE("stage 3 prefetches a layer") {
  const ZeroCost cost = cost_of(3, 1e6);
  // Forward: embedding 120 and first layer 888. Backward: last layer's gather 888, and at its end
  // the first layer's and the embedding's gradients 1776 + 240.
  CHECK(cost.exposed == Seconds(120 + 888 + 888 + 1776 + 240));
  CHECK(cost.hidden == Seconds(888 + 132 + 888 + 264 + 1776));
  // 2028 + 2 * 888: the head's weights stay from the forward to the backward, the embedding's are
  // not needed again.
  CHECK(sent(cost, CommKind::all_gather) == Bytes(3804));
  CHECK(sent(cost, CommKind::reduce_scatter) == Bytes(4056));
}

TEST_CASE("stage 3 with layers that take no time is exposed") {
  const ZeroCost cost = cost_of(3, 0);
  CHECK(cost.exposed == Seconds(2028 + 2 * 888 + 4056));
  CHECK(cost.hidden == Seconds(0));
}

TEST_CASE("longer layers never expose more") {
  for (const int stage : {0, 1, 2, 3}) {
    Seconds before(1e9);
    for (double compute = 0; compute < 8000; compute += 250) {
      const ZeroCost cost = cost_of(stage, compute);
      CHECK(cost.exposed <= before);
      CHECK(cost.hidden >= Seconds(0));
      before = cost.exposed;
    }
  }
}

TEST_CASE("a prefill gathers once in stage 3 and nothing otherwise") {
  CHECK(cost_of(3, 1e6, false).bytes() == Bytes(2028));
  for (const int stage : {0, 1, 2}) {
    CHECK(cost_of(stage, 1e6, false).bytes() == Bytes(0));
  }
}

TEST_CASE("one rank sends nothing") {
  for (const int stage : {0, 1, 2, 3}) {
    const ZeroCost cost = zero_cost(tiny_model(), {.ranks = 1, .zero = stage}, one_byte_a_second);
    CHECK(cost.bytes() == Bytes(0));
    CHECK(cost.exposed == Seconds(0));
  }
}

TEST_CASE("gradients in bf16 halve their traffic") {
  const ZeroCost cost =
      zero_cost(tiny_model(), {.ranks = 4, .zero = 1, .gradient = DType::bf16}, one_byte_a_second);
  CHECK(sent(cost, CommKind::reduce_scatter) == Bytes(2028));
}
