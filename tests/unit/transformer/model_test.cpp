// Mirrors one header, hence one file.
#include "transformer/model.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <map>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using spp::test::message_of;
using spp::test::TempDir;

namespace {

Model read(std::string_view text) {
  return read_model(parse_json(text, "config.json"), "config.json");
}

std::string error_of(std::string_view text) {
  return message_of<InputError>([&] { (void)read(text); });
}

/// A published Llama config with one thing changed by a JSON merge patch.
Json llama_with(std::string_view patch) {
  Json config = parse_json(R"({
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "num_hidden_layers": 32,
    "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": false})",
                           "llama");
  config.merge_patch(parse_json(patch, "patch"));
  return config;
}

Model llama(std::string_view patch = "{}") { return read_model(llama_with(patch), "config.json"); }

std::string llama_error(std::string_view patch) {
  return message_of<InputError>([&] { (void)llama(patch); });
}

ModelLibrary library() { return ModelLibrary(test::source_path("models")); }

}  // namespace

TEST_CASE("the parameters of Llama-3.1-8B are those of the checkpoint") {
  // Q, O: 2 * 4096 * 4096 = 33,554,432. K, V: 2 * 4096 * 1024 = 8,388,608.
  // MLP: 3 * 4096 * 14336 = 176,160,768. Norms: 2 * 4096. A layer: 218,112,000.
  // 32 layers 6,979,584,000 + 2 * 128256 * 4096 = 1,050,673,152 + final norm 4096.
  const Model model = llama();
  CHECK(model.layer_parameters() == 218'112'000);
  CHECK(model.parameters() == 8'030'261'248);
  CHECK(model.assumed.empty());
}

TEST_CASE("the parameters of GPT-2 are those of the checkpoint") {
  // A layer: QKV 768*2304 + 2304, out 768*768 + 768, MLP 2*768*3072 + 3072 + 768, norms 4*768
  // = 7,087,872. 12 layers + wte 50257*768 + wpe 1024*768 + final norm 2*768 = 124,439,808.
  const Model model = read(R"({"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12,
                               "n_positions": 1024, "vocab_size": 50257, "n_inner": null})");
  CHECK(model.layer_parameters() == 7'087'872);
  CHECK(model.parameters() == 124'439'808);
  CHECK_FALSE(model.gated_mlp);
}

TEST_CASE("every model of the folder is read, and can be costed") {
  // Parameters as in the published checkpoints' safetensors metadata.
  const std::map<std::string, std::int64_t> exact{
      {"llama-3.1-8b", 8'030'261'248},     {"llama-3.1-70b", 70'553'706'496},
      {"llama-3.1-405b", 405'853'388'800}, {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-1.5b", 1'543'714'304},     {"qwen2.5-3b", 3'085'938'688},
      {"qwen2.5-7b", 7'615'616'512},       {"qwen2.5-14b", 14'770'033'664},
      {"qwen2.5-32b", 32'763'876'352},     {"qwen2.5-72b", 72'706'203'648},
      {"qwen3-0.6b", 596'049'920},         {"qwen3-8b", 8'190'735'360},
      {"qwen3-32b", 32'762'123'264},       {"mixtral-8x7b", 46'702'792'704},
      {"qwen3-30b-a3b", 30'532'122'624},   {"qwen3-235b-a22b", 235'093'634'560},
      {"gpt-oss-20b", 20'914'757'184},     {"gpt-oss-120b", 116'829'156'672}};
  // In 10^9; weights_test.cpp has them to the last one, and their sources.
  const std::map<std::string, double> hybrids{
      {"qwen3.5-27b", 26.896}, {"nemotron-3-nano-30b-a3b", 31.578}, {"nemotron-h-56b", 56.3}};
  // In 10^9, without the layers that predict further tokens: DeepSeek-V3 671 (arXiv:2412.19437,
  // section 1). Kimi-K2 says "1 T" on its card; this is the sum over its config. Llama-4-Scout's
  // 109 (its card) have an image encoder besides; this is its text decoder.
  const std::map<std::string, double> decoders{
      {"deepseek-v3", 671},         {"kimi-k2", 1026.4},        {"llama-4-scout-17b-16e", 107.77},
      {"gemma-4-26b-a4b", 25.2331}, {"deepseek-v3.2", 671.878}, {"deepseek-v4-flash", 284.332}};
  // In 10^9, as published; embedders are not counted.
  const std::map<std::string, double> about{{"cogvideox-2b", 1.69},   {"cogvideox-5b", 5.57},
                                            {"flux.1-dev", 11.9},     {"hunyuanvideo", 12.8},
                                            {"qwen-image", 20.4},     {"wan2.1-t2v-1.3b", 1.42},
                                            {"wan2.1-t2v-14b", 14.3}, {"z-image", 6.15}};

  const ModelLibrary models = library();
  CHECK(models.names().size() == exact.size() + decoders.size() + about.size() + hybrids.size());
  for (const std::string& name : models.names()) {
    INFO(name);
    const Model model = models.load(name, "--model");
    CHECK(model.name == name);
    CHECK(model.kind == (about.contains(name) ? ModelKind::dit : ModelKind::llm));
    if (exact.contains(name)) {
      CHECK(model.parameters() == exact.at(name));
      CHECK(model.not_costed.empty());
      CHECK(model.assumed.empty());
      CHECK(model.mask.kind == MaskKind::causal);
    } else if (decoders.contains(name)) {
      CHECK(static_cast<double>(model.parameters()) ==
            Catch::Approx(decoders.at(name) * 1e9).epsilon(0.0005));
      CHECK(model.not_costed.empty());
    } else if (hybrids.contains(name)) {
      CHECK(static_cast<double>(model.parameters()) ==
            Catch::Approx(hybrids.at(name) * 1e9).epsilon(0.005));
      CHECK(model.not_costed.empty());
      CHECK(model.linear.has_value());
      CHECK(std::ssize(model.blocks) == model.layers);
    } else {
      REQUIRE(about.contains(name));
      CHECK(static_cast<double>(model.parameters()) ==
            Catch::Approx(about.at(name) * 1e9).epsilon(0.05));
      CHECK(model.not_costed.empty());
      CHECK(model.mask.kind == MaskKind::full);
      CHECK(model.vocab == 0);
    }
  }
}

TEST_CASE("configs of older families say what their code does") {
  const auto config = [](std::string_view text) {
    return read_model(Json::parse(text), "config.json");
  };
  // In 10^9, as published.
  const Model gemma = config(R"({"model_type": "gemma2", "hidden_size": 3584,
      "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 256, "intermediate_size": 14336, "vocab_size": 256000,
      "max_position_embeddings": 8192, "sliding_window": 4096})");
  CHECK(static_cast<double>(gemma.parameters()) == Catch::Approx(9.24e9).epsilon(0.001));
  CHECK(std::ranges::count(gemma.narrow_layers, true) == 21);
  CHECK(gemma.narrow_layers.front());
  const Model opt = config(R"({"model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "ffn_dim": 16384, "vocab_size": 50272,
      "max_position_embeddings": 2048})");
  CHECK(static_cast<double>(opt.parameters()) == Catch::Approx(6.66e9).epsilon(0.001));
  const Model phi = config(R"({"model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 10240, "vocab_size": 51200,
      "tie_word_embeddings": false})");
  CHECK(static_cast<double>(phi.parameters()) == Catch::Approx(2.78e9).epsilon(0.001));
  const Model bloom = config(R"({"model_type": "bloom", "hidden_size": 4096, "n_layer": 30,
      "n_head": 32, "vocab_size": 250880})");
  CHECK(static_cast<double>(bloom.parameters()) == Catch::Approx(7.07e9).epsilon(0.001));
  const Model falcon = config(R"({"model_type": "falcon", "hidden_size": 4544,
      "num_hidden_layers": 32, "num_attention_heads": 71, "multi_query": true,
      "vocab_size": 65024})");
  CHECK(static_cast<double>(falcon.parameters()) == Catch::Approx(6.92e9).epsilon(0.001));
  CHECK(falcon.kv_heads == 1);
  const Model starcoder = config(R"({"model_type": "gpt_bigcode", "multi_query": true,
      "activation_function": "gelu_pytorch_tanh", "n_embd": 6144, "n_head": 48, "n_inner": 24576,
      "n_layer": 40, "n_positions": 8192, "vocab_size": 49152})");
  CHECK(starcoder.parameters() == 15'517'456'384);
  const Model gptj = config(R"({"model_type": "gptj", "n_embd": 4096, "n_head": 16,
      "n_inner": null, "n_layer": 28, "n_positions": 2048, "vocab_size": 50400})");
  CHECK(static_cast<double>(gptj.parameters()) == Catch::Approx(6.05e9).epsilon(0.001));
  const Model codegen = config(R"({"model_type": "codegen", "n_embd": 6144, "n_head": 24,
      "n_inner": null, "n_layer": 34, "n_positions": 2048, "vocab_size": 51200})");
  CHECK(static_cast<double>(codegen.parameters()) == Catch::Approx(16.03e9).epsilon(0.005));
  const Model qwen = config(R"({"model_type": "qwen", "hidden_size": 4096,
      "intermediate_size": 22016, "kv_channels": 128, "num_attention_heads": 32,
      "num_hidden_layers": 32, "vocab_size": 151936, "tie_word_embeddings": false})");
  CHECK(static_cast<double>(qwen.parameters()) == Catch::Approx(7.72e9).epsilon(0.001));
  const Model bloom_176b = config(R"({"model_type": "bloom", "n_embed": 14336, "n_layer": 70,
      "num_attention_heads": 112, "seq_length": 2048, "vocab_size": 250880})");
  CHECK(static_cast<double>(bloom_176b.parameters()) == Catch::Approx(176.25e9).epsilon(0.001));
  const Model bitnet = config(R"({"model_type": "bitnet", "hidden_act": "relu2",
      "hidden_size": 2560, "intermediate_size": 6912, "num_attention_heads": 20,
      "num_hidden_layers": 30, "num_key_value_heads": 5, "tie_word_embeddings": true,
      "vocab_size": 128256})");
  CHECK(static_cast<double>(bitnet.parameters()) == Catch::Approx(2.41e9).epsilon(0.002));
  CHECK(bitnet.activation == Activation::squared_relu);
  CHECK(bitnet.assumed.empty());
}

TEST_CASE(
    "types that are not in the table have a gate unless their keys or activation speak against") {
  const auto gated = [](std::string_view patch) { return llama(patch).gated_mlp; };
  CHECK(gated(R"({"model_type": "newcomer"})"));
  CHECK_FALSE(gated(R"({"model_type": "newcomer", "activation_function": "gelu_new"})"));
  CHECK(gated(R"({"model_type": "newcomer", "activation_function": "swiglu"})"));
  CHECK(gated(R"({"model_type": "newcomer", "activation_function": "silu"})"));
  CHECK_FALSE(gated(R"({"model_type": "newcomer", "hidden_size": null, "n_embd": 4096})"));
  CHECK_FALSE(gated(R"({"model_type": "newcomer", "hidden_act": "relu2"})"));
}

TEST_CASE("what only a maker's code knows of layers is refused, whatever the model_type") {
  for (const std::string_view key : {"attn_type_list", "linear_attn_config", "hybrid_layer_pattern",
                                     "cross_attention_layers", "global_attn_every_n_layers"}) {
    CHECK(llama(fmt::format(R"({{"model_type": "theirs", "{}": [1, 0]}})", key)).not_costed ==
          fmt::format("a mix of layers ({}) is not costed yet", key));
  }
  for (const std::string_view key : {"block_types", "_block_types", "mixer_types", "full_attn_idxs",
                                     "sliding_window_layout", "attention_types"}) {
    CHECK(llama(fmt::format(R"({{"{}": [0, 1]}})", key)).not_costed ==
          fmt::format("a mix of layers ({}) is not costed yet", key));
  }
  const auto refused = [](std::string_view patch) { return llama(patch).not_costed; };
  CHECK(refused(R"({"state_size": 16})") == "state-space mixing (state_size 16) is not costed yet");
  CHECK(refused(R"({"ssm_cfg": {}})") == "state-space mixing (ssm_cfg) is not costed yet");
  CHECK(refused(R"({"sparse_config": {}})") ==
        "sparse attention (sparse_config) is not costed yet");
  for (const std::string_view key :
       {"attention_hidden_size", "expand_k", "decay_low_rank_dim", "qk_dim_factor", "attn_mode"}) {
    CHECK(refused(fmt::format(R"({{"{}": 96, "intermediate_size": null}})", key)) ==
          fmt::format("linear attention ({} 96) is not costed yet", key));
  }
  CHECK(refused(R"({"total_ut_steps": 4})") ==
        "a stack of layers that runs several times (total_ut_steps 4) is not costed yet");
  CHECK(refused(R"({"total_ut_steps": 1, "num_loops": 1})").empty());
  CHECK(refused(R"({"use_cla": true})") ==
        "sharing of K and V between layers (use_cla true) is not costed yet");
  CHECK(llama(R"({"sparse_config": null})").not_costed.empty());
  CHECK(llama(R"({"model_type": "opt", "word_embed_proj_dim": 512})").not_costed ==
        "an embedding of another width (word_embed_proj_dim 512) is not costed yet");
  CHECK(llama(R"({"model_type": "opt", "word_embed_proj_dim": 4096})").not_costed.empty());
  CHECK_THAT(
      test::message_of<InputError>([] { (void)llama(R"({"layer_types": ["full_attention"]})"); }),
      Catch::Matchers::ContainsSubstring("layer_types: 1 kinds for 32 layers"));
}

TEST_CASE("encoders are known by their type, their class and what they attend to") {
  for (const std::string_view patch :
       {R"({"model_type": "bert"})", R"({"model_type": "esm"})",
        R"({"model_type": "newcomer", "architectures": ["NewcomerForMaskedLM"]})",
        R"({"model_type": "gemma3_text", "use_bidirectional_attention": true})",
        R"({"use_bidirectional_attention": "all"})"}) {
    CHECK(llama(patch).not_costed == "an encoder is not costed yet");
  }
  CHECK(llama(R"({"is_causal": false})").not_costed ==
        "attention that looks both ways (is_causal false) is not costed yet");
  CHECK(llama(R"({"model_type": "Dream", "mask_token_id": 151666})").not_costed ==
        "a model that fills in masked tokens (mask_token_id 151666) is not costed yet");
  CHECK(llama(R"({"model_type": "Dream", "mask_token_id": 151666})").mask.kind == MaskKind::full);
  CHECK(llama(R"({"model_type": "llada2_moe"})").not_costed ==
        "a language model by diffusion is not costed yet");
  CHECK(llama(R"({"architectures": ["LlamaForCausalLM"],
                  "use_bidirectional_attention": "vision"})")
            .not_costed.empty());
}

TEST_CASE("where keys say that layers are foreign, those of usual ones may be missing") {
  const auto refused = [](std::string_view patch) { return llama(patch).not_costed; };
  CHECK(refused(R"({"intermediate_size": null, "num_key_value_heads": null,
                    "block_configs": [{"ffn": {"ffn_mult": 5.25}}]})") ==
        "a shape of its own for each layer (block_configs) is not costed yet");
  CHECK(refused(R"({"num_attention_heads": null, "state_size": 16})") ==
        "state-space mixing (state_size 16) is not costed yet");
  CHECK(refused(R"({"num_attention_heads": null, "is_encoder_decoder": true})") ==
        "an encoder with a decoder is not costed yet");
  CHECK_THAT(refused(R"({"intermediate_size": null, "attn_config": {"kv_n_heads": 8}})"),
             ContainsSubstring("an object of its own describes (attn_config)"));
  // Granite 4.0's dense models have 0 experts, and sizes of state-space layers that they lack.
  const Model granite = llama(R"({"model_type": "granitemoehybrid", "hidden_size": 2560,
      "num_hidden_layers": 2, "num_attention_heads": 40, "intermediate_size": 8192,
      "vocab_size": 100352, "mamba_d_state": 256, "layer_types": ["attention", "attention"],
      "num_local_experts": 0, "num_experts_per_tok": 0})");
  CHECK(granite.not_costed.empty());
  CHECK(granite.experts == Experts{});
}

TEST_CASE("Qwen's window begins at a layer") {
  const std::string_view on = R"({"model_type": "qwen2", "use_sliding_window": true,
      "sliding_window": 4096, "max_window_layers": )";
  CHECK(llama(fmt::format("{}32}}", on)).narrow_layers.empty());
  CHECK(llama(fmt::format("{}32}}", on)).mask.kind == MaskKind::causal);
  const Model some = llama(fmt::format("{}30}}", on));
  CHECK(std::ranges::count(some.narrow_layers, true) == 2);
  CHECK(some.narrow_layers.back());
  CHECK(llama(fmt::format("{}0}}", on)).mask.kind == MaskKind::window);
}

TEST_CASE("how a checkpoint stores its weights is said") {
  CHECK(
      llama(R"({"quantization_config": {"quant_method": "fp8"}})").assumed.back() ==
      "weights of 16 bits, not as its checkpoint has them (quantization_config: fp8); in a prefill "
      "fewer under --gemm-format");
}

TEST_CASE("a decoder's own object says how its weights are stored, too; towers are named") {
  const Model model = read(fmt::format(R"({{"model_type": "x_vl", "vision_config": {{"depth": 32}},
      "audio_config": {{}}, "text_config": {}}})",
                                       llama_with(R"({"quantization_config": {
      "quant_method": "fp8"}})")
                                           .dump()));
  REQUIRE(model.assumed.size() == 3);
  CHECK_THAT(model.assumed[1], ContainsSubstring("(quantization_config: fp8)"));
  CHECK(model.assumed[2] == "the decoder alone, nothing of vision_config and audio_config");
}

TEST_CASE("an explicit head_dim wins over hidden / heads") {
  CHECK(llama().head_dim == 128);
  CHECK(llama(R"({"head_dim": 64})").head_dim == 64);
  CHECK(llama(R"({"head_dim": 64})").q_width() == 2048);
}

TEST_CASE("without num_key_value_heads every head has its own keys and values") {
  CHECK(llama(R"({"num_key_value_heads": null})").kv_heads == 32);
}

TEST_CASE("what a nested object leaves to its class is the class's default, and said") {
  const auto nested = [](std::string_view keys) {
    return read(fmt::format(R"({{"model_type": "x_vl", "text_config": {{
        "num_hidden_layers": 42, "vocab_size": 1000, "tie_word_embeddings": true, {}}}}})",
                            keys));
  };
  const Model gemma = nested(R"("model_type": "gemma2", "hidden_size": 3584,
      "intermediate_size": 14336, "num_attention_heads": 16, "num_key_value_heads": 8,
      "sliding_window": 4096)");  // PaliGemma2-10B's
  CHECK(gemma.head_dim == 256);
  CHECK(gemma.assumed ==
        std::vector<std::string>{"head_dim 256 (not in the config; default of transformers' "
                                 "Gemma2Config)"});
  const std::string shape = R"("hidden_size": 2560, "intermediate_size": 9728,
      "num_attention_heads": 32, "model_type": )";
  CHECK(nested(shape + R"("qwen3", "num_key_value_heads": 8)").head_dim == 128);
  CHECK(nested(shape + R"("qwen3", "num_key_value_heads": 8, "head_dim": null)").head_dim == 80);
  CHECK(nested(shape + R"("qwen3")").kv_heads == 32);
  CHECK(nested(shape + R"("mixtral", "num_local_experts": 8, "num_experts_per_tok": 2)").kv_heads ==
        8);
  CHECK(nested(shape + R"("mistral", "num_key_value_heads": null)").kv_heads == 32);
  const Model mistral = nested(shape + R"("mistral")");
  CHECK(mistral.kv_heads == 8);
  REQUIRE(mistral.assumed.size() == 3);
  CHECK(mistral.assumed[2] ==
        "sliding_window 4096 (not in the config; default of transformers' MistralConfig)");
  CHECK(mistral.mask.kind == MaskKind::window);
  CHECK(mistral.mask.window == 4096);
  CHECK(nested(shape + R"("mistral", "sliding_window": null)").mask.kind == MaskKind::causal);
  CHECK(mistral.assumed[0] ==
        "num_key_value_heads 8 (not in the config; default of transformers' MistralConfig)");
  CHECK(mistral.assumed[1] == "head_dim 80: hidden size / heads (not in the config)");
  CHECK(nested(shape + R"("newcomer")").assumed[1] ==
        "num_key_value_heads 32: one for each head (not in the config)");
}

TEST_CASE("what a DeepSeek-V3 config leaves out its class says") {
  const std::string config = R"({"model_type": "deepseek_v3", "hidden_size": 7168,
      "num_attention_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
      "num_hidden_layers": 61, "vocab_size": 129280, "n_routed_experts": 256,
      "num_experts_per_tok": 8, "n_shared_experts": 1, "kv_lora_rank": 512,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "tie_word_embeddings": false)";
  const Model model = read(config + "}");
  CHECK(model.experts.dense_layers == 3);
  CHECK(model.latent.q_rank == 1536);
  CHECK_THAT(fmt::format("{}", fmt::join(model.assumed, "; ")),
             ContainsSubstring("first_k_dense_replace 3 (not in the config; default of "
                               "transformers' DeepseekV3Config)") &&
                 ContainsSubstring("q_lora_rank 1536"));
  const Model said = read(config + R"(, "first_k_dense_replace": 1, "q_lora_rank": null})");
  CHECK(said.experts.dense_layers == 1);
  CHECK(said.latent.q_rank == 0);
}

TEST_CASE("stretched RoPE reaches further than the positions of its first training") {
  const auto positions = [](std::string_view scaling) {
    return llama(
               fmt::format(R"({{"max_position_embeddings": 32768, "rope_scaling": {}}})", scaling))
        .max_positions;
  };
  CHECK(positions(R"({"rope_type": "yarn", "factor": 4.0,
                      "original_max_position_embeddings": 32768})") == 131072);
  // Llama 3.1's says already how far.
  CHECK(positions(R"({"rope_type": "llama3", "factor": 2.0,
                      "original_max_position_embeddings": 8192})") == 32768);
  CHECK(positions(R"({"rope_type": "linear", "factor": 8.0})") == 32768);
  CHECK(positions("null") == 32768);
}

TEST_CASE("the decoder of a multimodal config is found under text_config") {
  const Model model =
      read(R"({"model_type": "x_vl", "tie_word_embeddings": true, "vision_config": {},
    "text_config": {"model_type": "qwen3", "hidden_size": 64, "num_attention_heads": 4,
                    "head_dim": 32,
                    "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 100}})");
  CHECK(model.head_dim == 32);
  CHECK(model.kv_heads == 4);
  CHECK(model.qk_norm);
  CHECK(model.tied_embeddings);
  CHECK(read(R"({"model_type": "x_omni", "talker_config": {"hidden_size": 8}, "thinker_config": {
      "audio_config": {}, "text_config": {"model_type": "qwen3", "hidden_size": 64, "head_dim": 32,
      "num_attention_heads": 4, "intermediate_size": 128, "num_hidden_layers": 2,
      "vocab_size": 100}}})")
            .assumed.back() == "the decoder alone, nothing of audio_config");
  CHECK(error_of(R"({"model_type": "x", "talker_config": {"hidden_size": 8}, "a_config": {}})") ==
        "config.json: key 'hidden_size' is missing, and talker_config, a_config is not known to "
        "hold a decoder");
}

TEST_CASE("what a config leaves open is listed as assumed") {
  const Model model = llama(R"({"model_type": "newcomer", "tie_word_embeddings": null})");
  REQUIRE(model.assumed.size() == 3);
  CHECK(model.assumed[0] ==
        "layers like Llama's: gated MLP, RMSNorm, no biases (model_type 'newcomer' is not in the "
        "table)");
  CHECK_THAT(llama(R"({"model_type": "newcomer", "hidden_act": "relu2"})").assumed[0],
             StartsWith("layers like Llama's: MLP without a gate, RMSNorm"));
  CHECK(model.assumed[1] == "tied embeddings (no tie_word_embeddings; transformers' default)");
  CHECK(model.assumed[2] == "head_dim 128: hidden size / heads (not in the config)");
  const Model llama_like = llama(R"({"tie_word_embeddings": null})");
  CHECK(llama_like.assumed ==
        std::vector<std::string>{"untied embeddings (no tie_word_embeddings)"});
}

TEST_CASE("what makes a family's layers is no other layer where it is missing") {
  const auto missing = [](const char* patch) {
    return message_of<InputError>([&] { (void)llama(patch); });
  };
  CHECK_THAT(missing(R"({"model_type": "mixtral"})"),
             ContainsSubstring("key 'num_local_experts' is missing"));
  CHECK_THAT(missing(R"({"model_type": "deepseek_v3", "n_routed_experts": 256})"),
             ContainsSubstring("key 'kv_lora_rank' is missing"));
}

TEST_CASE("embeddings are tied where neither a file nor its class says otherwise") {
  const auto tied = [](std::string_view patch) { return llama(patch).tied_embeddings; };
  CHECK(tied(R"({"model_type": "minicpm", "tie_word_embeddings": null})"));
  CHECK(tied(R"({"model_type": "cohere2", "tie_word_embeddings": null})"));
  CHECK(tied(R"({"model_type": "newcomer", "tie_word_embeddings": null})"));
  CHECK(tied(R"({"tie_word_embeddings": null, "weight_tying": true})"));
  CHECK_FALSE(tied(R"({"model_type": "granite", "tie_word_embeddings": null})"));
  const Model nested = read(
      fmt::format(R"({{"text_config": {}}})",
                  llama_with(R"({"model_type": "newcomer", "tie_word_embeddings": null})").dump()));
  CHECK_FALSE(nested.tied_embeddings);
  CHECK_THAT(nested.assumed[1], StartsWith("untied embeddings (no tie_word_embeddings; "));
}

TEST_CASE("biases are read under their names, and said of a type that is not in the table") {
  const auto newcomer = [](std::string_view key) {
    return llama(fmt::format(R"({{"model_type": "newcomer", "head_dim": 128, "{}": true}})", key));
  };
  for (const std::string_view key : {"qkv_bias", "use_qkv_bias", "add_qkv_bias"}) {
    const Model model = newcomer(key);
    CHECK(model.attention_bias);
    CHECK_FALSE(model.output_bias);
    CHECK_THAT(model.assumed[0], ContainsSubstring("RMSNorm, biases of Q, K and V ("));
  }
  CHECK(newcomer("bias").output_bias);
  CHECK_FALSE(newcomer("bias").mlp_bias);
  CHECK(llama(R"({"model_type": "falcon", "bias": true})").mlp_bias);
  CHECK_FALSE(llama(R"({"model_type": "falcon", "bias": false})").attention_bias);
}

TEST_CASE("keys that nobody reads are named where a model_type is not in the table") {
  const std::string_view keys = R"("moe_scheme": "x", "early_gate": [1], "linear_heads": 4,
      "router_aux_loss_of_experts": 0.1, "use_moe_bias": false, "dense_width": 0, "colour": 3)";
  CHECK(llama(fmt::format(R"({{"model_type": "newcomer", {}}})", keys)).assumed.back() ==
        "nothing that these keys speak of: moe_scheme x, early_gate, linear_heads 4");
  CHECK(llama(fmt::format("{{{}}}", keys)).assumed.empty());
}

TEST_CASE("a sliding window counts only where it is switched on and narrower than the positions") {
  const LayerMask window{.kind = MaskKind::window, .window = 4096};
  CHECK(llama(R"({"sliding_window": 4096})").mask == window);
  CHECK(llama(R"({"sliding_window": 131072})").mask.kind == MaskKind::causal);
  CHECK(llama(R"({"sliding_window": 4096, "use_sliding_window": false})").mask.kind ==
        MaskKind::causal);
  CHECK(llama(R"({"model_type": "qwen2", "sliding_window": 4096})").mask.kind == MaskKind::causal);
  CHECK(llama(R"({"sliding_window": 4096, "num_hidden_layers": 2,
                  "layer_types": ["full_attention", "full_attention"]})")
            .mask.kind == MaskKind::causal);
}

TEST_CASE("layers that slide stand in the list of layers") {
  const auto two = [](std::string_view types, std::string_view more) {
    return llama(fmt::format(R"({{"num_hidden_layers": 2, "layer_types": [{}]{}}})", types, more));
  };
  const Model half = two(R"("sliding_attention", "full_attention")", R"(, "sliding_window": 512)");
  CHECK(half.not_costed.empty());
  CHECK(half.narrow_layers == std::vector<bool>{true, false});
  CHECK(half.narrow_mask == LayerMask{.kind = MaskKind::window, .window = 512});
  CHECK(half.mask.kind == MaskKind::causal);
  const Model all =
      two(R"("sliding_attention", "sliding_attention")", R"(, "sliding_window": 512)");
  CHECK(all.mask == half.narrow_mask);
  CHECK(all.narrow_layers.empty());
  CHECK(llama_error(R"({"layer_types": ["sliding_attention"]})") ==
        "config.json: layer_types: 1 kinds for 32 layers");
  CHECK(llama_error(R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})") ==
        "config.json: key 'sliding_window' is missing");
}

TEST_CASE("layers that slide are each but the so many-th where there is no list") {
  // gemma-3-1b-it as first published: 999,885,952 weights.
  const auto gemma = [](std::string_view more) {
    return read(fmt::format(
        R"({{"model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912,
             "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
             "num_hidden_layers": 26, "vocab_size": 262144, "sliding_window": 512{}}})",
        more));
  };
  const Model model = gemma(R"(, "sliding_window_pattern": 6)");
  CHECK(model.parameters() == 999'885'952);
  CHECK(model.narrow_mask == LayerMask{.kind = MaskKind::window, .window = 512});
  CHECK(model.mask.kind == MaskKind::causal);
  std::vector<bool> narrow(26, true);
  for (const std::size_t global : {5, 11, 17, 23}) {
    narrow[global] = false;
  }
  CHECK(model.narrow_layers == narrow);
  CHECK(gemma("").narrow_layers == narrow);  // Gemma3TextConfig's default
  CHECK(gemma(R"(, "sliding_window_pattern": 13)").narrow_layers != narrow);
  CHECK(gemma(R"(, "sliding_window_pattern": 1)").mask.kind == MaskKind::causal);
  CHECK(gemma(R"(, "sliding_window_pattern": 1)").narrow_layers.empty());
  CHECK(llama(R"({"sliding_window": 512, "sliding_window_pattern": 2})").narrow_layers[0]);
  CHECK(llama(R"({"sliding_window": 512, "sliding_window_pattern": "LLLG"})").not_costed ==
        "a mix of layers (sliding_window_pattern LLLG) is not costed yet");
  CHECK(llama_error(R"({"sliding_window": 512, "sliding_window_pattern": 0})") ==
        "config.json: sliding_window_pattern: 0 is out of range (1 to 10000)");
}

TEST_CASE("what Gemma 3's configs leave to their class") {
  const Model model = read(R"({"model_type": "gemma3_text", "hidden_size": 2560,
      "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024})");
  CHECK(model.q_heads == 8);
  CHECK(model.kv_heads == 4);
  CHECK(model.head_dim == 256);
  CHECK(model.vocab == 262'208);
  CHECK(model.parameters() == Catch::Approx(3.88e9).epsilon(0.005));  // of 4B, without its vision
}

TEST_CASE("a list of kinds that are all attention is no mix, and a null no chunk") {
  CHECK(llama(R"({"attn_type_list": [1, 1]})").not_costed.empty());
  CHECK_FALSE(llama(R"({"attn_type_list": [1, 0]})").not_costed.empty());
  const auto scout = [](std::string_view more) {
    return read(fmt::format(R"({{"model_type": "llama4_text", "hidden_size": 4096,
        "intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 32,
        "vocab_size": 32000, "max_position_embeddings": 262144{}}})",
                            more))
        .narrow_layers.size();
  };
  CHECK(scout("") == 32);
  CHECK(scout(R"(, "attention_chunk_size": null)") == 0);
  const Model open = llama(R"({"model_type": "llama4_text", "max_position_embeddings": null})");
  CHECK(open.narrow_mask == LayerMask{.chunk = 8192});  // however long a sequence may be
  CHECK(std::ranges::count(open.narrow_layers, true) == 24);
}

TEST_CASE("an MLP's activation is what the config, its family or its gate say") {
  CHECK(llama("{}").activation == Activation::silu);
  CHECK(llama(R"({"hidden_act": "gelu_pytorch_tanh"})").activation == Activation::gelu);
  CHECK(llama(R"({"hidden_act": "relu2"})").activation == Activation::squared_relu);
  CHECK(llama(R"({"model_type": "gpt_neox"})").activation == Activation::gelu);
  const Model oss = llama(R"({"model_type": "gpt_oss", "hidden_act": "silu", "swiglu_limit": 7.0,
      "sliding_window": 128, "num_local_experts": 8, "num_experts_per_token": 2})");
  CHECK(oss.activation == Activation::quick_gelu);
  CHECK(oss.activation_limit == 7);
  CHECK(oss.experts.per_token == 2);
}

TEST_CASE("sizes of latent attention that are 0 are none") {  // DeepSeek-OCR
  const Model model = llama(R"({"hidden_size": 1280, "num_attention_heads": 10,
      "num_key_value_heads": 10, "use_mla": false, "kv_lora_rank": null, "q_lora_rank": null,
      "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0})");
  CHECK(model.head_dim == 128);
  CHECK(model.latent == Latent{});
}

TEST_CASE("experts are read under their names") {
  const Model deepseek = llama(R"({"n_routed_experts": 64, "num_experts_per_tok": 6,
      "moe_intermediate_size": 1408, "n_shared_experts": 2, "first_k_dense_replace": 1})");
  CHECK(deepseek.experts == Experts{.count = 64,
                                    .per_token = 6,
                                    .ffn = 1408,
                                    .shared = 2,
                                    .shared_ffn = 2816,
                                    .dense_layers = 1});
  const Model listed = llama(R"({"num_hidden_layers": 4, "n_routed_experts": 8,
      "num_experts_per_tok": 2, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]})");
  CHECK(listed.experts.dense_layers == 1);
  CHECK(listed.not_costed.empty());
  CHECK_FALSE(llama(R"({"num_hidden_layers": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
      "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"]})")
                  .not_costed.empty());
  CHECK_THAT(llama_error(R"({"n_routed_experts": 8, "num_experts_per_tok": 2,
      "mlp_layer_types": ["dense", "sparse"]})"),
             EndsWith("mlp_layer_types: 2 kinds for 32 layers"));
  const std::string_view exaone = R"({"num_experts": 8, "num_experts_per_tok": 2,
      "num_hidden_layers": 3, "first_last_k_dense_replace": 1)";  // K-EXAONE's
  CHECK(llama(fmt::format(R"({}, "is_moe_layer": [false, true, true]}})", exaone))
            .experts.dense_layers == 1);
  CHECK(llama(fmt::format("{}}}", exaone)).not_costed ==
        "a mixture of experts in some layers only (8 experts) is not costed yet");
  for (const std::string_view key : {"num_dense_layers", "moe_layer_num_skipped"}) {
    CHECK(llama(fmt::format(R"({{"num_experts": 8, "num_experts_per_tok": 2, "{}": 3}})", key))
              .experts.dense_layers == 3);
  }
  CHECK(llama(R"({"model_type": "granitemoeshared", "num_local_experts": 62,
      "num_experts_per_tok": 8, "shared_intermediate_size": 1024})")
            .experts.shared_ffn == 1024);
  CHECK(llama(R"({"model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2,
      "shared_expert_intermediate_size": 64})")
            .experts.shared_gate);
  CHECK(llama(R"({"num_local_experts": 8, "num_experts_per_tok": 2})").experts ==
        Experts{.count = 8, .per_token = 2, .ffn = 14336});
  CHECK(llama(R"({"num_local_experts": 1})").experts == Experts{});
  CHECK(llama(R"({"moe_num_primary_experts": 64, "moe_num_active_primary_experts": 6,
                  "moe_ffn_hidden_size": 768})")
            .experts == Experts{.count = 64, .per_token = 6, .ffn = 768});
  CHECK(llama_error(R"({"num_local_experts": 8, "num_experts_per_tok": 9})") ==
        "config.json: num_experts_per_tok: 9 is out of range (1 to 8)");
  CHECK(llama_error(R"({"num_local_experts": 16384, "num_experts_per_tok": 2,
                        "hidden_size": 262144, "intermediate_size": 2097152})") ==
        "config.json: num_local_experts: 16384 experts, 2097152 wide, in 32 layers have more "
        "weights than is believed");
  const auto refused = [](std::string_view patch) { return llama(patch).not_costed; };
  CHECK(llama(R"({"num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 2})")
            .experts.every == 2);
  CHECK(refused(R"({"num_experts": 8, "num_experts_per_tok": 2, "moe_layer_freq": [0, 1]})") ==
        "a mixture of experts in some layers only (8 experts) is not costed yet");
  CHECK(refused(R"({"num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [3]})") ==
        "a mixture of experts in some layers only (8 experts) is not costed yet");
  CHECK(refused(R"({"num_experts": 8})") ==
        "mixture of experts (8 experts) without num_experts_per_tok is not costed yet");
}

TEST_CASE("the parameters of models that call their experts otherwise are those of their papers") {
  // ERNIE-4.5-21B-A3B and Hunyuan-A13B, by their configs and model cards: 21 and 80 * 10^9, active
  // 3 and 13 * 10^9.
  const Model ernie = read(R"({"model_type": "ernie4_5_moe", "hidden_size": 2560,
      "num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 4,
      "intermediate_size": 12288, "moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536,
      "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1,
      "moe_num_shared_experts": 2, "vocab_size": 103424, "tie_word_embeddings": true})");
  CHECK(static_cast<double>(ernie.parameters()) == Catch::Approx(21.8e9).epsilon(0.01));
  CHECK((ernie.active_parameters() + 500'000'000) / 1'000'000'000 == 3);
  const std::string hunyuan = R"({{"model_type": "hunyuan_v1_moe", "hidden_size": 4096,
      "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
      "intermediate_size": 3072, "moe_intermediate_size": [3072, {}], "num_experts": 64,
      "moe_topk": [8, 8], "num_shared_expert": [1, 1], "use_qk_norm": true, "vocab_size": 128167,
      "tie_word_embeddings": true}})";
  const Model even = read(fmt::format(fmt::runtime(hunyuan), 3072));
  CHECK(even.experts ==
        Experts{.count = 64, .per_token = 8, .ffn = 3072, .shared = 1, .shared_ffn = 3072});
  CHECK(static_cast<double>(even.layer_parameters()) == Catch::Approx(80.4e9 / 32).epsilon(0.02));
  CHECK(read(fmt::format(fmt::runtime(hunyuan), 4096)).not_costed ==
        "a mixture of experts of different width or number from layer to layer is not costed yet");
  CHECK(llama(R"({"num_experts": 8, "moe_k": 2, "moe_layer_end_index": 3})").not_costed ==
        "a mixture of experts in some layers only (8 experts) is not costed yet");
}

TEST_CASE("the parameters of EXAONE, Molmo, Trinity and Pangu are those of their checkpoints") {
  const Model exaone = read(R"({"model_type": "exaone", "activation_function": "silu",
      "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
      "num_key_value_heads": 8, "num_layers": 32, "vocab_size": 102400,
      "tie_word_embeddings": false})");
  CHECK(exaone.parameters() == 7'818'448'896);
  const Model molmo = read(R"({"model_type": "molmo", "hidden_size": 3584,
      "intermediate_size": 37888, "num_attention_heads": 28, "num_hidden_layers": 28,
      "num_key_value_heads": 4, "qkv_bias": true, "vocab_size": 152064, "weight_tying": false,
      "tie_word_embeddings": false})");
  CHECK(molmo.parameters() == 7'615'616'512);  // its language model is Qwen2-7B
  std::string kinds;
  for (int i = 0; i < 8; ++i) {
    kinds += R"("sliding_attention", "sliding_attention", "sliding_attention", "full_attention", )";
  }
  const Model trinity = read(fmt::format(R"({{"model_type": "afmoe", "head_dim": 128,
      "global_attn_every_n_layers": 4, "hidden_size": 2048, "intermediate_size": 6144,
      "layer_types": [{}], "moe_intermediate_size": 1024, "num_attention_heads": 32,
      "num_dense_layers": 2, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 32,
      "num_key_value_heads": 4, "num_shared_experts": 1, "sliding_window": 2048,
      "tie_word_embeddings": false, "vocab_size": 200192}})",
                                         kinds.substr(0, kinds.size() - 2)));
  CHECK(trinity.not_costed.empty());
  CHECK(static_cast<double>(trinity.parameters()) == Catch::Approx(26.12e9).epsilon(0.001));
  const Model pangu = read(R"({"model_type": "pangu_ultra_moe", "num_dense_layers": 3,
      "hidden_size": 7680, "intermediate_size": 18432, "attention_kv_lora_dim": 512,
      "attention_q_lora_dim": 1536, "attention_qk_dim": 128, "attention_qk_rope_dim": 64,
      "attention_v_dim": 128, "moe_intermediate_size": 2048, "num_routed_experts": 256,
      "num_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
      "num_hidden_layers": 61, "num_key_value_heads": 128, "num_mtp_layers": 1,
      "sandwich_norm": true, "tie_word_embeddings": false, "vocab_size": 153600})");
  CHECK(static_cast<double>(pangu.parameters()) == Catch::Approx(718e9).epsilon(0.002));
  CHECK(pangu.latent.kv_rank == 512);
  CHECK(pangu.predict_layers == 1);
  CHECK(pangu.branch_norms);
}

TEST_CASE("of a model that is not costed a card says what the config does, and no more") {
  const Model dbrx = read(R"({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40,
      "vocab_size": 100352, "attn_config": {"kv_n_heads": 8}, "tie_word_embeddings": true})");
  CHECK(dbrx.not_costed ==
        "attention that an object of its own describes (attn_config) is not costed yet");
  CHECK(dbrx.q_heads == 48);
  CHECK(dbrx.kv_heads == 0);
  CHECK(dbrx.head_dim == 0);
  CHECK(dbrx.tied_embeddings);
}

TEST_CASE("the parameters of GLM-4-9B and of Apertus-70B are those of their model cards") {
  const Model glm = read(R"({"model_type": "chatglm", "hidden_size": 4096, "num_layers": 40,
      "num_attention_heads": 32, "multi_query_attention": true, "multi_query_group_num": 2,
      "kv_channels": 128, "ffn_hidden_size": 13696, "padded_vocab_size": 151552,
      "seq_length": 131072, "add_qkv_bias": true, "add_bias_linear": false,
      "tie_word_embeddings": false})");
  CHECK(static_cast<double>(glm.parameters()) == Catch::Approx(9.4e9).epsilon(0.005));
  CHECK(glm.kv_heads == 2);
  CHECK(glm.max_positions == 131'072);
  const Model apertus = read(R"({"model_type": "apertus", "hidden_act": "xielu",
      "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8, "intermediate_size": 43008, "vocab_size": 131072,
      "tie_word_embeddings": false})");
  CHECK(static_cast<double>(apertus.parameters()) == Catch::Approx(70.6e9).epsilon(0.005));
}

TEST_CASE("layers with parts that are not known are refused, not taken for what they resemble") {
  // LongCat-Flash and Step-3: read as usual layers they would have six times, and a tenth more,
  // parameters than they have.
  CHECK_THAT(
      llama(R"({"n_routed_experts": 512, "moe_topk": 12, "zero_expert_num": 256})").not_costed,
      ContainsSubstring("a layer of two attentions and MLPs"));
  CHECK_THAT(llama(R"({"share_q_dim": 2048})").not_costed, ContainsSubstring("a shared latent"));
  CHECK_THAT(llama(R"({"num_local_experts": 128, "num_experts_per_tok": 2,
                       "parallel_attn_mlp_res": true})")
                 .not_costed,
             ContainsSubstring("an MLP beside all experts"));
  CHECK_THAT(llama(R"({"num_local_experts": 8, "num_experts_per_tok": 2, "residual_moe": true})")
                 .not_costed,
             ContainsSubstring("an MLP beside all experts (residual_moe true)"));
  CHECK_THAT(llama(R"({"use_moe": true, "moe_config": {"moe_num_experts": 32}})").not_costed,
             ContainsSubstring("(moe_config)"));
  CHECK(llama(R"({"moe_ffn_hidden_size": 768})").not_costed ==
        "a mixture of experts without their number is not costed yet");
}

TEST_CASE("the parameters of models with latent attention are those of their papers") {
  // DeepSeek-V2: 236 * 10^9 (arXiv:2405.04434, abstract); its V2 and Moonlight's config.
  const Model v2 = read(R"({"model_type": "deepseek_v2", "hidden_size": 5120,
      "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 12288,
      "num_hidden_layers": 60, "vocab_size": 102400, "tie_word_embeddings": false,
      "n_routed_experts": 160, "num_experts_per_tok": 6, "moe_intermediate_size": 1536,
      "n_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1,
      "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
      "v_head_dim": 128})");
  CHECK(static_cast<double>(v2.parameters()) == Catch::Approx(236e9).epsilon(0.005));
  CHECK(static_cast<double>(v2.active_parameters()) == Catch::Approx(21e9).epsilon(0.02));
  // Moonlight-16B-A3B: 15.96 * 10^9 (arXiv:2502.16982, table 3 counts 15.29 without embeddings).
  const Model moonlight = read(R"({"model_type": "deepseek_v3", "hidden_size": 2048,
      "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 11264,
      "num_hidden_layers": 27, "vocab_size": 163840, "tie_word_embeddings": false,
      "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
      "n_shared_experts": 2, "first_k_dense_replace": 1, "q_lora_rank": null,
      "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128})");
  CHECK(moonlight.latent.q_rank == 0);
  CHECK(moonlight.head_dim == 192);
  CHECK(static_cast<double>(moonlight.parameters()) == Catch::Approx(15.96e9).epsilon(0.005));
  CHECK(static_cast<double>(moonlight.parameters() - 2 * moonlight.table_parameters()) ==
        Catch::Approx(15.29e9).epsilon(0.005));
  CHECK(llama_error(R"({"kv_lora_rank": 512, "qk_rope_head_dim": 64})") ==
        "config.json: key 'qk_nope_head_dim' is missing (or attention_qk_dim)");
}

TEST_CASE("the parameters of models with experts in turns or beside dense layers") {
  // Llama-4-Maverick: 400 * 10^9 (its card), experts in every second layer.
  const Model maverick = read(R"({"model_type": "llama4_text", "hidden_size": 5120,
      "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
      "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
      "vocab_size": 202048, "num_local_experts": 128, "num_experts_per_tok": 1,
      "interleave_moe_layer_step": 2, "max_position_embeddings": 1048576,
      "tie_word_embeddings": false})");
  CHECK(static_cast<double>(maverick.parameters()) == Catch::Approx(400e9).epsilon(0.005));
  CHECK(static_cast<double>(maverick.active_parameters()) == Catch::Approx(17e9).epsilon(0.02));
  // GLM-4.5: 355 * 10^9, 32 of them active (arXiv:2508.06471, table 1).
  const Model glm = read(R"({"model_type": "glm4_moe", "hidden_size": 5120,
      "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
      "intermediate_size": 12288, "num_hidden_layers": 92, "vocab_size": 151552,
      "tie_word_embeddings": false, "n_routed_experts": 160, "num_experts_per_tok": 8,
      "moe_intermediate_size": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3,
      "attention_bias": true, "use_qk_norm": true})");
  CHECK(static_cast<double>(glm.parameters()) == Catch::Approx(355e9).epsilon(0.01));
  CHECK(glm.not_costed.empty());
}

TEST_CASE("what such layers cannot express is refused by name") {
  const auto refused = [](std::string_view patch) { return llama(patch).not_costed; };
  CHECK(refused(R"({"num_local_experts": 1})").empty());
  CHECK(refused(R"({"full_attention_interval": 4})") ==
        "a mix of layers (full attention every 4 layers) is not costed yet");
  CHECK(refused(R"({"layer_types": ["linear_attention", "full_attention", "full_attention"]})") ==
        "a mix of layers (2 full_attention, 1 linear_attention) is not costed yet");
  CHECK(refused(R"({"num_hidden_layers": 3, "num_key_value_heads": [8, 4, 8]})") ==
        "attention of different shape from layer to layer (4 to 8 key/value heads) is not costed "
        "yet");
  CHECK(refused(R"({"num_hidden_layers": 2, "intermediate_size": [11008, 8192]})") ==
        "an MLP of different width from layer to layer (8192 to 11008) is not costed yet");
  CHECK(refused(R"({"num_hidden_layers": 2, "num_key_value_heads": [8, 8]})").empty());
  CHECK(llama_error(R"({"intermediate_size": [11008, 11008, 11008]})") ==
        "config.json: intermediate_size: 3 numbers for 32 layers");
  CHECK(refused(R"({"attention_chunk_size": 8192})") ==
        "chunked attention (8192 tokens) is not costed yet");
  CHECK(refused(R"({"attn_layer_period": 8})") ==
        "a mix of layers (attn_layer_period 8) is not costed yet");
  CHECK(refused(R"({"mamba_d_state": 256})") ==
        "state-space mixing (mamba_d_state 256) is not costed yet");
}

TEST_CASE("a missing key is named with its other names") {
  CHECK(llama_error(R"({"hidden_size": null})") ==
        "config.json: key 'hidden_size' is missing (or n_embd, n_embed, d_model)");
  CHECK(llama_error(R"({"num_attention_heads": null})") ==
        "config.json: key 'num_attention_heads' is missing (or n_head, n_heads, num_heads)");
  CHECK(llama_error(R"({"vocab_size": null})") ==
        "config.json: key 'vocab_size' is missing (or n_vocab, padded_vocab_size)");
  CHECK(error_of("{}") ==
        "config.json: key 'hidden_size' is missing (or n_embd, n_embed, d_model)");
  CHECK(error_of("[]") == "config.json: is not a model (an object with the keys of a config.json)");
}

TEST_CASE("absurd numbers are refused with file and key") {
  CHECK(llama_error(R"({"num_hidden_layers": 0})") ==
        "config.json: num_hidden_layers: 0 is out of range (1 to 10000)");
  CHECK(llama_error(R"({"hidden_size": -4096})") ==
        "config.json: hidden_size: -4096 is out of range (1 to 262144)");
  CHECK(llama_error(R"({"vocab_size": 9223372036854775808})") ==
        "config.json: vocab_size: 9223372036854775808 is out of range (1 to 67108864)");
  CHECK(llama_error(R"({"intermediate_size": 1.5})") ==
        "config.json: intermediate_size: 1.5 is not a whole number (1 to 2097152)");
  CHECK(llama_error(R"({"num_key_value_heads": "8"})") ==
        "config.json: num_key_value_heads: \"8\" is not a whole number (1 to 4096)");
  CHECK(llama_error(R"({"num_key_value_heads": []})") ==
        "config.json: num_key_value_heads: 0 numbers for 32 layers");
  CHECK(llama_error(R"({"tie_word_embeddings": 1})") ==
        "config.json: tie_word_embeddings: 1 is not true or false");
}

TEST_CASE("heads that do not divide are refused") {
  CHECK(llama_error(R"({"num_key_value_heads": 5})") ==
        "config.json: num_key_value_heads: 5 key/value heads do not divide 32 attention heads");
  CHECK(
      llama_error(R"({"num_attention_heads": 30, "num_key_value_heads": 10})") ==
      "config.json: num_attention_heads: 30 heads do not divide the hidden size 4096, and there is "
      "no head_dim");
}

TEST_CASE("the largest model that is believed has fewer than 2^63 bytes of states") {
  const Model model = llama(R"({"num_hidden_layers": 10000, "hidden_size": 262144,
      "num_attention_heads": 4096, "num_key_value_heads": 4096, "head_dim": 2048,
      "intermediate_size": 2097152, "vocab_size": 67108864})");
  // Attention 4 * 2^18 * 2^23, MLP 3 * 2^18 * 2^21 a layer; 1e4 layers: 1.0e17 weights of 18 B.
  CHECK(model.parameters() > 100'000'000'000'000'000);
  CHECK(model.parameters() < INT64_MAX / 18);
}

TEST_CASE("diffusion transformers are read from diffusers' configs") {
  const Model flux = read(R"({"_class_name": "FluxTransformer2DModel", "attention_head_dim": 128,
    "num_attention_heads": 24, "num_layers": 19, "num_single_layers": 38,
    "joint_attention_dim": 4096})");
  CHECK(flux.kind == ModelKind::dit);
  CHECK(flux.layers == 57);
  CHECK(flux.hidden == 3072);
  CHECK(flux.ffn == 12288);
  CHECK(flux.assumed == std::vector<std::string>{"MLP width 4 x hidden (not in the config)"});
  CHECK(flux.parameters() == library().load("FLUX.1-dev", "--model").parameters());

  const Model hunyuan = read(R"({"attention_head_dim": 128, "num_attention_heads": 24,
    "num_layers": 20, "num_single_layers": 40, "mlp_ratio": 4.0})");
  CHECK(hunyuan.parameters() == library().load("hunyuanvideo", "--model").parameters());

  const Model wan = read(R"({"_class_name": "WanModel", "dim": 5120, "ffn_dim": 13824,
    "num_heads": 40, "num_layers": 40, "text_len": 512})");
  CHECK(wan.head_dim == 128);
  CHECK(wan.cross_tokens == 512);
  CHECK(wan.parameters() == library().load("wan2.1-t2v-14b", "--model").parameters());

  const Model z_image = read(R"({"_class_name": "ZImageTransformer2DModel", "dim": 3840,
    "n_heads": 30, "n_kv_heads": 30, "n_layers": 30, "n_refiner_layers": 2})");
  CHECK(z_image.gated_mlp);
  CHECK(z_image.ffn == 10240);

  const Model sana = read(R"({"_class_name": "SanaTransformer2DModel", "attention_head_dim": 32,
    "num_attention_heads": 70, "num_layers": 20})");
  CHECK(sana.not_costed == "linear attention (SanaTransformer2DModel) is not costed yet");
}

TEST_CASE("wrong diffusion configs are refused with file and key") {
  CHECK(error_of(R"({"dim": 4096, "n_layers": 32, "n_heads": 32, "norm_eps": 1e-5})") ==
        "config.json: has the keys of Meta's params.json (dim, n_layers, n_heads); expected those "
        "of a config.json (hidden_size, num_hidden_layers)");
  CHECK(error_of(R"({"heads_num": 24, "num_layers": 2})") ==
        "config.json: key 'attention_head_dim' is missing (or head_dim)");
  CHECK(error_of(R"({"_class_name": "DiT", "num_heads": 7, "dim": 100, "num_layers": 2})") ==
        "config.json: num_heads: 7 heads do not divide the hidden size 100, and there is no "
        "attention_head_dim");
  CHECK(error_of(R"({"heads_num": 2, "attention_head_dim": 64, "num_layers": 3,
                     "double_blocks": 1, "single_blocks": 3})") ==
        "config.json: num_layers: 3 is not 1 double + 3 single layers");
  CHECK(
      error_of(R"({"heads_num": 2, "attention_head_dim": 64, "num_layers": 3, "mlp_ratio": -1})") ==
      "config.json: mlp_ratio: -1 is not an MLP width in hidden sizes (above 0, at most 64)");
  CHECK(error_of(R"({"heads_num": 4096, "attention_head_dim": 2048, "num_layers": 3})") ==
        "config.json: attention_head_dim: 4096 heads of 2048 are wider than 262144");
}

TEST_CASE("a wrapper with an unknown key or kind is refused") {
  const std::string frame = R"("format": "sp-plan/model", "format_version": "1.0", "name": "m", )";
  CHECK_THAT(error_of("{" + frame + R"("kind": "llm", "cofnig": {}})"),
             EndsWith("unknown key 'cofnig' (did you mean 'config'?)"));
  CHECK(error_of("{" + frame + R"("kind": "rnn", "config": {}})") ==
        "config.json: kind: 'rnn' is not 'llm' or 'dit'");
  CHECK(error_of("{" + frame + R"("kind": "llm", "config": {}})") ==
        "config.json: config: key 'hidden_size' is missing (or n_embd, n_embed, d_model)");
}

TEST_CASE("a model is found by name, alias, alias without organisation, and path") {
  const ModelLibrary models = library();
  for (const std::string_view name :
       {"qwen2.5-7b", "Qwen/Qwen2.5-7B", "Qwen2.5-7B", "QWEN2.5-7B"}) {
    CHECK(models.load(name, "--model").name == "qwen2.5-7b");
  }
  const std::string path = test::source_path("models/qwen2.5-7b.json").string();
  CHECK(models.load(path, "--model").q_heads == 28);

  const TempDir folder;
  const std::string config = llama_with("{}").dump();  // as Python may have written it
  (void)folder.write("My-Llama/config.json", R"({"limit": [0.0, Infinity], )" + config.substr(1));
  CHECK(models.load((folder.path() / "My-Llama").string(), "--model").name == "My-Llama");
  CHECK(models.load((folder.path() / "My-Llama/config.json").string(), "--model").name ==
        "My-Llama");
}

TEST_CASE("an unknown model is an error with the nearest name") {
  const ModelLibrary models = library();
  CHECK(message_of<InputError>([&] { (void)models.load("qwen2.5-8b", "--model"); }) ==
        "--model: unknown model 'qwen2.5-8b' (did you mean 'qwen2.5-3b'?)");
  CHECK_THAT(message_of<InputError>([&] { (void)models.load("meta-llama/Llama-2-7b", "m"); }),
             EndsWith("); nothing is downloaded: give the path of its config.json"));
  CHECK(message_of<InputError>([&] { (void)models.load("no/such.json", "--model"); }) ==
        "--model: there is no model file 'no/such.json'");
}

TEST_CASE("two models of one name are refused") {
  const TempDir folder;
  const auto model = [](std::string_view name, std::string_view alias) {
    return fmt::format(R"({{"format": "sp-plan/model", "format_version": "1.0", "name": "{}",
                           "aliases": ["{}"], "kind": "llm", "config": {{}}}})",
                       name, alias);
  };
  (void)folder.write("a.json", model("a", "org/Twin"));
  (void)folder.write("b.json", model("b", "other/twin"));
  const std::string message = message_of<InputError>([&] { (void)ModelLibrary(folder.path()); });
  CHECK_THAT(message, StartsWith((folder.path() / "b.json").string()));
  CHECK_THAT(message,
             EndsWith("the name 'twin' is already that of " + (folder.path() / "a.json").string()));
}

TEST_CASE("a model that is not named after its file is refused") {
  const TempDir folder;
  (void)folder.write("a.json", R"({"format": "sp-plan/model", "format_version": "1.0", "name": "b",
                                   "kind": "llm", "config": {}})");
  CHECK_THAT(message_of<InputError>([&] { (void)ModelLibrary(folder.path()); }),
             EndsWith("a.json: name: 'b' is not the file's name 'a'"));
  CHECK_THAT(message_of<InputError>([&] { (void)ModelLibrary(folder.path() / "none"); }),
             EndsWith("none: is not a folder of models"));
}
