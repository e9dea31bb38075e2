#include "transformer/layer.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/transformer/tiny_model.hpp"
#include "transformer/activations.hpp"
#include "transformer/layer_kernels.hpp"
#include "transformer/model_flops.hpp"

#include <algorithm>
#include <string>

using namespace spp;
using Catch::Approx;
using spp::test::message_of;
using spp::test::tiny_model;

namespace {

/// 3 tokens of each of 2 sequences: 6 rows.
constexpr LocalTokens local{.tokens = 3, .batch = 2};

/// "qkv 6x16x8", "norm 1 192 B", "qkv all_gather 96 B" for each op.
std::vector<std::string> listed(const std::vector<LayerOp>& ops) {
  std::vector<std::string> lines;
  for (const LayerOp& kernel : ops) {
    if (const auto* gemm = std::get_if<GemmShape>(&kernel.work)) {
      lines.push_back(fmt::format("{} {}x{}x{}", to_string(kernel), gemm->m, gemm->n, gemm->k));
    } else if (const auto* stream = std::get_if<MemoryBound>(&kernel.work)) {
      lines.push_back(fmt::format("{} {} B", to_string(kernel), stream->touched.value()));
    } else if (const auto* transfer = std::get_if<LayerTransfer>(&kernel.work)) {
      lines.push_back(fmt::format("{} {} B{}", to_string(kernel), transfer->bytes.value(),
                                  kernel.beside ? " beside" : ""));
    } else {
      lines.push_back(to_string(kernel));
    }
  }
  return lines;
}

FlopCount forward_flops(const Model& model, const LocalTokens& at) {
  return flops_of(forward_ops(layer_of(model), at));
}

FlopCount backward_flops(const Model& model, const LocalTokens& at) {
  return flops_of(backward_ops(layer_of(model), at));
}

std::int64_t kept(const Model& model, DType dtype, Recompute recompute) {
  return kept_bytes(layer_of(model), {.tokens = 1, .dtype = dtype}, {.kind = recompute}).value();
}

/// Of one token.
std::int64_t working(const Model& model, Recompute recompute) {
  return working_bytes(layer_of(model), {.tokens = 1}, {.kind = recompute}).value();
}

/// 768 wide, 12 heads, biases, LayerNorm, GELU: the smallest GPT-2.
Model gpt2() {
  Model model;
  model.layers = 12;
  model.hidden = 768;
  model.q_heads = model.kv_heads = 12;
  model.head_dim = 64;
  model.ffn = 4 * 768;
  model.gated_mlp = false;
  model.vocab = 50257;
  model.attention_bias = model.output_bias = model.mlp_bias = model.norm_bias = true;
  model.tied_embeddings = true;
  return model;
}

Model llama_8b() {
  Model model;
  model.layers = 32;
  model.hidden = 4096;
  model.q_heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.ffn = 14336;
  model.vocab = 128256;
  return model;
}

/// The tiny model as a diffusion transformer that attends to 5 tokens of text.
Model tiny_dit() {
  Model model = tiny_model();
  model.kind = ModelKind::dit;
  model.vocab = 0;
  model.cross_tokens = 5;
  return model;
}

}  // namespace

TEST_CASE("a layer's forward is these kernels") {
  // [6,8] in bf16 is 96 B, [6,16] 192 B, Q and K together [6,12] 144 B.
  CHECK(listed(forward_ops(layer_of(tiny_model()), local)) ==
        std::vector<std::string>{"norm 1 192 B", "qkv 6x16x8", "rope 288 B", "attention",
                                 "out 6x8x8", "residual 1 288 B", "norm 2 192 B", "gate 6x16x8",
                                 "up 6x16x8", "activation 576 B", "down 6x8x16",
                                 "residual 2 288 B"});
}

TEST_CASE("a layer's backward has two GEMMs for each GEMM of the forward") {
  // The sums: of what gate and up give the norm's output, and at the two residuals.
  CHECK(listed(backward_ops(layer_of(tiny_model()), local)) ==
        std::vector<std::string>{"d down input 6x16x8", "d down weight 16x8x6",
                                 "d activation 960 B", "d up input 6x8x16", "d up weight 8x16x6",
                                 "d gate input 6x8x16", "d gate weight 8x16x6",
                                 "d norm 2 sum 288 B", "d norm 2 288 B", "d residual 1 sum 288 B",
                                 "d out input 6x8x8", "d out weight 8x8x6", "d attention",
                                 "d rope 288 B", "d qkv input 6x8x16", "d qkv weight 8x16x6",
                                 "d norm 1 288 B", "d input sum 288 B"});
}

TEST_CASE("what attention and MLP give back is normed where the model says so") {
  Model model = tiny_model();
  const auto plain = listed(forward_ops(layer_of(model), local));
  model.branch_norms = true;
  const auto normed = listed(forward_ops(layer_of(model), local));
  // 6 rows of 8, read and written in 16 bits: 192 B each, behind the two last GEMMs.
  REQUIRE(normed.size() == plain.size() + 2);
  const auto at = [&](std::string_view line) {
    return std::ranges::find(normed, line) - normed.begin();
  };
  CHECK(at("branch norm 1 192 B") == at("out 6x8x8") + 1);
  CHECK(at("branch norm 2 192 B") == at("down 6x8x16") + 1);
  CHECK(weights_of(layer_of(model)) == weights_of(layer_of(tiny_model())) + 2 * 8);
}

TEST_CASE("a diffusion transformer modulates, gates and attends to a text besides") {
  Model model = tiny_dit();
  model.gated_mlp = false;
  model.qk_norm = model.mlp_bias = true;
  CHECK(listed(forward_ops(layer_of(model), local)) ==
        std::vector<std::string>{"norm 1 192 B",     "modulate 1 192 B", "qkv 6x16x8",
                                 "qk norm 288 B",    "rope 288 B",       "attention",
                                 "out 6x8x8",        "gate 1 192 B",     "residual 1 288 B",
                                 "cross norm 192 B", "cross q 6x8x8",    "cross kv 10x8x8",
                                 "cross attention",  "cross out 6x8x8",  "cross residual 288 B",
                                 "norm 2 192 B",     "modulate 2 192 B", "up 6x16x8",
                                 "activation 384 B", "down 6x8x16",      "gate 2 192 B",
                                 "residual 2 288 B"});
  // Norms of Q and K read dy and x and write dx: 3 x [6,12].
  CHECK(listed(backward_ops(layer_of(model), local)) ==
        std::vector<std::string>{"d gate 2 288 B",
                                 "d down bias 96 B",
                                 "d down input 6x16x8",
                                 "d down weight 16x8x6",
                                 "d activation 576 B",
                                 "d up bias 192 B",
                                 "d up input 6x8x16",
                                 "d up weight 8x16x6",
                                 "d modulate 2 288 B",
                                 "d norm 2 288 B",
                                 "d cross residual sum 288 B",
                                 "d cross out input 6x8x8",
                                 "d cross out weight 8x8x6",
                                 "d cross attention",
                                 "d cross kv input 10x8x8",
                                 "d cross kv weight 8x8x10",
                                 "d cross q input 6x8x8",
                                 "d cross q weight 8x8x6",
                                 "d cross norm 288 B",
                                 "d residual 1 sum 288 B",
                                 "d gate 1 288 B",
                                 "d out input 6x8x8",
                                 "d out weight 8x8x6",
                                 "d attention",
                                 "d rope 288 B",
                                 "d qk norm 432 B",
                                 "d qkv input 6x8x16",
                                 "d qkv weight 8x16x6",
                                 "d modulate 1 288 B",
                                 "d norm 1 288 B",
                                 "d input sum 288 B"});
}

TEST_CASE("what is cheap runs again under selective recomputation, everything under full") {
  const TensorOps layer = layer_of(tiny_model());
  CHECK(recomputed_ops(layer, local, {.kind = Recompute::none}).empty());
  CHECK(listed(recomputed_ops(layer, local, {.kind = Recompute::selective})) ==
        std::vector<std::string>{"norm 1 192 B", "norm 2 192 B", "activation 576 B"});
  CHECK(listed(recomputed_ops(layer, local, {.kind = Recompute::full})) ==
        listed(forward_ops(layer, local)));
}

TEST_CASE("a replay that stops early leaves out what no backward reads") {
  const TensorOps layer = layer_of(tiny_model());
  const auto replayed = [&](const Recomputation& how, Replay replay) {
    return listed(recomputed_ops(layer, local, how, replay));
  };
  const Recomputation full{.kind = Recompute::full};
  std::vector<std::string> whole = replayed(full, Replay::whole);
  REQUIRE(whole.size() > 2);
  CHECK(whole[whole.size() - 2].starts_with("down "));
  CHECK(whole.back().starts_with("residual 2 "));
  whole.resize(whole.size() - 2);
  CHECK(replayed(full, Replay::needed) == whole);
  const Recomputation cheap{.kind = Recompute::selective};
  CHECK(replayed(cheap, Replay::needed) == replayed(cheap, Replay::whole));
}

TEST_CASE("a layer costs 2 FLOPs a matrix weight and token forward, 4 backward") {
  // 2 * 576 * 6 = 6912
  CHECK(forward_flops(tiny_model(), local).value() == 6912);
  CHECK(backward_flops(tiny_model(), local).value() == 2 * 6912);
  Model plain = tiny_model();
  plain.gated_mlp = false;  // 576 - 128 = 448 matrix weights
  plain.attention_bias = plain.output_bias = plain.mlp_bias = plain.qk_norm = true;
  CHECK(forward_flops(plain, local).value() == 2 * 448 * 6);
  CHECK(backward_flops(plain, local).value() == 4 * 448 * 6);
}

TEST_CASE("cross-attention to a text is counted with the text's own projections") {
  // Q and output 2 * 2*6*8*8 = 1536, K and V of 2 * 5 text tokens 2*10*8*8 = 1280,
  // pairs 4 * 3 * 5 * 8 * 2 sequences = 960; backward: 2 * (1536 + 1280) + 2.5 * 960.
  CHECK(forward_flops(tiny_dit(), local).value() == 6912 + 1536 + 1280 + 960);
  CHECK(backward_flops(tiny_dit(), local).value() == 2 * (6912 + 1536 + 1280) + 2400);
}

TEST_CASE("the ends have the logits' traffic in fp32, a prefill logits of the last token") {
  // 6 * 10 logits. To fp32: 60 * (2 + 4) B; maximum: 60 * 4 B read; exp in place: 60 * 8 B.
  const TensorOps train = ends_of(tiny_model(), StepKind::train);
  CHECK(listed(forward_ops(train, local)) ==
        std::vector<std::string>{"embedding 192 B", "final norm 192 B", "logits 6x10x8",
                                 "logits to fp32 360 B", "logits max 240 B", "softmax 480 B"});
  // The table's gradient: reads dx in 2 B, reads and writes 4 B: 6 * 8 * 10 B.
  CHECK(listed(backward_ops(train, local)) ==
        std::vector<std::string>{"d softmax 480 B", "d logits to fp32 360 B",
                                 "d logits input 6x8x10", "d logits weight 8x10x6",
                                 "d final norm 288 B", "d embedding 480 B"});
  CHECK(listed(forward_ops(ends_of(tiny_model(), StepKind::prefill), local)) ==
        std::vector<std::string>{"embedding 192 B", "final norm 192 B", "logits 2x10x8"});
}

TEST_CASE("a model without words has no embedding and no loss head") {
  const TensorOps ends = ends_of(tiny_dit(), StepKind::train);
  CHECK(listed(forward_ops(ends, local)) == std::vector<std::string>{"final norm 192 B"});
  CHECK(listed(backward_ops(ends, local)) == std::vector<std::string>{"d final norm 288 B"});
}

TEST_CASE("the weights of Llama-3.1-8B and of GPT-2 follow from their layers") {
  // Q, K, V 4096 * 6144 + out 4096 * 4096 + MLP 3 * 4096 * 14336 + norms 2 * 4096 = 218,112,000;
  // two tables 2 * 128256 * 4096 + final norm 4096 = 1,050,677,248.
  CHECK(weights_of(layer_of(llama_8b())) == 218'112'000);
  CHECK(weights_of(ends_of(llama_8b(), StepKind::train)) == 1'050'677'248);
  // QKV 768*2304 + 2304, out 768*768 + 768, MLP 2*768*3072 + 3072 + 768, norms 4*768 = 7,087,872;
  // one table 50257 * 768, which the head shares, and 2 * 768.
  CHECK(weights_of(layer_of(gpt2())) == 7'087'872);
  CHECK(weights_of(ends_of(gpt2(), StepKind::train)) == 50257 * 768 + 2 * 768);
}

TEST_CASE("cross-attention's weights are the layer's") {
  // Q, K, V of 8 + 2 * 4 and out: 8 * (8 + 8) + 8 * 8 = 192 besides the 592.
  CHECK(weights_of(layer_of(tiny_dit())) == 592 + 192);
}

TEST_CASE("a token of a layer keeps these tensors") {
  // Elements of 2 B: input 8; Q 8, K and V 8, attention's output 8, residual 8, gate and up 32;
  // what selective drops: two norms 16, product 16. fp32: LSE 4, two 1/rms.
  // (8 + 64 + 32) * 2 + 6 * 4 = 232; (8 + 64) * 2 + 24 = 168; 8 * 2; (8 + 64 + 32) * 4 + 24 = 440.
  CHECK(kept(tiny_model(), DType::bf16, Recompute::none) == 232);
  CHECK(kept(tiny_model(), DType::bf16, Recompute::selective) == 168);
  CHECK(kept(tiny_model(), DType::bf16, Recompute::full) == 16);
  CHECK(kept(tiny_model(), DType::fp32, Recompute::none) == 440);
}

TEST_CASE("a layer of GPT keeps 32 bytes a hidden unit and token") {
  // Korthikanti et al. (arXiv:2205.05198, section 4.1), bytes / h: norms' inputs 4, QKV's input 2,
  // Q, K, V 6, output 2, MLP's input 2, GELU's input 8 and output 8: 32 (with the masks of two
  // dropouts 34). Beside h: the LSE of 12 heads, two 1/rms, 4 B each.
  CHECK(kept(gpt2(), DType::bf16, Recompute::none) == 32 * 768 + 4 * (12 + 2));
  CHECK(kept(gpt2(), DType::bf16, Recompute::full) == 2 * 768);
}

TEST_CASE("a layer of Llama-3.1-8B keeps 139,400 bytes a token") {
  // Norms in and out 8 * 4096, Q and attention's output 4 * 4096, K and V 4 * 1024, gate and up
  // 4 * 14336, product 2 * 14336: 139,264; LSE of 32 heads and two 1/rms: 136.
  CHECK(kept(llama_8b(), DType::bf16, Recompute::none) == 139'400);
}

TEST_CASE("a layer with cross-attention keeps the text's K and V for each of its tokens") {
  // Tokens, besides the 104 elements: cross norm 8, Q 8, output 8, sum 8; modulated and gated 32.
  const TensorOps layer = layer_of(tiny_dit());
  const LocalTokens no_tokens{.tokens = 0};  // the text is there
  constexpr std::int64_t token = (104 + 32 + 32) * 2 + 4 * (6 + 4 + 1);
  constexpr std::int64_t text = 5 * (2 * 4 * 2);
  CHECK(kept_bytes(layer, {.tokens = 3}, {}) == Bytes(3 * token + text));
  CHECK(kept_bytes(layer, no_tokens, {.kind = Recompute::selective}) == Bytes(text));
  CHECK(kept_bytes(layer, no_tokens, {.kind = Recompute::full}) == Bytes(0));
}

TEST_CASE("GEMMs of 8 bits keep their inputs so, others keep theirs beside") {
  const auto kept = [](bool wide_attention) {
    return kept_bytes(layer_of(tiny_model()),
                      {.tokens = 1, .stored = 0.5, .wide_attention = wide_attention}, {})
        .value();
  };
  // Of 232: both norms' outputs, 8 wide, and the product, 16 wide, half; of attention's output, 8
  // wide, which its backward reads, a half on top.
  CHECK(kept(false) == 232 - 8 - 8 - 16 + 8);
  CHECK(kept(true) == 232 - 8 - 16);
}

TEST_CASE("while a layer's backward runs, what it computes again and its gradients come on top") {
  // Gradients: of the stream 8, product 16, gate and up 32: 56 elements.
  CHECK(working(tiny_model(), Recompute::none) == 112);
  CHECK(working(tiny_model(), Recompute::selective) == 112 + 64);
  CHECK(working(tiny_model(), Recompute::full) == 112 + 232 - 16);
}

TEST_CASE("a narrow MLP has its most gradients where those of its input are added") {
  // ffn 10: at the activation 8 + 3 * 10 = 38; where gate's and up's both give the norm's output
  // one: stream 8, gate 10, two of 8 = 34, after up alone 8 + 20 + 8 = 36.
  Model model = tiny_model();
  model.ffn = 10;
  CHECK(working(model, Recompute::none) == 2 * 38);
  // ffn 6: 26, 28 after up, and 30 when both are there.
  model.ffn = 6;
  CHECK(working(model, Recompute::none) == 2 * 30);
}

TEST_CASE("a forward that keeps nothing holds most in the MLP, or in attention if that is wide") {
  // The stream 8 and gate, up, product 48.
  CHECK(forward_bytes(layer_of(tiny_model()), {.tokens = 1}) == Bytes(2 * 56));
  // ffn 4: MLP 8 + 8 + 8. Attention: the stream 8, Q, K, V 16 and its output 8.
  Model narrow = tiny_model();
  narrow.ffn = 4;
  CHECK(forward_bytes(layer_of(narrow), {.tokens = 1}) == Bytes(2 * 32));
  CHECK(forward_bytes(layer_of(tiny_dit()), {.tokens = 0}) == Bytes(5 * 2 * 8));
  CHECK(cached_bytes(layer_of(tiny_model()), {.tokens = 1}) == Bytes(2 * 8));
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

TEST_CASE("the FLOPs of Llama-3.1-8B are twice its matrices and the pairs of attention") {
  // A token: 2 * (32 * 218,103,808 + 128256 * 4096); a pair of tokens: 4 * 4096 * 32 layers.
  const double token = 2.0 * (32 * 218'103'808.0 + 525'336'576.0);
  const double pair = 4.0 * 4096 * 32;
  CHECK(model_flops(llama_8b(), {.seq = 8192, .mask = {.kind = MaskKind::causal}})
            .causal_halved.value() ==
        Approx(3 * (8192 * token + 8192.0 * 8192 / 2 * pair)).epsilon(1e-14));
}

TEST_CASE("recomputation has three names") {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    CHECK(parse_recompute(to_string(recompute), "--recompute") == recompute);
  }
  CHECK(message_of<InputError>([] { (void)parse_recompute("selectiv", "--recompute"); }) ==
        "--recompute: unknown recomputation 'selectiv' (did you mean 'selective'?)");
}
