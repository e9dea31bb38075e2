// Layers of diffusion transformers by hand, and whole families against what was published.
#include "tests/support/catch.hpp"
#include "transformer/activations.hpp"
#include "transformer/diffusion_family.hpp"
#include "transformer/layer_kernels.hpp"
#include "transformer/model_flops.hpp"

#include <algorithm>

using namespace spp;

namespace {

/// h = 8: 12 h^2 = 768 weights of matrices a layer and stream.
Model tiny_blocks() {
  Model m;
  m.name = "tiny";
  m.kind = ModelKind::dit;
  m.layers = 4;
  m.hidden = 8;
  m.q_heads = m.kv_heads = 4;
  m.head_dim = 2;
  m.ffn = 32;
  m.gated_mlp = false;
  m.mask = {.kind = MaskKind::full};
  m.diffusion = {.joint_tokens = 2,
                 .two_streams = 2,
                 .parallel_mlp = true,
                 .modulation_width = 8,
                 .modulation_vectors = 6};
  return m;
}

constexpr LocalTokens eight{.tokens = 8, .batch = 1, .joint = 2};

std::vector<std::string> names(const std::vector<LayerOp>& ops) {
  std::vector<std::string> result;
  for (const LayerOp& op : ops) {
    result.push_back(to_string(op));
  }
  return result;
}

bool has(const std::vector<LayerOp>& ops, std::string_view name) {
  const std::vector<std::string> all = names(ops);
  return std::find(all.begin(), all.end(), name) != all.end();
}

Model of_family(std::string_view name, std::int64_t layers, std::int64_t two_streams, int heads,
                int head_dim, std::int64_t ffn) {
  Model m;
  m.name = name;
  m.kind = ModelKind::dit;
  m.layers = layers;
  m.q_heads = m.kv_heads = heads;
  m.head_dim = head_dim;
  m.hidden = std::int64_t{heads} * head_dim;
  m.ffn = ffn;
  m.mask = {.kind = MaskKind::full};
  m.attention_bias = m.output_bias = m.mlp_bias = true;
  const DiffusionFamily* family = diffusion_family(name);
  REQUIRE(family != nullptr);
  m.gated_mlp = family->gated_mlp;
  as_family(*family, m);
  m.diffusion.two_streams = two_streams;
  return m;
}

}  // namespace

TEST_CASE("two streams are two layers' matrices around one attention") {
  const std::vector<LayerRun> runs = layer_runs(tiny_blocks());
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].layers == 2);
  CHECK(runs[1].layers == 2);
  // Each stream: 12 h^2, modulation 6 h^2 + 6 h, norms 2 h.
  CHECK(weights_of(runs[0].ops) == 2 * (768 + 384 + 48 + 16));
  const std::vector<LayerOp> forward = forward_ops(runs[0].ops, eight);
  // 2 * 768 FLOPs a token of either stream, 2 * 6 h^2 a sequence and stream.
  CHECK(flops_of(forward).value() == 2 * 768 * 8 + 2 * (2 * 384));
  CHECK(has(forward, "text qkv"));
  CHECK(has(forward, "join q"));
  CHECK(std::count_if(forward.begin(), forward.end(), [](const LayerOp& op) {
          return std::holds_alternative<SelfAttention>(op.work);
        }) == 1);
}

TEST_CASE("the streams' rows are the image's and the text's") {
  const TensorOps ops = layer_runs(tiny_blocks())[0].ops;
  for (const LayerOp& op : forward_ops(ops, {.tokens = 8, .batch = 3, .joint = 2})) {
    if (const auto* gemm = std::get_if<GemmShape>(&op.work)) {
      const bool modulation = op.name.find("modulation") != std::string_view::npos;
      CHECK(gemm->m == (modulation ? 3 : op.name.starts_with("text") ? 6 : 18));
    }
  }
}

TEST_CASE("a stream without tokens on a rank has no GEMMs there") {
  const TensorOps ops = layer_runs(tiny_blocks())[0].ops;
  const std::vector<LayerOp> forward = forward_ops(ops, {.tokens = 8, .batch = 1});
  CHECK(has(forward, "qkv"));
  CHECK_FALSE(has(forward, "text qkv"));
}

TEST_CASE("each stream has tensor parallelism's transfers") {
  const TensorOps ops = layer_runs(tiny_blocks())[0].ops;
  const std::vector<LayerOp> forward =
      forward_ops(ops, {.tokens = 8, .batch = 1, .split = {.tensor = 2}, .joint = 2});
  for (const char* transfer :
       {"qkv all_gather", "text qkv all_gather", "out reduce_scatter", "text out reduce_scatter",
        "up all_gather", "text up all_gather", "down reduce_scatter", "text down reduce_scatter"}) {
    INFO(transfer);
    CHECK(has(forward, transfer));
  }
}

TEST_CASE("attention and MLP side by side are two GEMMs") {
  const TensorOps ops = layer_runs(tiny_blocks())[1].ops;
  // 7 h^2 and 5 h^2, modulation 3 h^2 + 3 h, one norm.
  CHECK(weights_of(ops) == 768 + 192 + 24 + 8);
  const std::vector<LayerOp> forward = forward_ops(ops, eight);
  CHECK(flops_of(forward).value() == 2 * 768 * 8 + 2 * 192);
  CHECK(names(forward) == std::vector<std::string>{"modulation", "norm 1", "modulate 1", "qkv, up",
                                                   "rope", "attention", "activation", "join",
                                                   "out, down", "gate 1", "residual 1"});
}

TEST_CASE("a backward through both kinds of blocks has two GEMMs for each") {
  for (const LayerRun& run : layer_runs(tiny_blocks())) {
    const double forward = flops_of(forward_ops(run.ops, eight)).value();
    CHECK(flops_of(backward_ops(run.ops, eight)).value() == 2 * forward);
  }
}

TEST_CASE("layers between frames attend on their own rank, without text") {
  Model m = tiny_blocks();
  m.cross_tokens = 5;
  m.diffusion = {.frames = 2};
  const std::vector<LayerRun> runs = layer_runs(m);
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].attends);
  CHECK_FALSE(runs[1].attends);
  const std::vector<LayerOp> forward = forward_ops(runs[1].ops, {.tokens = 8, .batch = 3});
  CHECK_FALSE(has(forward, "cross q"));
  const auto at = std::find_if(forward.begin(), forward.end(), [](const LayerOp& op) {
    return std::holds_alternative<CrossAttention>(op.work);
  });
  REQUIRE(at != forward.end());
  // 4 heads, 8 FLOPs a pair, 2 x 2 pairs at each of 12 places.
  CHECK(std::get<CrossAttention>(at->work).flops().value() == 4 * 8 * 4 * 12);
}

TEST_CASE("a model that attends within frames counts a frame's part of all pairs") {
  Model m = tiny_blocks();
  m.diffusion = {};
  m.layers = 2;
  const ModelWork work{.seq = 8, .mask = {.kind = MaskKind::full}, .step = StepKind::prefill};
  const double around = model_flops(m, work).full.value() - 2 * 4 * 8 * 64;
  m.diffusion.frames = 2;
  // One layer within: half of 64 pairs; one between: 2 x 2 at each of 4 places.
  CHECK(model_flops(m, work).full.value() == around + 4 * 8 * 32 + 4 * 8 * 16);
}

TEST_CASE("families are recognised by the longest of their words") {
  const auto name = [](std::string_view model) {
    const DiffusionFamily* family = diffusion_family(model);
    return family == nullptr ? std::string_view("none") : family->name;
  };
  CHECK(name("FLUX.1-dev 28 steps") == "FLUX.1");
  CHECK(name("FLUX.1-schnell, 4 steps") == "FLUX.1-schnell");
  CHECK(name("HunyuanVideo 129 frames 50 steps") == "HunyuanVideo");
  CHECK(name("Wan2.1 14B 720P") == "Wan");
  CHECK(name("PixArt-Sigma 2048") == "PixArt-Sigma");
  CHECK(name("llama3-405b") == "none");
}

TEST_CASE("the weights of families are what was published") {
  struct Published {
    Model model;
    double billions;
  };
  const std::vector<Published> all{
      {of_family("flux.1-dev", 57, 19, 24, 128, 12288), 11.9},    // its model card: 12B
      {of_family("hunyuanvideo", 60, 20, 24, 128, 12288), 12.8},  // arXiv:2412.03603: 13B
      {of_family("stable-diffusion-3 medium", 24, 24, 24, 64, 6144), 2.03},  // 2B
      {of_family("cogvideox-2b", 30, 0, 30, 64, 7680), 1.69},  // transformer of the 2B model
      {of_family("latte", 56, 0, 16, 72, 4608), 1.06},
      {of_family("pixart-alpha", 28, 0, 16, 72, 4608), 0.61},  // arXiv:2310.00426: 0.6B
      {of_family("hunyuandit", 40, 0, 16, 88, 6144), 1.5},     // arXiv:2405.08748: 1.5B
  };
  for (const Published& p : all) {
    INFO(p.model.name);
    CHECK(static_cast<double>(p.model.parameters()) ==
          Catch::Approx(p.billions * 1e9).epsilon(0.05));
  }
}

TEST_CASE("FLUX.2's layers share their modulation, Mochi's text stream is narrow") {
  const auto config = [](std::string_view text) {
    return read_model(Json::parse(text), "config.json");
  };
  // In 10^9, as published.
  const Model flux = config(R"({"_class_name": "Flux2Transformer2DModel", "num_layers": 8,
      "num_single_layers": 48, "num_attention_heads": 48, "attention_head_dim": 128,
      "joint_attention_dim": 15360, "mlp_ratio": 3.0})");
  CHECK(static_cast<double>(flux.parameters()) == Catch::Approx(32e9).epsilon(0.03));
  CHECK(flux.diffusion.modulation_vectors == 0);
  const Model mochi = config(R"({"_class_name": "MochiTransformer3DModel", "num_layers": 48,
      "num_attention_heads": 24, "attention_head_dim": 128, "pooled_projection_dim": 1536,
      "text_embed_dim": 4096, "time_embed_dim": 256, "activation_fn": "swiglu",
      "max_sequence_length": 256})");
  CHECK(static_cast<double>(mochi.parameters()) == Catch::Approx(10e9).epsilon(0.03));
  CHECK(mochi.diffusion.two_streams == 48);
  CHECK(mochi.gated_mlp);
}

TEST_CASE("a model's family is its class's; its name tells which of a maker's it is") {
  const auto name = [](std::string_view class_name, std::string_view model) {
    return diffusion_family(class_name, model)->name;
  };
  CHECK(name("FluxTransformer2DModel", "wan2-like") == "FLUX.1");
  CHECK(name("FluxTransformer2DModel", "FLUX.1-schnell") == "FLUX.1-schnell");
  CHECK(name("Flux2Transformer2DModel", "flux.1-dev") == "FLUX.2");
  CHECK(name("WanTransformer3DModel", "config") == "Wan");
  CHECK(name("PixArtTransformer2DModel", "PixArt-Sigma-XL") == "PixArt-Sigma");
  CHECK(name("", "qwen-image") == "Qwen-Image");
  CHECK(diffusion_family("", "mine") == nullptr);
}
