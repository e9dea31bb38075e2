#include "regress/kernels.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <algorithm>
#include <numeric>

using namespace spp;
using namespace spp::regress;
using Catch::Matchers::ContainsSubstring;

namespace {

Point experts_point(const std::string& distribution) {
  Point p;
  p.scope = Scope::kernel;
  p.op = "moe";
  p.tokens = 4096;
  p.hidden = 4096;
  p.moe_ffn = 1536;
  p.experts = 128;
  p.experts_per_token = 8;
  p.ep = 8;
  p.distribution = distribution;
  return p;
}

std::int64_t sum_of(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

GpuSpec h100() { return Catalog(test::source_path("topologies")).gpu("h100", "test"); }

}  // namespace

TEST_CASE("balanced experts have a rank's part of all copies") {
  const auto all = expert_rows(experts_point("balanced"));
  REQUIRE(all.size() == 1);
  CHECK(all[0].size() == 16);
  CHECK(sum_of(all[0]) == 4096 * 8 / 8);
  CHECK(std::ranges::max(all[0]) - std::ranges::min(all[0]) <= 1);
}

TEST_CASE("a power law makes the busiest rank, and the same one each time") {
  const auto all = expert_rows(experts_point("power_law_1.2"));
  CHECK(all == expert_rows(experts_point("power_law_1.2")));
  for (const auto& rows : all) {
    CHECK(rows.size() == 16);
    CHECK(sum_of(rows) > 4096 * 8 / 8);
    CHECK(std::ranges::max(rows) <= 4096);
    CHECK(std::ranges::min(rows) >= 0);
  }
  Point alone = experts_point("power_law_1.01");
  alone.ep = 1;
  for (const auto& rows : expert_rows(alone)) {
    CHECK(std::abs(sum_of(rows) - 4096 * 8) < 128);
  }
}

TEST_CASE("what is no distribution is refused") {
  CHECK_THROWS_WITH(expert_rows(experts_point("zipf")),
                    ContainsSubstring("'zipf' is not modelled"));
  CHECK_THROWS_AS(expert_rows(experts_point("power_law_x")), InputError);
  CHECK_THROWS_AS(expert_rows(experts_point("power_law_1")), InputError);
  Point p = experts_point("balanced");
  p.ep = 3;
  CHECK_THROWS_WITH(expert_rows(p), ContainsSubstring("3 does not divide 128 experts"));
}

TEST_CASE("kernels are predicted by their kind") {
  const GpuSpec gpu = h100();
  const KernelCost cost(gpu);
  Point gemm;
  gemm.op = "gemm";
  gemm.dtype = "bf16";
  gemm.m = gemm.n = gemm.k = 4096;
  CHECK(kernel_answer(gemm, cost).time ==
        cost.gemm({.m = 4096, .n = 4096, .k = 4096}, DType::bf16));
  CHECK(kernel_answer(gemm, cost).spread == gpu.generation.gemm_efficiency.spread);
  gemm.dtype = "fp8_block";
  CHECK(gemm_format_of(gemm) == GemmFormat::mxfp8);
  CHECK(kernel_answer(gemm, cost).time ==
        cost.gemm({.m = 4096, .n = 4096, .k = 4096, .format = GemmFormat::mxfp8}, DType::bf16));
  gemm.dtype = "int8";
  CHECK_THROWS_WITH(kernel_answer(gemm, cost), ContainsSubstring("unknown number format 'int8'"));

  Point moe = experts_point("balanced");
  const Seconds even = kernel_answer(moe, cost).time;
  moe.distribution = "power_law_1.2";
  CHECK(kernel_answer(moe, cost).time > 1.2 * even);
  moe.tp = 5;
  CHECK_THROWS_WITH(kernel_answer(moe, cost), ContainsSubstring("5 does not divide"));
}

TEST_CASE("inference servers have names of their own for kernels, and a cache to write") {
  const GpuSpec gpu = h100();
  const KernelCost cost(gpu);
  Point p;
  p.kernel = "FA2";
  p.seq = 1024;
  p.q_heads = 32;
  p.kv_heads = 8;
  p.head_dim = 128;
  CHECK(attention_kernel_of(p, gpu.generation) == "FA2");
  CHECK(cache_write(p, cost).count() == 0);
  p.library = "vLLM";
  p.kernel = "vllm_flash_attn_fa3";
  CHECK(attention_kernel_of(p, gpu.generation) == "FA3");
  p.kernel = "flash_attention";
  CHECK(attention_kernel_of(p, gpu.generation) == "FA2");
  p.kernel = "trtllm_mha";
  CHECK(attention_kernel_of(p, gpu.generation) == gpu.generation.attention.kernel);
  CHECK(cache_write(p, cost) == cost.launch() + cost.memory_bound(Bytes(2 * 2 * 1024 * 8 * 256)));
  p.mask = PointMask::full;
  CHECK(cache_write(p, cost).count() == 0);
}

TEST_CASE("latent attention is predicted with its heads projected, alone and as a block") {
  const GpuSpec gpu = h100();
  const KernelCost cost(gpu);
  Point mla;
  mla.op = "mla_context";
  mla.variant = "projected";
  mla.dtype = "bf16";
  mla.seq = 4096;
  mla.batch = 2;
  mla.q_heads = 16;
  mla.head_dim = 192;
  mla.head_dim_v = 128;
  mla.hidden = 7168;
  const Seconds alone = kernel_answer(mla, cost).time;
  CHECK(alone.count() > 0);
  mla.op = "mla_context_module";
  CHECK(kernel_answer(mla, cost).time > 1.5 * alone);
  mla.op = "mla_context";
  mla.variant = "absorbed";
  CHECK_THROWS_WITH(kernel_answer(mla, cost), ContainsSubstring("absorbed"));
  mla.op = "gdn_chunk";
  CHECK_THROWS_WITH(kernel_answer(mla, cost), ContainsSubstring("kernels of kind gdn_chunk"));
}
