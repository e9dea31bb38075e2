// cuDNN's attention on a device against the fp64 oracle, as a rank's kernels call it: cut into
// calls, statistics transposed, workspaces and all. On a GPU it is cuDNN's own kernels; on the host
// its graphs are executed in fp64 (host_cudnn_graph.hpp), so that what is compared is what they
// say.
//
// Tolerances. Inputs are in [-1, 1], P adds up to 1 over the keys. delta comes from rows of numbers
// that were rounded to the type: it errs by u |delta|, and dS by another factor scale. Kernels
// round P and dS to the type, too: a product of D numbers is below 5 standard deviations, 5 sqrt(D)
// / 3. A gradient adds up P over keys (1) or queries (at most their number); parts of it that share
// keys are rounded, added and rounded.
#include "runtime/kernels/cudnn/sdpa.hpp"
#include "tests/device/attention_runs.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"

#include <cmath>

namespace spp::test {
using namespace spp::runtime;

TEST_CASE("cuDNN's attention on a device is the oracle's") {
  SPP_NEED_DEVICE();
  if (const std::string why_not = sdpa_why_not(); !why_not.empty()) {
    SPP_SKIP(why_not);
  }
  // Blocks here have few keys, of which some versions give no right gradients.
  if (const std::string why_not = sdpa_why_not({.q_rows = 24, .k_rows = 24}, Phase::backward);
      !why_not.empty()) {
    SPP_SKIP(why_not);
  }
  const cuda::Stream stream(0);
  const auto kernels = cuda::device_attention::by_name("cudnn", "test").make(nullptr);
  const DType type = GENERATE(DType::bf16, DType::fp16);
  const auto widths = GENERATE(HeadWidths{64, 64}, HeadWidths{128, 128}, HeadWidths{192, 128});
  std::vector<Block> tokens_of_blocks = blocks();
  tokens_of_blocks.push_back({"all keys gathered",
                              TokenSet({.begin = 8, .count = 8}, {.begin = 30, .count = 8}),
                              tokens(0, 46)});
  const std::vector<Mask> masks_of_cudnn{{.kind = MaskKind::full}, {.kind = MaskKind::causal}};
  std::mt19937 random(7);
  // lse of all keys is finite: here of a query that sees none, too.
  for (const AttentionCase& c :
       attention_cases(tokens_of_blocks, masks_of_cudnn, type, widths, Lse::finite)) {
    INFO(to_string(c));
    const AttentionRun run = run_attention(*kernels, c, stream, random);
    const double u = unit_of(type);
    const double fp32 = (widths.keys + 46) * 0x1p-24;
    CHECK(distance(run.out.values, run.out.expected) <= 2 * u);
    CHECK(distance(run.lse.values, run.lse.expected) <= 8 * fp32);
    const double scale = 1 / std::sqrt(static_cast<double>(widths.keys));
    const double product = emulated() ? 0 : 5 * std::sqrt(static_cast<double>(widths.values)) / 3;
    const double d_s = scale * (magnitude(run.delta) + product);
    const std::int64_t q_heads = c.q_heads / c.kv_heads;  // of a KV head
    const auto queries = static_cast<double>(c.tokens.queries.count() * q_heads);
    const auto within = [&](const Compared& d, double sum_of_p, double factor) {
      return u * (2 * sum_of_p * factor + 3 * magnitude(d.expected));
    };
    CHECK(distance(run.d_q.values, run.d_q.expected) <= within(run.d_q, 1, d_s));
    CHECK(distance(run.d_k.values, run.d_k.expected) <= within(run.d_k, queries, d_s));
    CHECK(distance(run.d_v.values, run.d_v.expected) <=
          within(run.d_v, queries, emulated() ? 0 : 1));
  }
}

}  // namespace spp::test
