// Laws of GEMM times, on every GPU that topologies/ has.
#include "machine/gemm_cost.hpp"

#include "base/error.hpp"
#include "machine/kernel_cost.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <optional>

using namespace spp;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

GpuSpec gpu_named(const std::string& name) { return test::catalog().gpu(name, "test"); }

constexpr std::array every_format{GemmFormat::plain, GemmFormat::fp8, GemmFormat::fp8_block,
                                  GemmFormat::mxfp8, GemmFormat::nvfp4};
constexpr std::array<std::int64_t, 9> lengths{1, 64, 129, 512, 1024, 2304, 4096, 8192, 65536};

/// What the GPU multiplies tensors of 16 bits in; V100 has no bf16.
DType sixteen_bits(const GpuSpec& gpu) {
  return gpu.matrix_rate.contains(DType::bf16) ? DType::bf16 : DType::fp16;
}

std::vector<GemmFormat> formats_of(const GpuSpec& gpu) {
  std::vector<GemmFormat> known{GemmFormat::plain};
  for (const auto& [format, spec] : gpu.generation.gemm_formats) {
    if (format == GemmFormat::nvfp4 ? gpu.fp4_rate.has_value() : gpu.fp8_rate.has_value()) {
      known.push_back(format);
    }
  }
  return known;
}

/// The same GPU with one tile, no power limit, nothing beside the tiles.
GpuSpec bare_h100() {
  GpuSpec gpu = gpu_named("h100");
  GemmTilesSpec& tiles = *gpu.generation.gemm_tiles;
  tiles.shapes = {{.rows = 256, .columns = 128}};
  tiles.tile_time.value = Seconds(0);
  tiles.slower.value = 0;
  tiles.split.value = Seconds(1);
  tiles.memory.value = 1;
  gpu.memory_bandwidth.value = Bandwidth(1e18);
  gpu.generation.gemm_startup.value = Seconds(0);
  return gpu;
}

}  // namespace

TEST_CASE("formats have names") {
  for (const GemmFormat format : every_format) {
    CHECK(parse_gemm_format(to_string(format), "format") == format);
  }
  CHECK_THROWS_WITH(parse_gemm_format("fp9", "format"), ContainsSubstring("did you mean 'fp8'?"));
}

TEST_CASE("a GEMM runs in waves of tiles") {
  const GpuSpec gpu = bare_h100();
  const KernelCost cost(gpu);
  const double rate = 989.4e12 * gpu.generation.gemm_efficiency.value;
  // 132 tiles of 256 x 128: one wave; one row or column more: two.
  const Seconds one = cost.gemm({.m = 12 * 256, .n = 11 * 128, .k = 4096}, DType::bf16);
  CHECK(one.count() == Approx(2.0 * 12 * 256 * 11 * 128 * 4096 / rate));
  const Seconds two = cost.gemm({.m = 12 * 256 + 1, .n = 11 * 128, .k = 4096}, DType::bf16);
  CHECK(two.count() == Approx(2 * one.count()));
  CHECK(cost.gemm({.m = 12 * 256, .n = 11 * 128 + 1, .k = 4096}, DType::bf16) == two);
  // k in steps of 64
  CHECK(cost.gemm({.m = 12 * 256, .n = 11 * 128, .k = 4097}, DType::bf16) ==
        cost.gemm({.m = 12 * 256, .n = 11 * 128, .k = 4160}, DType::bf16));
}

TEST_CASE("one row streams the weights") {
  const GpuSpec gpu = gpu_named("h100");
  const KernelCost cost(gpu);
  const double bytes = 2.0 * 16384 * 16384;
  const double seconds = cost.gemm({.m = 1, .n = 16384, .k = 16384}, DType::bf16).count();
  CHECK(seconds > bytes / 3350e9);
  CHECK(seconds < 1.3 * bytes / 3350e9);
}

TEST_CASE("few tiles are split along k, where that pays") {
  GpuSpec gpu = gpu_named("h100");
  const Seconds split = KernelCost(gpu).gemm({.m = 256, .n = 256, .k = 32768}, DType::bf16);
  gpu.generation.gemm_tiles->split.value = Seconds(1);
  CHECK(split < 0.5 * KernelCost(gpu).gemm({.m = 256, .n = 256, .k = 32768}, DType::bf16));
}

TEST_CASE("GEMMs never beat the peak, and never take less as they grow") {
  for (const std::string& name : test::catalog().gpu_names()) {
    const GpuSpec gpu = gpu_named(name);
    const DType dtype = sixteen_bits(gpu);
    CAPTURE(name);
    for (const GemmFormat format : formats_of(gpu)) {
      CAPTURE(to_string(format));
      const KernelCost cost(gpu);
      const FlopRate peak = matrix_rate(gpu, format, dtype, "test");
      const auto time = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
        return cost.gemm({.m = m, .n = n, .k = k, .format = format}, dtype);
      };
      for (const std::int64_t m : lengths) {
        for (const std::int64_t n : lengths) {
          for (const std::int64_t k : {64, 576, 4096, 32768}) {
            CAPTURE(m, n, k);
            const Seconds now = time(m, n, k);
            const double flops =
                2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
            REQUIRE(now > FlopCount(flops) / peak);
            REQUIRE(time(m + 256, n, k) >= now);
            REQUIRE(time(m, n + 256, k) >= now);
            REQUIRE(time(m, n, k + 64) >= now);
          }
        }
      }
    }
  }
}

TEST_CASE("a narrow format costs at most its quantising") {
  for (const std::string name : {"h100", "b200", "l40s", "h20", "rtx4090", "gb300"}) {
    const GpuSpec gpu = gpu_named(name);
    const KernelCost cost(gpu);
    CAPTURE(name);
    for (const GemmFormat format : formats_of(gpu)) {
      for (const std::int64_t size : {2048, 8192, 16384}) {
        CAPTURE(to_string(format), size);
        GemmWork work{.m = size, .n = size, .k = size};
        const Seconds plain = cost.gemm(work, DType::bf16);
        work.format = format;
        const Seconds with = cost.gemm(work, DType::bf16);
        work.quantised = true;
        const Seconds without = cost.gemm(work, DType::bf16);
        CHECK(without <= plain);
        if (format != GemmFormat::plain) {
          CHECK(with > without);
        }
      }
    }
  }
}

TEST_CASE("a format that a GPU lacks is refused by name") {
  const GpuSpec a100 = gpu_named("a100");
  CHECK_THROWS_WITH(
      KernelCost(a100).gemm({.m = 1, .n = 1, .k = 1, .format = GemmFormat::fp8}, DType::bf16),
      ContainsSubstring("fp8"));
  CHECK_THROWS_WITH(matrix_rate(a100, GemmFormat::fp8, DType::bf16, "here"),
                    ContainsSubstring("here: a100-80g-sxm has no matrix units for fp8"));
  CHECK(matrix_rate(gpu_named("b200"), GemmFormat::nvfp4, DType::bf16, "here") == FlopRate(9e15));
  // Scales of 32 are Blackwell's; blocks of 128 are scaled by Hopper's kernels.
  CHECK_THROWS_WITH(matrix_rate(gpu_named("h100"), GemmFormat::mxfp8, DType::bf16, "here"),
                    "here: h100-80g-sxm has no matrix units for mxfp8, but fp8, fp8-block");
  CHECK_THROWS_WITH(matrix_rate(gpu_named("b200"), GemmFormat::fp8_block, DType::bf16, "here"),
                    "here: b200-180g-sxm has no matrix units for fp8-block, but fp8, mxfp8, nvfp4");
}

TEST_CASE("a grouped GEMM of one group is a GEMM") {
  const GpuSpec gpu = gpu_named("a100");
  const KernelCost cost(gpu);
  const GemmWork work{.m = 3000, .n = 4096, .k = 1024};
  const std::array<std::int64_t, 1> one{3000};
  CHECK(cost.grouped_gemm(one, work, DType::bf16) == cost.gemm(work, DType::bf16));
  const GemmWork groups{.m = 3000, .n = 4096, .k = 1024, .groups = 7};
  const std::array<std::int64_t, 7> rows{429, 429, 429, 429, 428, 428, 428};
  CHECK(cost.grouped_gemm(rows, work, DType::bf16) == cost.gemm(groups, DType::bf16));
  // More groups: more weights and more tiles that are not full.
  CHECK(cost.gemm(groups, DType::bf16) > cost.gemm(work, DType::bf16));
}

TEST_CASE("experts without tokens cost nothing but their place in the launch") {
  const GpuSpec gpu = gpu_named("h100");
  const KernelCost cost(gpu);
  const GemmWork work{.n = 4096, .k = 4096};
  const std::array<std::int64_t, 2> two{512, 512};
  const std::array<std::int64_t, 4> four{512, 0, 512, 0};
  CHECK(cost.grouped_gemm(two, work, DType::bf16) == cost.grouped_gemm(four, work, DType::bf16));
}

TEST_CASE("an expert layer takes longer than its GEMMs, and longer if tokens are unequal") {
  const GpuSpec gpu = gpu_named("b200");
  const KernelCost cost(gpu);
  const std::array<std::int64_t, 4> even{1024, 1024, 1024, 1024};
  const std::array<std::int64_t, 4> uneven{3000, 1000, 90, 6};
  const auto layer = [&](std::span<const std::int64_t> rows) {
    return cost.expert_layer({.rows = rows, .tokens = 2048, .hidden = 4096, .ffn = 2048},
                             DType::bf16);
  };
  const Seconds gemms = cost.grouped_gemm(even, {.n = 4096, .k = 4096}, DType::bf16) +
                        cost.grouped_gemm(even, {.n = 4096, .k = 2048}, DType::bf16);
  CHECK(layer(even) > gemms);
  CHECK(layer(uneven) > layer(even));
  GpuSpec v100 = gpu_named("v100-32g-sxm");
  CHECK_THROWS_AS(KernelCost(v100).expert_layer(
                      {.rows = even, .tokens = 1, .hidden = 64, .ffn = 64}, DType::fp16),
                  InputError);
}

TEST_CASE("without tiles a GEMM is the longer of its waves and its bytes") {
  GpuSpec gpu = gpu_named("h100");
  gpu.generation.gemm_tiles.reset();
  gpu.generation.gemm_efficiency.value = 0.72;
  const KernelCost cost(gpu);
  // 4096 x 4224 output: 32 * 33 = 1056 tiles of 128 x 128 = 8 waves of 132.
  CHECK(cost.gemm({.m = 4096, .n = 4224, .k = 4096}, DType::bf16).count() ==
        Approx(gpu.generation.gemm_startup.value.count() +
               2.0 * 4096 * 4224 * 4096 / (0.72 * 989.4e12)));
  const Seconds thin = cost.gemm({.m = 1, .n = 16384, .k = 16384}, DType::bf16);
  CHECK(thin >= cost.memory_bound(Bytes(std::int64_t{2} * 16384 * 16384)));
}

TEST_CASE("GEMMs inside a training step are slower where somebody measured it") {
  const GpuSpec b200 = gpu_named("b200");
  const GpuSpec l40s = gpu_named("l40s");
  CHECK(KernelCost(b200).gemm_in_training() > 1.1);
  CHECK(KernelCost(l40s).gemm_in_training() == 1);
}
