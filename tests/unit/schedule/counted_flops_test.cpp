#include "schedule/counted_flops.hpp"

#include "tests/support/catch.hpp"

using namespace spp;

TEST_CASE(
    "published figures count 4 FLOPs a pair and head dimension, and a backward as 2.5 forwards") {
  // 4 * 2 sequences * 3 heads * 64 * 10 * 20 pairs = 307,200.
  CountedCall call{.queries = 10, .keys = 20, .batch = 2, .heads = 3, .qk_dim = 64, .v_dim = 64};
  CHECK(counted_flops(call).value() == 307'200);
  call.backward = true;
  CHECK(counted_flops(call).value() == 3.5 * 307'200);
  call.forward = false;
  CHECK(counted_flops(call).value() == 2.5 * 307'200);
  call.halved = true;
  CHECK(counted_flops(call).value() == 1.25 * 307'200);
}

TEST_CASE("keys wider than values count with the mean of both widths") {
  // MLA: 192 and 128 as 160.
  const CountedCall mla{.queries = 8, .keys = 8, .qk_dim = 192, .v_dim = 128};
  const CountedCall mean{.queries = 8, .keys = 8, .qk_dim = 160, .v_dim = 160};
  CHECK(counted_flops(mla) == counted_flops(mean));
}

TEST_CASE(
    "a backward does 2.5 times the FLOPs of a forward, and more where keys are wider than values") {
  CHECK(flops_per_pair(Phase::forward, 128, 128) == 4 * 128);
  CHECK(flops_per_pair(Phase::backward, 128, 128) == 10 * 128);
  CHECK(flops_per_pair(Phase::backward, 192, 128) == 3 * 2 * 192 + 2 * 2 * 128);
}
