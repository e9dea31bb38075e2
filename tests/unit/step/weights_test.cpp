#include "step/weights.hpp"

#include "tests/support/catch.hpp"

#include <array>

using namespace spp;

TEST_CASE("FSDP of two layers, by hand") {
  // Gathers of 3 s and reductions of 2 s beside layers of 5 s forward and 10 s backward.
  //   forward   gather 0: 0-3, layer 0: 3-8, gather 1: 3-6, layer 1: 8-13           3 s exposed
  //   backward  layer 1: 0-10, gather 0: 0-3, reduce 1: 10-12, layer 0: 10-20,
  //             reduce 0: 20-22                                                      2 s exposed
  const LayerWork work{.forward = 5, .backward = 10, .weights = {.gather = 3, .reduce = 2}};
  const Sharded cost = gather_and_reduce(std::array{work, work});
  CHECK(cost.forward_exposed == 3);
  CHECK(cost.backward_exposed == 2);
  CHECK(cost.forward_hidden == 6 - 3);   // of two gathers
  CHECK(cost.backward_hidden == 7 - 2);  // of a gather and two reductions
}

TEST_CASE("layers that take no time expose all that moves") {
  const LayerWork work{.weights = {.gather = 3, .reduce = 2}};
  const Sharded cost = gather_and_reduce(std::array{work, work, work});
  CHECK(cost.forward_exposed == 3 * 3);
  CHECK(cost.backward_exposed == 2 * 3 + 3 * 2);  // the last layer's weights are still there
  CHECK(cost.forward_hidden == 0);
  CHECK(cost.backward_hidden == 0);
}

TEST_CASE("longer layers never expose more") {
  double before = 1e9;
  for (double seconds = 0; seconds < 20; seconds += 0.5) {
    const LayerWork work{
        .forward = seconds, .backward = 2 * seconds, .weights = {.gather = 3, .reduce = 5}};
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
  const std::array reductions{Reduction{.ready = 0, .seconds = 5},
                              Reduction{.ready = 4, .seconds = 5},
                              Reduction{.ready = 8, .seconds = 5}};
  CHECK(left_over(reductions, 10) == 5);
  CHECK(left_over(reductions, 20) == 0);
  CHECK(left_over({}, 0) == 0);
}
