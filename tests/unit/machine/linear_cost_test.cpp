// Laws of linear attention's kernels, on every GPU whose generation says how they run.
#include "machine/linear_cost.hpp"

#include "base/error.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <array>

using namespace spp;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

struct LinearGpu {
  GpuSpec gpu;
  LinearSpec spec;
};

LinearGpu linear_gpu(const std::string& name) {
  GpuSpec gpu = test::catalog().gpu(name, "test");
  const Json document = test::catalog().generation_document(gpu.generation.name);
  return {.gpu = std::move(gpu), .spec = read_linear(JsonView(document, "generation"))};
}

std::vector<LinearGpu> linear_gpus() {
  std::vector<LinearGpu> all;
  for (const std::string& name : test::catalog().gpu_names()) {
    const std::string generation = test::catalog().gpu(name, "test").generation.name;
    if (test::catalog().generation_document(generation).contains("linear")) {
      all.push_back(linear_gpu(name));
    }
  }
  return all;
}

constexpr std::array<std::int64_t, 8> linear_lengths{1, 64, 65, 512, 4096, 4097, 65536, 1 << 20};

Json hopper_linear() { return test::catalog().generation_document("hopper"); }

}  // namespace

TEST_CASE("a convolution streams at the rate of the SMs, or the memory's beyond the L2") {
  const auto [gpu, spec] = linear_gpu("l40s");
  const double startup = spec.startup.value.count();
  // 4096 x 1536 channels, read and written in 16 bits: 25 MB of the L2's 96
  const double bytes = 4.0 * 4096 * 1536;
  CHECK(convolution_time(gpu, spec, {.seq = 4096, .batch = 1, .channels = 1536}).count() ==
        Approx(startup + bytes / (142 * spec.of_sm.value.value())));
  CHECK(convolution_time(gpu, spec, {.seq = 4096, .batch = 64, .channels = 1536}).count() ==
        Approx(startup + 64 * bytes / (864e9 * spec.memory.value)));
}

TEST_CASE("chunked kernels move what their results take in memory") {
  // 64 tokens: k 256 + 256 (fp32 row), solve 256 + 128, k v A 128 + 512, W U 512,
  // states 2 * 256 + 256, v' 256, 128 x 128 states 512, output 2 * 256 + 256 + 512 + 256
  CHECK(gated_delta_bytes(128, 128) == 5120);
  const auto [gpu, spec] = linear_gpu("l40s");
  const GatedDeltaWork work{.seq = 4096, .batch = 1, .key_heads = 4, .value_heads = 4};
  // 84 MB: all of it stays in the L2
  CHECK(gated_delta_time(gpu, spec, work, DType::bf16).count() ==
        Approx(spec.chunked.startup.value.count() + 64 * spec.chunked.step.value.count() +
               4096 * 4 * 5120 / (142 * spec.of_sm.value.value())));
}

TEST_CASE("a fused kernel takes heads of sequences in waves over the SMs") {
  auto [gpu, spec] = linear_gpu("h100");
  gpu.memory_bandwidth.value = Bandwidth(1e18);
  GatedDeltaWork work{.seq = 6400, .batch = 33, .value_heads = 4, .fused = true};  // 132 items
  const double item = spec.fused->item.value.count() + 100 * spec.fused->step.value.count();
  const double startup = spec.startup.value.count();
  CHECK(gated_delta_time(gpu, spec, work, DType::bf16).count() == Approx(startup + item));
  work.batch = 34;
  CHECK(gated_delta_time(gpu, spec, work, DType::bf16).count() == Approx(startup + 2 * item));
}

TEST_CASE("linear attention never grows shorter, nor faster than the peak or the memory allows") {
  const std::vector<LinearGpu> gpus = linear_gpus();
  REQUIRE(gpus.size() > 10);
  for (const auto& [gpu, spec] : gpus) {
    INFO(gpu.name);
    const double peak = matrix_rate(gpu, DType::bf16, "test").value();
    for (const std::int64_t batch : {1, 3, 64}) {
      std::array<Seconds, 4> last{};
      for (const std::int64_t seq : linear_lengths) {
        const GatedDeltaWork delta{
            .seq = seq, .batch = batch, .key_heads = 16, .value_heads = 32, .fused = false};
        GatedDeltaWork fused = delta;
        fused.fused = spec.fused.has_value();
        const MambaWork mamba{.seq = seq, .batch = batch, .heads = 80, .groups = 8};
        const ConvolutionWork convolution{.seq = seq, .batch = batch, .channels = 8192};
        const std::array<Seconds, 4> now{convolution_time(gpu, spec, convolution),
                                         gated_delta_time(gpu, spec, delta, DType::bf16),
                                         gated_delta_time(gpu, spec, fused, DType::bf16),
                                         mamba_time(gpu, spec, mamba, DType::bf16)};
        const auto tokens = static_cast<double>(seq * batch);
        const double least = 6.0 * 32 * 128 * 128 * tokens / peak;
        for (std::size_t i = 0; i < now.size(); ++i) {
          REQUIRE(now.at(i) >= last.at(i));
        }
        REQUIRE(now[1].count() >= least);
        REQUIRE(now[2].count() >= least);
        GatedDeltaWork more = delta;
        more.value_heads = 33;
        REQUIRE(gated_delta_time(gpu, spec, more, DType::bf16) >= now[1]);
        last = now;
      }
      // Ten times what any L2 holds comes from memory.
      const std::int64_t long_seq = std::int64_t{1} << 20;
      const double bytes = 4.0 * static_cast<double>(long_seq * batch) * 8192;
      REQUIRE(last[0].count() >= bytes / gpu.memory_bandwidth.value.value());
    }
  }
}

TEST_CASE("backwards a scan takes a stated multiple, a convolution reads a third tensor") {
  for (const auto& [gpu, spec] : linear_gpus()) {
    INFO(gpu.name);
    GatedDeltaWork delta{.seq = 8192, .key_heads = 16, .value_heads = 48};
    MambaWork mamba{.seq = 8192, .heads = 64, .groups = 8};
    ConvolutionWork convolution{.seq = 1 << 20, .channels = 8192};
    const std::array forward{gated_delta_time(gpu, spec, delta, DType::fp16),
                             mamba_time(gpu, spec, mamba, DType::fp16)};
    const Seconds once = convolution_time(gpu, spec, convolution) - spec.startup.value;
    delta.phase = mamba.phase = convolution.phase = Phase::backward;
    const double times = spec.chunked.backward.value;
    CHECK(gated_delta_time(gpu, spec, delta, DType::fp16).count() ==
          Approx(times * forward[0].count()));
    CHECK(mamba_time(gpu, spec, mamba, DType::fp16).count() == Approx(times * forward[1].count()));
    CHECK((convolution_time(gpu, spec, convolution) - spec.startup.value).count() ==
          Approx(1.5 * once.count()));
  }
}

TEST_CASE("a scan is timed by its rule, and states of other ranks ask for a summary") {
  const auto [gpu, spec] = linear_gpu("h100-80g-sxm");
  const StateScan heads{.key_heads = 16, .key_dim = 128, .value_heads = 48, .value_dim = 128};
  ScanWork work{.scan = heads, .seq = 8192};
  const GatedDeltaWork delta{.seq = 8192, .key_heads = 16, .value_heads = 48};
  CHECK(scan_time(gpu, work, DType::bf16) == gated_delta_time(gpu, spec, delta, DType::bf16));
  CHECK(summary_time(gpu, work).count() == Approx(128 * spec.chunked.summary.value.count()));
  work.fused = true;
  CHECK(scan_time(gpu, work, DType::bf16) < gated_delta_time(gpu, spec, delta, DType::bf16));
  const double fused = scan_spread(gpu, work);
  work.phase = Phase::backward;  // no such kernel goes backwards
  CHECK(scan_time(gpu, work, DType::bf16).count() ==
        Approx(spec.chunked.backward.value *
               gated_delta_time(gpu, spec, delta, DType::bf16).count()));
  CHECK(fused < scan_spread(gpu, work));
  work.scan.rule = StateRule::mamba2;
  CHECK(summary_time(gpu, work) == Seconds(0));
}

TEST_CASE("a generation says rightly how linear attention runs, or not at all") {
  Json document = hopper_linear();
  CHECK(read_linear(JsonView(document, "hopper.json")).fused.has_value());
  document["linear"]["chunked"]["steps"] = 1;
  CHECK_THROWS_WITH(read_linear(JsonView(document, "hopper.json")),
                    ContainsSubstring("hopper.json: linear.chunked") &&
                        ContainsSubstring("did you mean 'step'?"));
  document = hopper_linear();
  document["linear"]["chunked"].erase("backward");  // as profiles of before have it
  document["linear"]["chunked"].erase("summary");
  const LinearSpec before = read_linear(JsonView(document, "hopper.json"));
  CHECK(before.chunked.backward.value == 3);
  CHECK(before.chunked.summary.value.count() == Approx(4.8e-6));
  document = hopper_linear();
  document["linear"]["memory"]["value"] = 1.2;
  CHECK_THROWS_WITH(read_linear(JsonView(document, "hopper.json")),
                    ContainsSubstring("linear.memory"));
  document = hopper_linear();
  document["linear"].erase("l2_of_sm");
  CHECK_THROWS_AS(read_linear(JsonView(document, "hopper.json")), InputError);
  document.erase("linear");
  CHECK_THROWS_WITH(read_linear(JsonView(document, "hopper.json")),
                    ContainsSubstring("does not say how linear attention runs"));
  const auto [gpu, spec] = linear_gpu("l40s");
  CHECK_THROWS_WITH(gated_delta_time(gpu, spec, {.seq = 64, .fused = true}, DType::bf16),
                    ContainsSubstring("fused"));
}
