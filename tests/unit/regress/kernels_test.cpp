#include "regress/kernels.hpp"

#include "base/error.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <numeric>

using namespace spp;
using namespace spp::regress;
using Catch::Approx;
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

Catalog test_catalog() { return test::catalog(); }
GpuSpec h100() { return test_catalog().gpu("h100", "test"); }

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
  CHECK(gemm_format_of(gemm, gpu) == GemmFormat::fp8_block);
  CHECK(gemm_format_of(gemm, test_catalog().gpu("b200", "test")) == GemmFormat::mxfp8);
  CHECK(kernel_answer(gemm, cost).time ==
        cost.gemm({.m = 4096, .n = 4096, .k = 4096, .format = GemmFormat::fp8_block}, DType::bf16));
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
  CHECK(attention_kernel_of(p, gpu.generation) == "FA3 paged");
  p.dtype = "fp8";
  CHECK(attention_kernel_of(p, gpu.generation) == "FA3 paged fp8");
  CHECK(attention_kernel_of(p, test_catalog().generation("ada-full-rate", "test")) == "FA2");
  p.dtype = "bf16";
  p.kernel = "flash_attention";
  CHECK(attention_kernel_of(p, gpu.generation) == "FA2");
  const Catalog catalog = test_catalog();
  CHECK(attention_kernel_of(p, catalog.generation("ampere", "test")) == "FA2 paged");
  p.kernel = "trtllm_mha";
  CHECK(attention_kernel_of(p, gpu.generation) == "TRT-LLM");
  CHECK(attention_kernel_of(p, catalog.generation("volta", "test")) ==
        catalog.generation("volta", "test").attention.kernel);
  // 1024 tokens of 8 heads, keys and values of 128: read and written in 16 bits.
  const double bytes = 2.0 * 2 * 1024 * 8 * 256;
  CHECK(cache_write(p, cost).count() ==
        Approx(3e-6 + bytes / (0.65 * 3352e9) + 1024 * 90e-9 / 132).epsilon(0.01));
  p.seq = 2048;
  const Seconds in_vllm = cache_write(p, cost);
  p.library = "SGLang";
  CHECK(cache_write(p, cost) < in_vllm);
  p.mask = PointMask::full;
  CHECK(cache_write(p, cost).count() == 0);
  p.kernel = "flash_attention_v3";
  CHECK(attention_kernel_of(p, gpu.generation) == "FA3 varlen");
}

TEST_CASE("a benchmark of attention holds its tensors, of both passes if it runs both") {
  Point p;
  p.seq = 4096;
  p.batch = 2;
  p.q_heads = 16;
  p.kv_heads = 4;
  p.head_dim = 128;
  p.dtype = "fp16";
  const std::int64_t rows = 2 * 4096 * 16;
  const std::int64_t once = 2 * rows * 128 * 2 + 2 * rows / 4 * 128 * 2 + 4 * rows;
  CHECK(attention_memory(p, false) == Bytes(once));
  CHECK(attention_memory(p, true) == Bytes(2 * once + 4 * rows * 128));
}

TEST_CASE("linear attention is predicted by its kernel, and asks for its shape") {
  const GpuSpec gpu = h100();
  const Catalog catalog = test_catalog();
  const Json document = catalog.generation_document("hopper");
  const LinearSpec spec = read_linear(JsonView(document, "hopper"));
  Point p;
  p.op = "gdn_chunk";
  p.seq = 4096;
  p.kernel = "chunk_gated_delta_rule_flashinfer";
  p.k_heads = 8;
  p.k_head_dim = p.v_heads = 32;
  CHECK_THROWS_WITH(linear_answer(p, gpu, spec), ContainsSubstring("v_head_dim"));
  p.k_head_dim = 128;
  p.v_head_dim = 128;
  const KernelAnswer fused = linear_answer(p, gpu, spec);
  CHECK(fused.time == gated_delta_time(gpu, spec,
                                       {.seq = 4096,
                                        .batch = 1,
                                        .key_heads = 8,
                                        .key_dim = 128,
                                        .value_heads = 32,
                                        .value_dim = 128,
                                        .fused = true},
                                       DType::bf16));
  LinearSpec no_fused = spec;
  no_fused.fused.reset();
  const KernelAnswer as_chunked = linear_answer(p, gpu, no_fused);
  p.kernel = "chunk_gated_delta_rule_triton";
  CHECK(linear_answer(p, gpu, spec).time != fused.time);
  CHECK(linear_answer(p, gpu, spec).time == as_chunked.time);
  CHECK(linear_answer(p, gpu, spec).spread < as_chunked.spread);
  p.op = "causal_conv1d";
  CHECK_THROWS_WITH(linear_answer(p, gpu, spec), ContainsSubstring("channels"));
  p.channels = 6144;
  CHECK(linear_answer(p, gpu, spec).time ==
        convolution_time(gpu, spec, {.seq = 4096, .batch = 1, .channels = 6144}));
  p.op = "mamba2_scan";
  CHECK_THROWS_WITH(linear_answer(p, gpu, spec), ContainsSubstring("heads"));
  p.linear_heads = 80;
  p.head_dim = 64;
  p.d_state = 128;
  CHECK(linear_answer(p, gpu, spec).time.count() > 0);
  CHECK(linear_answer(p, gpu, spec).spread > 0.3);
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
  mla.head_dim = 576;
  mla.head_dim_v = 512;
  CHECK(kernel_answer(mla, cost).time > 2 * alone);
  CHECK(kernel_answer(mla, cost).spread > 0.25);
  mla.op = "gdn_chunk";
  CHECK_THROWS_WITH(kernel_answer(mla, cost), ContainsSubstring("kernels of kind gdn_chunk"));
}
