// The device's reference attention against the fp64 oracle, over masks, layouts and heads. It
// computes in fp32: scores are sums of D products, results of up to S, so it is within
// (D + S) u32 of the largest number, and within one rounding of the storage type.
#include "tests/device/attention_runs.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>

namespace spp::test {
using namespace spp::runtime;

TEST_CASE("a device's reference attention is the oracle's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  const auto kernels = cuda::device_attention::by_name("reference", "test").make(nullptr);
  const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  const auto widths =
      GENERATE(HeadWidths{64, 64}, HeadWidths{20, 20}, HeadWidths{24, 16}, HeadWidths{16, 20});
  std::mt19937 random(7);
  for (const AttentionCase& c :
       attention_cases(blocks(), masks(), type, widths, Lse::of_the_forward)) {
    INFO(to_string(c));
    const AttentionRun run = run_attention(*kernels, c, stream, random);
    const double fp32 = (std::max(widths.keys, widths.values) + 46) * 0x1p-24;
    CHECK(distance(run.out.values, run.out.expected) <= unit_of(type) + fp32);
    CHECK(distance(run.lse.values, run.lse.expected) <= 8 * fp32);
    const double gradient = unit_of(type) + 4 * fp32;  // two products, of numbers below 8
    const auto within = [&](const Compared& d) { return gradient * (1 + magnitude(d.expected)); };
    CHECK(distance(run.d_q.values, run.d_q.expected) <= within(run.d_q));
    CHECK(distance(run.d_k.values, run.d_k.expected) <= within(run.d_k));
    CHECK(distance(run.d_v.values, run.d_v.expected) <= within(run.d_v));
  }
}

}  // namespace spp::test
