#include "planner/block_cost.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/transformer/tiny_model.hpp"

using namespace spp;
using Catch::Approx;
using spp::test::tiny_model;

namespace {

/// 3 tokens of each of 2 sequences: 6 rows.
constexpr LocalTokens local{.tokens = 3, .batch = 2};

/// A GPU that does 10^6 FLOP/s, 10^6 B/s and a launch in 1 ms, without tiles or start-up.
GpuSpec plain_gpu() {
  GpuSpec gpu;
  gpu.name = "plain";
  gpu.sms.value = 1;
  gpu.matrix_rate[DType::bf16].value = FlopRate(1e6);
  gpu.memory_bandwidth.value = Bandwidth(1e6);
  gpu.generation.gemm_efficiency.value = 1;
  gpu.generation.gemm_tile.value = 1;
  gpu.generation.memory_efficiency.value = 1;
  gpu.generation.launch.value = Seconds(1e-3);
  return gpu;
}

}  // namespace

TEST_CASE("a layer's time is the sum over its kernels, each launched once") {
  const GpuSpec gpu = plain_gpu();
  const KernelCost cost(gpu);
  // Each GEMM needs more microseconds for its FLOPs than for its bytes. Forward: 6912 FLOPs,
  // 192 + 288 + 288 + 192 + 576 + 288 = 1824 B, 11 launches. Backward: 13824 FLOPs,
  // 960 + 6 * 288 = 2688 B, 17 launches.
  const TensorOps layer = layer_of(tiny_model());
  const BlockCost none = block_cost(layer, {.local = local}, cost);
  CHECK(none.forward.count() == Approx(8736e-6 + 11e-3));
  CHECK(none.backward.count() == Approx(16512e-6 + 17e-3));
  CHECK(none.recompute.count() == 0);
  CHECK(none.forward_flops.value() == 6912);
  CHECK(none.backward_flops.value() == 13824);
  // Both norms and the activation: 192 + 192 + 576 = 960 B.
  CHECK(block_cost(layer, {.local = local, .recompute = Recompute::selective}, cost)
            .recompute.count() == Approx(960e-6 + 3e-3));
  CHECK(block_cost(layer, {.local = local, .recompute = Recompute::full}, cost).recompute ==
        none.forward);
}

TEST_CASE("embedding and loss head are counted with the logits' traffic in fp32") {
  const GpuSpec gpu = plain_gpu();
  const KernelCost cost(gpu);
  // 60 logits. Forward: embedding 192 B, norm 192 B, GEMM 2*6*10*8 = 960 FLOPs, to fp32 60 * 6 B,
  // maximum 60 * 4 B, exp 60 * 8 B: 2424 in 6 kernels.
  // Backward: softmax 480 B, from fp32 360 B, GEMMs 1920 FLOPs, norm 288 B, embedding 6*8*(2+8) B:
  // 3528 in 6 kernels.
  const BlockCost train =
      block_cost(ends_of(tiny_model(), StepKind::train), {.local = local}, cost);
  CHECK(train.forward.count() == Approx(2424e-6 + 6e-3));
  CHECK(train.backward.count() == Approx(3528e-6 + 6e-3));
  CHECK(train.forward_flops.value() == 960);
  CHECK(train.backward_flops.value() == 1920);
  // Prefill: logits of 2 tokens, 2*2*10*8 = 320 FLOPs: 704 in 3 kernels.
  const BlockCost prefill = block_cost(ends_of(tiny_model(), StepKind::prefill),
                                       {.local = local, .step = StepKind::prefill}, cost);
  CHECK(prefill.forward.count() == Approx(704e-6 + 3e-3));
  CHECK(prefill.backward.count() == 0);
}

TEST_CASE("the optimizer streams its states once") {
  const GpuSpec gpu = plain_gpu();
  // Norm 100 * 4 B, Adam 100 * 30 B, zeroing 200 * 4 B: 4200 B in 3 kernels.
  CHECK(optimizer_cost({.updated = 100, .gradients = 200}, KernelCost(gpu)).count() ==
        Approx(4200e-6 + 3e-3));
}
