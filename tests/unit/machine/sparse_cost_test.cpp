// Attention to picked keys on every GPU whose generation says how it runs: rates as published,
// laws.
#include "machine/sparse_cost.hpp"

#include "base/error.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

GpuSpec sparse_gpu(const std::string& name) { return test::catalog().gpu(name, "test"); }

/// DeepSeek-V3.2's, of queries that all see so many keys.
PickedWork of_v32(double queries, double keys, Phase phase = Phase::forward) {
  return {.visible = queries * keys,
          .picked = queries * std::min(keys, 2048.0),
          .q_heads = 128,
          .phase = phase};
}

double seconds(const GpuSpec& gpu, const PickedWork& work) {
  return picked_attention_time(gpu, work, DType::bf16).count();
}

}  // namespace

TEST_CASE("attention to picked keys takes what was published of its kernels") {
  struct Published {
    const char* gpu;
    Phase phase;
    double tflops, within;
  };
  for (const auto& [name, phase, tflops, within] :
       {Published{"h800-80g-sxm", Phase::forward, 620, 0.05},
        Published{"h800-80g-sxm", Phase::backward, 105, 0.1},
        Published{"b200-180g-sxm", Phase::forward, 1400, 0.05},
        Published{"b200-180g-sxm", Phase::backward, 684, 0.05}}) {
    INFO(name);
    PickedWork work = of_v32(65536, 2048, phase);
    work.index_heads = 0;
    work.visible = 0;
    const double flops =
        work.picked * 128 * (phase == Phase::forward ? 2 * 1088.0 : 6 * 576.0 + 4 * 512.0);
    CHECK(flops / seconds(sparse_gpu(name), work) / 1e12 == Approx(tflops).epsilon(within));
  }
  // DeepGEMM's scores on H200, 2,048 queries and 65,536 keys: 960 us, half of them seen.
  PickedWork scores = of_v32(2048, 65536);
  scores.picked = 0;
  const double selected = 12 * scores.visible / (4.8e12 * 0.85);
  CHECK(seconds(sparse_gpu("h200-141g-sxm"), scores) - selected == Approx(1.97e-3).epsilon(0.05));
}

TEST_CASE("fewer heads than a kernel works on take as long") {
  const GpuSpec gpu = sparse_gpu("h100-80g-sxm");
  PickedWork work = of_v32(4096, 65536);
  const double all = seconds(gpu, work);
  work.q_heads = 64;
  const double half = seconds(gpu, work);
  work.q_heads = 16;
  CHECK(seconds(gpu, work) == half);
  CHECK(half < all);
  work.phase = Phase::backward;
  const double sixteen = seconds(gpu, work);
  work.q_heads = 17;
  CHECK(seconds(gpu, work) > sixteen);
}

TEST_CASE("more keys to pick among take longer, and the attention behind them does not") {
  const GpuSpec gpu = sparse_gpu("b200-180g-sxm");
  CHECK(seconds(gpu, of_v32(4096, 65536)) > 1.4 * seconds(gpu, of_v32(4096, 32768)));
  CHECK(seconds(gpu, of_v32(4096, 65536, Phase::backward)) ==
        seconds(gpu, of_v32(4096, 32768, Phase::backward)));
}

TEST_CASE("pairs that nobody picks take what picked ones do, without scores") {
  const GpuSpec gpu = sparse_gpu("h100-80g-sxm");
  PickedWork work = of_v32(4096, 2048);
  work.visible = 0;
  const double picked = seconds(gpu, work);
  std::swap(work.picked, work.beside);
  CHECK(seconds(gpu, work) == Approx(picked));
  work.phase = Phase::backward;
  const double without_scores = seconds(gpu, work);
  std::swap(work.picked, work.beside);
  CHECK(seconds(gpu, work) > without_scores);
}

TEST_CASE("generations without such kernels say so") {
  CHECK_THAT(
      test::message_of<InputError>([] { (void)seconds(sparse_gpu("a100-80g-sxm"), of_v32(1, 1)); }),
      ContainsSubstring("'ampere' does not say how attention to picked keys runs"));
}
