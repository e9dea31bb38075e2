#include "planner/transformer.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/planner/tiny_model.hpp"

#include <string>

using namespace spp;
using Catch::Approx;
using spp::test::message_of;
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

/// "qkv 6x16x8" or "norm 1 192 B" for each kernel.
std::vector<std::string> listed(const std::vector<LayerKernel>& kernels) {
  std::vector<std::string> lines;
  for (const LayerKernel& kernel : kernels) {
    if (const auto* gemm = std::get_if<Gemm>(&kernel.work)) {
      lines.push_back(fmt::format("{} {}x{}x{}", kernel.name, gemm->m, gemm->n, gemm->k));
    } else if (const auto* stream = std::get_if<Stream>(&kernel.work)) {
      lines.push_back(fmt::format("{} {} B", kernel.name, stream->touched.value()));
    } else {
      lines.emplace_back(kernel.name);
    }
  }
  return lines;
}

}  // namespace

TEST_CASE("a layer's forward is these kernels") {
  // [6,8] in bf16 is 96 B, [6,16] 192 B, Q and K together [6,12] 144 B.
  CHECK(listed(layer_forward(tiny_model(), local)) ==
        std::vector<std::string>{"norm 1 192 B", "qkv 6x16x8", "rope 288 B", "out 6x8x8",
                                 "residual 1 288 B", "norm 2 192 B", "gate 6x16x8", "up 6x16x8",
                                 "activation 576 B", "down 6x8x16", "residual 2 288 B"});
}

TEST_CASE("a layer's backward has two GEMMs for each GEMM of the forward") {
  CHECK(listed(layer_backward(tiny_model(), local)) ==
        std::vector<std::string>{"d down input 6x16x8", "d down weight 16x8x6",
                                 "d activation 960 B", "d up input 6x8x16", "d up weight 8x16x6",
                                 "d gate input 6x8x16", "d gate weight 8x16x6", "d gate + up 288 B",
                                 "d norm 2 288 B", "d residual 2 288 B", "d out input 6x8x8",
                                 "d out weight 8x8x6", "d rope 288 B", "d qkv input 6x8x16",
                                 "d qkv weight 8x16x6", "d norm 1 288 B", "d residual 1 288 B"});
}

TEST_CASE("a layer costs 2 FLOPs a matrix weight and token forward, 4 backward") {
  // 2 * 576 * 6 = 6912
  CHECK(flops_of(layer_forward(tiny_model(), local)).value() == 6912);
  CHECK(flops_of(layer_backward(tiny_model(), local)).value() == 2 * 6912);
  Model plain = tiny_model();
  plain.gated_mlp = false;  // 576 - 128 = 448 matrix weights
  plain.attention_bias = plain.output_bias = plain.mlp_bias = plain.qk_norm = true;
  CHECK(flops_of(layer_forward(plain, local)).value() == 2 * 448 * 6);
  CHECK(flops_of(layer_backward(plain, local)).value() == 4 * 448 * 6);
}

TEST_CASE("cross-attention to a text is counted with the text's own projections") {
  Model model = tiny_model();
  model.kind = ModelKind::dit;
  model.vocab = 0;
  model.cross_tokens = 5;
  // Q and output 2 * 2*6*8*8 = 1536, K and V of 2 * 5 text tokens 2*10*8*8 = 1280,
  // pairs 4 * 3 * 5 * 8 * 2 sequences = 960; backward: 2 * (1536 + 1280) + 2.5 * 960.
  CHECK(flops_of(layer_forward(model, local)).value() == 6912 + 1536 + 1280 + 960);
  CHECK(flops_of(layer_backward(model, local)).value() == 2 * (6912 + 1536 + 1280) + 2400);
}

TEST_CASE("a layer's time is the sum over its kernels, each launched once") {
  const GpuSpec gpu = plain_gpu();
  const KernelCost cost(gpu);
  // Each GEMM needs more microseconds for its FLOPs than for its bytes. Forward: 6912 FLOPs,
  // 192 + 288 + 288 + 192 + 576 + 288 = 1824 B, 11 launches. Backward: 13824 FLOPs,
  // 960 + 6 * 288 = 2688 B, 17 launches.
  const BlockCost none = layer_cost(tiny_model(), local, Recompute::none, cost);
  CHECK(none.forward.count() == Approx(8736e-6 + 11e-3));
  CHECK(none.backward.count() == Approx(16512e-6 + 17e-3));
  CHECK(none.recompute.count() == 0);
  CHECK(none.forward_flops.value() == 6912);
  CHECK(none.backward_flops.value() == 13824);
  // Both norms and the activation: 192 + 192 + 576 = 960 B.
  CHECK(layer_cost(tiny_model(), local, Recompute::selective, cost).recompute.count() ==
        Approx(960e-6 + 3e-3));
  CHECK(layer_cost(tiny_model(), local, Recompute::full, cost).recompute == none.forward);
}

TEST_CASE("embedding and loss head are counted with the logits' traffic in fp32") {
  const GpuSpec gpu = plain_gpu();
  const KernelCost cost(gpu);
  // 60 logits. Forward: embedding 192 B, norm 192 B, GEMM 2*6*10*8 = 960 FLOPs, to fp32 60 * 6 B,
  // maximum 60 * 4 B, exp 60 * 8 B: 2424 in 6 kernels.
  // Backward: softmax 480 B, from fp32 360 B, GEMMs 1920 FLOPs, norm 288 B, embedding 6*8*(2+8) B:
  // 3528 in 6 kernels.
  const BlockCost train = ends_cost(tiny_model(), local, StepKind::train, cost);
  CHECK(train.forward.count() == Approx(2424e-6 + 6e-3));
  CHECK(train.backward.count() == Approx(3528e-6 + 6e-3));
  CHECK(train.forward_flops.value() == 960);
  CHECK(train.backward_flops.value() == 1920);
  // Prefill: logits of 2 tokens, 2*2*10*8 = 320 FLOPs: 704 in 3 kernels.
  const BlockCost prefill = ends_cost(tiny_model(), local, StepKind::prefill, cost);
  CHECK(prefill.forward.count() == Approx(704e-6 + 3e-3));
  CHECK(prefill.backward.count() == 0);
}

TEST_CASE("a model without words has no embedding and no loss head") {
  Model model = tiny_model();
  model.kind = ModelKind::dit;
  model.vocab = 0;
  CHECK(listed(ends_forward(model, local, StepKind::train)) ==
        std::vector<std::string>{"final norm 192 B"});
  CHECK(listed(ends_backward(model, local)) == std::vector<std::string>{"d final norm 288 B"});
}

TEST_CASE("the optimizer streams its states once") {
  const GpuSpec gpu = plain_gpu();
  // Norm 100 * 4 B, Adam 100 * 30 B, zeroing 200 * 4 B: 4200 B in 3 kernels.
  CHECK(optimizer_cost({.updated = 100, .gradients = 200}, KernelCost(gpu)).count() ==
        Approx(4200e-6 + 3e-3));
}

TEST_CASE("the model's FLOPs follow three conventions") {
  // 4 tokens. Matrices 2 * 576 * 4 * 2 layers = 9216, loss head 2 * 80 * 4 = 640,
  // attention 4 * 16 pairs * 8 * 2 layers = 1024, half of it under a causal mask.
  const ModelFlops train =
      model_flops(tiny_model(), {.seq = 4, .mask = {.kind = MaskKind::causal}});
  CHECK(train.causal_halved.value() == 3 * (9216 + 640 + 512));
  CHECK(train.full.value() == 3 * (9216 + 640 + 1024));
  CHECK(train.model_6n.value() == 6 * 1352 * 4);
  const ModelFlops unmasked =
      model_flops(tiny_model(), {.seq = 4, .mask = {.kind = MaskKind::full}});
  CHECK(unmasked.causal_halved == unmasked.full);
  // A window of one token: 4 pairs.
  const ModelFlops window =
      model_flops(tiny_model(), {.seq = 4, .mask = {.kind = MaskKind::window, .window = 1}});
  CHECK(window.causal_halved.value() == 3 * (9216 + 640 + 256));
  // A prefill: one forward, logits of the last token.
  const ModelFlops prefill = model_flops(
      tiny_model(), {.seq = 4, .mask = {.kind = MaskKind::causal}, .step = StepKind::prefill});
  CHECK(prefill.causal_halved.value() == 9216 + 160 + 512);
  CHECK(prefill.model_6n.value() == 2 * 1352 * 4);
}

TEST_CASE("the FLOPs of the kernels add up to the model's without attention") {
  for (const std::int64_t text : {0, 5}) {
    Model model = tiny_model();
    model.cross_tokens = text;
    const LocalTokens all{.tokens = 64, .batch = 2};
    const double kernels = 2 * flops_of(layer_forward(model, all)).value() +
                           flops_of(ends_forward(model, all, StepKind::train)).value();
    const double attention = 4.0 * 64 * 64 * 2 * 8 * 2;
    CHECK(model_flops(model, {.seq = 64, .batch = 2}).full.value() ==
          Approx(3 * (kernels + attention)));
  }
}

TEST_CASE("recomputation has three names") {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    CHECK(parse_recompute(to_string(recompute), "--recompute") == recompute);
  }
  CHECK(message_of<InputError>([] { (void)parse_recompute("selectiv", "--recompute"); }) ==
        "--recompute: unknown recomputation 'selectiv' (did you mean 'selective'?)");
}
