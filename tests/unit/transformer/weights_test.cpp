// Weights of hybrid models, and of architectures that are not costed: sums by hand over the tensors
// of transformers' modelling code, and what is published of whole checkpoints.
#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "transformer/layer.hpp"
#include "transformer/model.hpp"

#include <string>
#include <vector>

using namespace spp;
using Catch::Matchers::EndsWith;
using spp::test::message_of;

namespace {

Model of_folder(std::string_view name) {
  return ModelLibrary(test::source_path("models")).load(name, "--model");
}

/// A published config with keys changed by a JSON merge patch.
Model patched(std::string_view name, std::string_view patch) {
  const auto file = test::source_path(fmt::format("models/{}.json", name));
  Json config = read_json(file)["config"];
  config.merge_patch(parse_json(patch, "patch"));
  return read_model(config, "config.json");
}

Model from_config(std::string_view text) {
  return read_model(parse_json(text, "config.json"), "config.json");
}

/// "48 linear attention, 16 full attention".
std::string kinds_text(const Model& model) {
  std::string text;
  for (const LayerWeights& kind : layer_weights(model)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind.layers, kind.kind);
  }
  return text;
}

std::string defaults_of(std::string_view config_class, std::string_view what) {
  return fmt::format("{} (not in the config; default of transformers' {})", what, config_class);
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("DeepSeek-V3.2 weighs what V3 does and an indexer in each layer") {
  const Model model = of_folder("deepseek-v3.2");
  const Model v3 = of_folder("deepseek-v3");
  // wq_b 1536*64*128 + wk 7168*128 + k_norm 2*128 + weights_proj 7168*64 = 13,959,424.
  constexpr std::int64_t indexer = 13'959'424;
  CHECK(model.parameters() == v3.parameters() + 61 * indexer);
  CHECK(model.active_parameters() == v3.active_parameters() + 61 * indexer);
  CHECK(model.parameters() == 671'877'944'064);
  CHECK(kinds_text(model) == "3 sparse attention, 58 sparse attention");
  const LayerWeights last = layer_weights(model).back();
  CHECK(last.mask == "causal, 2048 keys");
  CHECK(last.attention == "MLA");
  // The checkpoint on Hugging Face has 685,355,329,792: besides the layer that predicts, with its
  // own two tables, a projection 2*7168 -> 7168 and three norms.
  CHECK(model.parameters() + last.parameters + 2 * model.table_parameters() + 2 * 7168 * 7168 +
            3 * 7168 ==
        685'355'329'792);
  CHECK(model.assumed == Lines{defaults_of("DeepseekV32Config", "index_n_heads 64"),
                               defaults_of("DeepseekV32Config", "index_head_dim 128")});
  CHECK(patched("deepseek-v3.2", R"({"index_n_heads": 32})").parameters() ==
        model.parameters() - 61 * 32 * (1536 * 128 + 7168));
}

TEST_CASE("DeepSeek-V4-Flash weighs the 284 * 10^9 of its report, 13 * 10^9 active") {
  // arXiv:2606.19348. h 4096, 64 heads of 512. In each layer, of DeepseekV4DecoderLayer:
  //   attention  q 4096*1024 + 1024 + 1024*32768, kv 4096*512 + 512, o 8 * 4096*1024 + 8192*4096,
  //              sinks 64                                                     106,956,352
  //   hyper-connections 2 * (24 * 4*4096 + 24 + 3)                                786,486
  //   norms 2*4096; 256 experts and a shared one of 3*4096*2048; gate 256*4096
  //                                                               8,192 + 6,467,616,768 + 1,048,576
  //   compressed sparse: 2*4096*1024 + 4*1024 + 512, in its indexer 2*4096*256 + 4*256 + 128
  //              + 1024*8192 + 4096*64                                         19,142,272
  //   heavily compressed: 2*4096*512 + 128*512 + 512                            4,260,352
  //   correction of the gate's scores, but for the first three layers                 256
  // 43 * 6,576,416,374 + 21 * 19,142,272 + 20 * 4,260,352 + 40 * 256, tables 2 * 129280*4096, final
  // norm 4096, streams joined 4 * 4*4096 + 4 + 1.
  const Model model = of_folder("deepseek-v4-flash");
  CHECK(model.parameters() == 284'332'240'471);
  CHECK(kinds_text(model) ==
        "2 sliding attention, 1 compressed sparse attention, 20 heavily compressed attention, "
        "20 compressed sparse attention");
  const std::vector<LayerWeights> kinds = layer_weights(model);
  CHECK(kinds[0].parameters == 6'576'416'374);
  CHECK(kinds[2].mask == "window:128 and all entries of 128 tokens");
  CHECK(kinds[3].mask == "window:128 and 512 entries of 4 tokens");
  CHECK(kinds[3].attention == "MQA");
  // 43 * 250 experts idle; the report's 13 are without the table of the input.
  CHECK(model.active_parameters() == 284'332'240'471 - 43LL * 250 * 3 * 4096 * 2048);
  CHECK(static_cast<double>(model.active_parameters() - model.table_parameters()) ==
        Catch::Approx(13e9).epsilon(0.03));
  CHECK(model.assumed == Lines{defaults_of("DeepseekV4Config", "compress_rate_csa 4"),
                               defaults_of("DeepseekV4Config", "compress_rate_hca 128")});
}

TEST_CASE("DeepSeek-V4-Pro weighs the 1.6 * 10^12 of its report, 49 * 10^9 active") {
  const Model model = patched("deepseek-v4-flash", R"({"hidden_size": 7168,
      "num_attention_heads": 128, "num_hidden_layers": 61, "n_routed_experts": 384,
      "moe_intermediate_size": 3072, "q_lora_rank": 1536, "o_groups": 16, "index_topk": 1024,
      "compress_ratios": null})");
  CHECK(kinds_text(model) ==
        "3 heavily compressed attention, 29 compressed sparse attention, 29 heavily compressed "
        "attention");
  CHECK(static_cast<double>(model.parameters()) == Catch::Approx(1.6e12).epsilon(0.02));
  CHECK(static_cast<double>(model.active_parameters() - model.table_parameters()) ==
        Catch::Approx(49e9).epsilon(0.01));
}

TEST_CASE("DeepSeek-V4's kinds of layers are read as published now and before, else the class's") {
  const auto three = [](std::string_view ratios, std::string_view types) {
    return patched(
        "deepseek-v4-flash",
        fmt::format(R"({{"num_hidden_layers": 3, "compress_ratios": {}, "layer_types": {}}})",
                    ratios, types));
  };
  const std::string_view kinds = "1 sliding attention, 2 heavily compressed attention";
  CHECK(kinds_text(three("null", R"(["sliding_attention", "heavily_compressed_attention",
                                     "heavily_compressed_attention"])")) == kinds);
  CHECK(kinds_text(three("[0, 128, 128, 0]", "null")) == kinds);
  const Model made = three("null", "null");
  CHECK(kinds_text(made) == "3 heavily compressed attention");
  CHECK(made.assumed.front() ==
        defaults_of("DeepseekV4Config",
                    "2 layers heavily compressed, then these and compressed sparse in turns"));
  const Model unknown = three("null", R"(["full_attention", "a", "b"])");
  CHECK(layer_weights(unknown).empty());
  CHECK(unknown.not_costed == "a mix of layers with full_attention is not costed yet");
  // Layers that predict are like the first of their ratio, or the last where nothing says theirs.
  CHECK(three("[0, 4, 128, 4]", "null").predict_like == 1);
  CHECK_FALSE(three("[0, 4, 128]", "null").predict_like.has_value());
  CHECK(three("[0, 4, 128]", "null").assumed.back() ==
        "layers that predict further tokens are like the last one");
  CHECK(message_of<InputError>([&] { (void)three("[0, 5, 0]", "null"); }) ==
        "config.json: compress_ratios[1]: 5 is not 0, 4 or 128");
  CHECK(message_of<InputError>([&] { (void)three("[0, 4]", "null"); }) ==
        "config.json: compress_ratios: 2 ratios for 3 layers");
}

TEST_CASE("gemma-4-26B-A4B weighs the 25.2 * 10^9 of its card, 3.8 * 10^9 active") {
  // h 2816, 16 heads. Sliding: q and o 2 * 2816*4096, K and V 2 * 2816*2048, norms 2*256:
  // 34,603,520. Full: 2 * 2816*8192, K which is V 2816*1024, norms 2*512:
  // 49,021,952. Beside: MLP 3*2816*2112, 128 experts of 3*2816*704, router 2816*128 + 2816 + 128, 7
  // norms, 1.
  const Model model = of_folder("gemma-4-26b-a4b");
  constexpr std::int64_t expert = 3LL * 2816 * 704;
  constexpr std::int64_t beside =
      3LL * 2816 * 2112 + 128 * expert + 2816 * 128 + 2816 + 128 + 7 * 2816 + 1;
  constexpr std::int64_t sliding = 2LL * 2816 * 4096 + 2LL * 2816 * 2048 + 2 * 256;
  constexpr std::int64_t full = 2LL * 2816 * 8192 + 2816LL * 1024 + 2 * 512;
  CHECK(model.parameters() ==
        25 * (sliding + beside) + 5 * (full + beside) + 262'144LL * 2816 + 2816);
  CHECK(model.active_parameters() == model.parameters() - 30 * 120 * expert);
  CHECK(static_cast<double>(model.parameters()) == Catch::Approx(25.2e9).epsilon(0.005));
  CHECK(static_cast<double>(model.active_parameters()) == Catch::Approx(3.8e9).epsilon(0.01));
  // llama.cpp counts 25,233,142,046 in the text model, of which 256 are RoPE's frequencies.
  CHECK(model.parameters() == 25'233'142'046 - 256);
  CHECK(kinds_text(model) == "25 sliding attention, 5 full attention");
  CHECK(model.not_costed.empty());
  CHECK(layer_weights(model).front().mask == "window:1024");
  CHECK(model.assumed ==
        Lines{defaults_of("Gemma4TextConfig", "full attention in every 6th layer")});
}

TEST_CASE("Gemma 4 with tables of the layers and shared K and V weighs what is loaded") {
  // gemma-4-E4B and E2B as transformers converts them (convert_gemma4_weights.py). llama.cpp counts
  // 7,518,069,290 and 4,647,450,147: besides 256 of RoPE's frequencies, K, V and the norm of K, in
  // the layers that use those of others; no code loads them.
  const Model e4b = from_config(R"({"model_type": "gemma4_text", "hidden_size": 2560,
      "intermediate_size": 10240, "num_hidden_layers": 42, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 262144, "sliding_window": 512,
      "num_kv_shared_layers": 18, "hidden_size_per_layer_input": 256})");
  CHECK(kinds_text(e4b) ==
        "20 sliding attention, 4 full attention, 15 sliding attention, 3 full attention");
  CHECK(e4b.parameters() ==
        7'518'069'290 - 256 - 15 * (2 * 2560 * 512 + 256) - 3 * (2 * 2560 * 1024 + 512));
  CHECK(e4b.tied_embeddings);
  CHECK(e4b.not_costed == "sharing of K and V between layers is not costed yet");
  std::string list;
  for (int i = 1; i <= 35; ++i) {
    list += fmt::format("{}\"{}_attention\"", i == 1 ? "" : ", ", i % 5 == 0 ? "full" : "sliding");
  }
  const Model e2b = from_config(fmt::format(R"({{"model_type": "gemma4_text", "hidden_size": 1536,
      "intermediate_size": 6144, "num_hidden_layers": 35, "num_attention_heads": 8,
      "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144, "layer_types": [{}],
      "sliding_window": 512, "num_kv_shared_layers": 20, "use_double_wide_mlp": true}})",
                                            list));
  CHECK(e2b.parameters() ==
        4'647'450'147 - 256 - 16 * (2 * 1536 * 256 + 256) - 4 * (2 * 1536 * 512 + 512));
  // gemma-4-31B: 30.7 * 10^9 (its card).
  const Model large = from_config(R"({"model_type": "gemma4_text", "hidden_size": 5376,
      "intermediate_size": 21504, "num_hidden_layers": 60, "num_attention_heads": 32,
      "num_key_value_heads": 16, "num_global_key_value_heads": 4, "head_dim": 256,
      "attention_k_eq_v": true, "vocab_size": 262144, "hidden_size_per_layer_input": 0})");
  CHECK(static_cast<double>(large.parameters()) == Catch::Approx(30.7e9).epsilon(0.001));
  CHECK(large.not_costed.empty());
}

TEST_CASE("Qwen3.5-27B weighs 26.9 * 10^9") {
  // h 5120. Linear: in_proj_qkv, _z 5120*(2*2048 + 2*6144), _b, _a 5120*2*48, conv1d 10240*4,
  // A_log, dt_bias 2*48, norm 128, out_proj 6144*5120: 115,876,064; full, 24 heads of 256 with a
  // gate: q 5120*2*6144, K and V 5120*2*1024, o 6144*5120, norms 2*256: 104,858,112. MLP
  // 3*5120*17408, 2 norms.
  const Model model = of_folder("qwen3.5-27b");
  constexpr std::int64_t linear =
      5120LL * (2 * 2048 + 2 * 6144) + 5120 * 96 + 10240 * 4 + 96 + 128 + 6144 * 5120;
  constexpr std::int64_t full = 5120LL * 2 * 6144 + 5120LL * 2 * 1024 + 6144LL * 5120 + 2 * 256;
  constexpr std::int64_t rest = 3LL * 5120 * 17408 + 2 * 5120;
  CHECK(model.parameters() == 48 * linear + 16 * full + 64 * rest + 2 * 248'320LL * 5120 + 5120);
  // What llama.cpp counts in the text model of Qwen3.5-27B.
  CHECK(model.parameters() == 26'895'998'464);
  CHECK(model.active_parameters() == model.parameters());
  CHECK(kinds_text(model) == "48 linear attention, 16 full attention");
  CHECK(layer_weights(model)[0].attention == "none");
  CHECK(layer_weights(model)[1].attention == "GQA");
  CHECK(model.assumed == Lines{defaults_of("Qwen3_5TextConfig", "linear_conv_kernel_dim 4")});
}

TEST_CASE("Qwen3-Next and the large Qwen3.5 weigh what is published of them") {
  // Qwen3-Next-80B-A3B: its checkpoint without the layer that predicts, 79,674,391,296 (that of
  // Qwen3-Coder-Next, which is without one).
  const Model next =
      from_config(R"({"model_type": "qwen3_next", "hidden_size": 2048, "head_dim": 256,
      "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 5120,
      "num_hidden_layers": 48, "vocab_size": 151936, "tie_word_embeddings": false,
      "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 512,
      "num_experts": 512, "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512,
      "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32})");
  CHECK(next.parameters() == 79'674'391'296);
  CHECK(static_cast<double>(next.active_parameters()) == Catch::Approx(3.9e9).epsilon(0.02));
  CHECK(kinds_text(next) == "36 linear attention, 12 full attention");
  CHECK(next.assumed.empty());
  // Qwen3.5-397B-A17B, by its name.
  const Model large = from_config(R"({"model_type": "qwen3_5_moe_text", "hidden_size": 4096,
      "head_dim": 256, "num_attention_heads": 32, "num_key_value_heads": 2,
      "num_hidden_layers": 60, "vocab_size": 248320, "tie_word_embeddings": false,
      "moe_intermediate_size": 1024, "num_experts": 512, "num_experts_per_tok": 10,
      "shared_expert_intermediate_size": 1024, "linear_num_value_heads": 64})");
  CHECK(static_cast<double>(large.parameters()) == Catch::Approx(397e9).epsilon(0.005));
  CHECK(static_cast<double>(large.active_parameters()) == Catch::Approx(17e9).epsilon(0.03));
}

TEST_CASE(
    "Nemotron-3-Nano weighs the 31,577,937,344 of its checkpoint and the gates' corrections") {
  // h 2688. Mamba2, 64 heads of 64 with a state of 128 in 8 groups: in_proj 2688*(4096 + 6144 +
  // 64), conv1d 6144*(4 + 1), A_log, D, dt_bias 3*64, norm 4096, out_proj 4096*2688. Attention
  // 2688*128 * (2*32 + 2*2). Experts 128 * 2*2688*1856, shared 2*2688*3712, gate 2688*128 and 128.
  // A norm each.
  const Model model = of_folder("nemotron-3-nano-30b-a3b");
  constexpr std::int64_t mamba = 2688LL * (4096 + 6144 + 64) + 6144 * 5 + 192 + 4096 + 4096 * 2688;
  constexpr std::int64_t attention = 2688LL * 128 * 68;
  constexpr std::int64_t moe = 128LL * 2 * 2688 * 1856 + 2 * 2688 * 3712 + 2688 * 128 + 128;
  CHECK(model.parameters() ==
        23 * mamba + 6 * attention + 23 * moe + 52 * 2688 + 2 * 131'072LL * 2688 + 2688);
  // total_parameters in model.safetensors.index.json; corrections are no parameters there.
  CHECK(model.parameters() - 23 * 128 == 31'577'937'344);
  // NVIDIA: 3.6 * 10^9 active, 3.2 without the table of the input.
  CHECK(static_cast<double>(model.active_parameters()) == Catch::Approx(3.6e9).epsilon(0.01));
  CHECK(static_cast<double>(model.active_parameters() - model.table_parameters()) ==
        Catch::Approx(3.2e9).epsilon(0.01));
  CHECK(kinds_text(model) == "23 Mamba2, 23 experts, 6 full attention");
  CHECK(layer_weights(model)[0].mlp == "none");
  CHECK(layer_weights(model)[1].attention == "none");
  CHECK(model.assumed == Lines{defaults_of("NemotronHConfig", "chunk_size 128"),
                               defaults_of("NemotronHConfig", "conv_kernel 4"),
                               defaults_of("NemotronHConfig", "use_conv_bias true")});
}

TEST_CASE("Nemotron-H-56B weighs 56 * 10^9") {
  // h 8192. Mamba2, 256 heads of 64 with a state of 256 in 8 groups: in_proj 8192*(16384 + 20480 +
  // 256), conv1d 20480*5, 3*256, norm 16384, out_proj 16384*8192. MLP without a gate 2*8192*32768.
  // Attention 8192*128 * (2*64 + 2*8). A norm each.
  const Model model = of_folder("nemotron-h-56b");
  constexpr std::int64_t mamba =
      8192LL * (16384 + 20480 + 256) + 20480 * 5 + 768 + 16384 + 16384 * 8192;
  CHECK(model.parameters() == 54 * mamba + 54 * (2LL * 8192 * 32768) + 10 * (8192LL * 128 * 144) +
                                  118 * 8192 + 2 * 131'072LL * 8192 + 8192);
  CHECK(static_cast<double>(model.parameters()) == Catch::Approx(56e9).epsilon(0.01));
  CHECK(model.active_parameters() == model.parameters());
  CHECK(kinds_text(model) ==
        "54 Mamba2, 54 MLP, 10 full attention");  // as in arXiv:2504.03624, table 1
}

TEST_CASE("Nemotron's layers are read from letters and from lists, experts on latents too") {
  const auto three = [](std::string_view more) {
    return patched("nemotron-3-nano-30b-a3b", fmt::format(R"({{"num_hidden_layers": 3{}}})", more));
  };
  const Model letters = three(R"(, "hybrid_override_pattern": "ME*")");
  CHECK(kinds_text(letters) == "1 Mamba2, 1 experts, 1 full attention");
  CHECK(three(R"(, "layers_block_type": ["mamba", "moe", "attention"])").parameters() ==
        letters.parameters());
  CHECK(three(R"(, "layer_types": ["linear_attention", "moe", "full_attention"])").parameters() ==
        letters.parameters());
  CHECK(letters.not_costed.empty());
  CHECK(three("").parameters() == 0);
  CHECK(three("").not_costed ==
        "a mix of layers of which nothing says the order (no hybrid_override_pattern) is not "
        "costed yet");
  CHECK(three(R"(, "hybrid_override_pattern": "ME?")").parameters() == 0);
  CHECK(message_of<InputError>([&] { (void)three(R"(, "hybrid_override_pattern": "ME")"); }) ==
        "config.json: hybrid_override_pattern: 2 kinds for 3 layers");
  // Nemotron 3 Super: 120 * 10^9 (its name, 120B-A12B).
  const Model super = from_config(R"({"model_type": "nemotron_h", "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
      "intermediate_size": 2688, "num_hidden_layers": 88, "vocab_size": 131072,
      "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
      "n_routed_experts": 512, "num_experts_per_tok": 22, "moe_intermediate_size": 2688,
      "moe_shared_expert_intermediate_size": 5376, "moe_latent_size": 1024,
      "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8})");
  CHECK(static_cast<double>(super.parameters()) == Catch::Approx(120e9).epsilon(0.01));
  CHECK(static_cast<double>(super.active_parameters()) == Catch::Approx(12e9).epsilon(0.07));
}

TEST_CASE("architectures of sparse attention are known whatever their config leaves out") {
  CHECK(patched("deepseek-v3.2", R"({"index_topk": null})").indexer ==
        Indexer{.heads = 64, .dim = 128, .keys = 2048});
  CHECK(patched("deepseek-v3.2", R"({"q_lora_rank": null})").not_costed ==
        "sparse attention without q_lora_rank is not costed yet");
  CHECK(patched("deepseek-v3.2", R"({"indexer_types": ["full", "shared"]})").not_costed ==
        "sharing of indexers between layers is not costed yet");
  CHECK(patched("deepseek-v3.2", R"({"moe_layer_freq": 2})").parameters() == 0);
}

TEST_CASE("GLM-5 weighs the 744 * 10^9 that it is published with, 40 * 10^9 active") {
  const Model model = from_config(R"({"model_type": "glm_moe_dsa", "hidden_size": 6144,
      "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 12288,
      "num_hidden_layers": 78, "vocab_size": 154880, "n_routed_experts": 256,
      "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
      "first_k_dense_replace": 3, "q_lora_rank": 2048, "kv_lora_rank": 512,
      "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "index_n_heads": 32,
      "index_head_dim": 128, "index_topk": 2048, "tie_word_embeddings": false})");
  CHECK(static_cast<double>(model.parameters()) == Catch::Approx(744e9).epsilon(0.005));
  CHECK(static_cast<double>(model.active_parameters()) == Catch::Approx(40e9).epsilon(0.05));
}

TEST_CASE("kinds of layers of our frame that no order makes are refused") {
  Json document = read_json(test::source_path("models/qwen3.5-27b.json"));
  document["config"]["full_attention_interval"] = 8;
  CHECK_THAT(message_of<InputError>([&] { (void)read_model(document, "ours.json"); }),
             EndsWith("layer_types_count.linear_attention: each 8th of 64 layers makes 56"));
}

TEST_CASE("more weights than is believed are refused where they are counted, too") {
  CHECK_THAT(message_of<InputError>([] {
               (void)patched("gemma-4-26b-a4b", R"({"top_k_experts": null,
                   "hidden_size": 262144, "num_experts": 16384,
                   "moe_intermediate_size": 2097152, "num_hidden_layers": 10000})");
             }),
             EndsWith("weights are more than is believed"));
}
