#include "step/weights.hpp"

#include "tests/support/catch.hpp"

#include <array>

using namespace spp;

namespace {

/// So many seconds of a GPU's port.
sim::LinkSeconds port(double seconds) {
  sim::LinkSeconds links;
  links[level_of(sim::LinkKind::gpu_out).value()] = seconds;
  return links;
}

}  // namespace

TEST_CASE("FSDP of two layers, by hand") {
  // Gathers of 3 s and reductions of 2 s beside layers of 5 s forward and 10 s backward.
  //   forward   gather 0: 0-3, layer 0: 3-8, gather 1: 3-6, layer 1: 8-13           3 s exposed
  //   backward  layer 1: 0-10, gather 0: 0-3, reduce 1: 10-12, layer 0: 10-20,
  //             reduce 0: 20-22                                                      2 s exposed
  const LayerWork work{.forward = {.seconds = 5},
                       .backward = {.seconds = 10},
                       .weights = {.gather = {.seconds = 3}, .reduce = {.seconds = 2}}};
  const Sharded cost = gather_and_reduce(std::array{work, work});
  CHECK(cost.forward_exposed == 3);
  CHECK(cost.backward_exposed == 2);
  CHECK(cost.forward_hidden == 6 - 3);   // of two gathers
  CHECK(cost.backward_hidden == 7 - 2);  // of a gather and two reductions
}

TEST_CASE("layers that take no time expose all that moves") {
  const LayerWork work{.weights = {.gather = {.seconds = 3}, .reduce = {.seconds = 2}}};
  const Sharded cost = gather_and_reduce(std::array{work, work, work});
  CHECK(cost.forward_exposed == 3 * 3);
  CHECK(cost.backward_exposed == 2 * 3 + 3 * 2);  // the last layer's weights are still there
  CHECK(cost.forward_hidden == 0);
  CHECK(cost.backward_hidden == 0);
}

TEST_CASE("weights move while a layer's own transfers leave the links to them") {
  // As above, but layers take links for three fifths of a forward, half of a backward.
  //   forward   gather 0: 0-3, layer 0: 3-8 with 2 s of gather 1, 8-9 the rest, layer 1: 9-14
  //   backward  layer 1: 0-10, gather 0: 0-6, layer 0: 10-20 with reduce 1: 10-14,
  //             reduce 0: 20-22
  const LayerWork work{.forward = {.seconds = 5, .links = port(3)},
                       .backward = {.seconds = 10, .links = port(5)},
                       .weights = {.gather = {.seconds = 3, .links = port(3)},
                                   .reduce = {.seconds = 2, .links = port(2)}}};
  const Sharded cost = gather_and_reduce(std::array{work, work});
  CHECK(cost.forward_exposed == Approx(4));
  CHECK(cost.backward_exposed == Approx(2));
  CHECK(cost.forward_hidden == Approx(2));
  CHECK(cost.backward_hidden == Approx(5));

  // On other links nothing waits.
  LayerWork apart = work;
  apart.weights.gather.links = {};
  apart.weights.gather.links[level_of(sim::LinkKind::nic_out).value()] = 3;
  CHECK(gather_and_reduce(std::array{apart, apart}).forward_exposed == Approx(3));
  // Nor where a transfer can use but a third of a link of which more is free.
  LayerWork slow = work;
  slow.weights.gather.links = port(1);
  CHECK(gather_and_reduce(std::array{slow, slow}).forward_exposed == Approx(3));
}

TEST_CASE("a layer that takes the links all the time hides nothing of its weights") {
  const LayerWork work{.forward = {.seconds = 5, .links = port(5)},
                       .backward = {.seconds = 10, .links = port(10)},
                       .weights = {.gather = {.seconds = 3, .links = port(3)},
                                   .reduce = {.seconds = 2, .links = port(2)}}};
  const Sharded cost = gather_and_reduce(std::array{work, work, work});
  CHECK(cost.forward_exposed == Approx(3 * 3));
  CHECK(cost.backward_exposed == Approx(2 * 3 + 3 * 2));
}

TEST_CASE("longer layers never expose more") {
  double before = 1e9;
  for (double seconds = 0; seconds < 20; seconds += 0.5) {
    const LayerWork work{.forward = {.seconds = seconds},
                         .backward = {.seconds = 2 * seconds},
                         .weights = {.gather = {.seconds = 3}, .reduce = {.seconds = 5}}};
    const Sharded cost = gather_and_reduce(std::array{work, work, work, work});
    const double exposed = cost.forward_exposed + cost.backward_exposed;
    CHECK(exposed <= before);
    CHECK(cost.forward_hidden >= 0);
    CHECK(cost.backward_hidden >= 0);
    before = exposed;
  }
}

TEST_CASE("what is left over is what one stream has not moved when the backward ends") {
  // 0-5, 5-10, 10-15 against a backward of 10 s.
  const WeightTransfer transfer{.seconds = 5, .links = port(5)};
  std::array reductions{Reduction{.ready = 0, .transfer = transfer},
                        Reduction{.ready = 4, .transfer = transfer},
                        Reduction{.ready = 8, .transfer = transfer}};
  CHECK(move_gradients(reductions, 0, 10, {}) == 5);
  CHECK(reductions[1].begin == 5);
  CHECK(reductions[2].end == 15);
  CHECK(move_gradients(reductions, 0, 20, {}) == 0);
  // Beside passes that leave half of the links 10 of 15 s are moved until then.
  CHECK(move_gradients(reductions, 0, 20, {.seconds = 2, .links = port(1)}) == Approx(5));
  CHECK(reductions[1].end == Approx(20));
  CHECK(move_gradients(reductions, 20, 20, {}) == 15);
  CHECK(move_gradients({}, 0, 0, {}) == 0);
}
