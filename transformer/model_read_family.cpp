#include "transformer/model_read_family.hpp"

#include "transformer/model_read.hpp"

#include <array>
#include <string>

namespace spp::model_keys {
namespace {

constexpr std::array families{
    Family{.model_type = "llama"},
    Family{.model_type = "mistral"},
    Family{.model_type = "mixtral"},
    Family{.model_type = "phi3"},
    Family{.model_type = "bitnet", .tied = true},
    Family{.model_type = "seed_oss", .attention_bias = true},
    Family{.model_type = "smollm3", .tied = true},
    Family{.model_type = "qwen", .both_halves = true, .attention_bias = true},
    Family{.model_type = "qwen2", .attention_bias = true},
    Family{.model_type = "qwen2_5_vl_text", .attention_bias = true},
    Family{.model_type = "qwen2_vl_text", .attention_bias = true},
    Family{.model_type = "qwen3", .qk_norm = true},
    Family{.model_type = "qwen3_vl_text", .qk_norm = true},
    Family{.model_type = "qwen2_5_vl", .attention_bias = true},
    Family{.model_type = "qwen2_vl", .attention_bias = true},
    Family{.model_type = "gemma", .tied = true},
    Family{.model_type = "gemma2",  // Gemma2Config: a window in every other layer, the first among
           .branch_norms = true,    // them
           .tied = true,
           .full_every = 2},
    Family{.model_type = "cohere", .tied = true},
    Family{.model_type = "olmo2", .qk_norm = true},
    Family{.model_type = "minimax_m2", .qk_norm = true},
    Family{.model_type = "gemma3_text",  // Gemma3TextConfig: sliding_window_pattern 6
           .qk_norm = true,
           .branch_norms = true,
           .tied = true,
           .full_every = 6,
           .q_heads = 8,
           .kv_heads = 4,
           .head_dim = 256,
           .vocab = 262'208},
    Family{.model_type = "gpt2",
           .gated_mlp = false,
           .attention_bias = true,
           .output_bias = true,
           .mlp_bias = true,
           .norm_bias = true,
           .tied = true,
           .learned_positions = true},
    Family{.model_type = "gpt_bigcode",
           .gated_mlp = false,
           .attention_bias = true,
           .output_bias = true,
           .mlp_bias = true,
           .norm_bias = true,
           .tied = true,
           .learned_positions = true},
    Family{.model_type = "gptj", .gated_mlp = false, .mlp_bias = true, .norm_bias = true},
    Family{.model_type = "codegen", .gated_mlp = false, .mlp_bias = true, .norm_bias = true},
    Family{.model_type = "opt",
           .gated_mlp = false,
           .attention_bias = true,
           .output_bias = true,
           .mlp_bias = true,
           .norm_bias = true,
           .tied = true,
           .learned_positions = true},
    Family{.model_type = "phi",
           .gated_mlp = false,
           .attention_bias = true,
           .output_bias = true,
           .mlp_bias = true,
           .norm_bias = true},
    Family{.model_type = "bloom",
           .gated_mlp = false,
           .attention_bias = true,
           .output_bias = true,
           .mlp_bias = true,
           .norm_bias = true,
           .tied = true,
           .four_times = true},
    Family{.model_type = "falcon",
           .gated_mlp = false,
           .norm_bias = true,
           .tied = true,
           .four_times = true},
    Family{.model_type = "bert", .encoder = true},
    Family{.model_type = "roberta", .encoder = true},
    Family{.model_type = "xlm-roberta", .encoder = true},
    Family{.model_type = "modernbert", .encoder = true},
    Family{.model_type = "deberta-v2", .encoder = true},
    Family{.model_type = "camembert", .encoder = true},
    Family{.model_type = "esm", .encoder = true},
    Family{.model_type = "gpt_neox",
           .gated_mlp = false,
           .attention_bias = true,
           .output_bias = true,
           .mlp_bias = true,
           .norm_bias = true},
    Family{.model_type = "starcoder2",
           .gated_mlp = false,
           .attention_bias = true,
           .output_bias = true,
           .mlp_bias = true,
           .norm_bias = true,
           .tied = true},
    Family{.model_type = "nemotron", .gated_mlp = false, .norm_bias = true},
    Family{.model_type = "apertus", .gated_mlp = false, .qk_norm = true},
    Family{.model_type = "chatglm", .attention_bias = true},
    Family{.model_type = "qwen2_moe", .attention_bias = true, .shared_gate = true},
    Family{.model_type = "qwen3_moe", .qk_norm = true},
    Family{.model_type = "deepseek_v2"},
    Family{.model_type = "deepseek_v3", .router_bias = true},
    Family{.model_type = "kimi_k2", .router_bias = true},
    Family{.model_type = "glm4_moe", .attention_bias = true, .router_bias = true},
    Family{.model_type = "gpt_oss",  // its config says silu, its code 1.702, and 7
           .activation = Activation::quick_gelu,
           .activation_limit = 7,
           .attention_bias = true,
           .output_bias = true,
           .router_bias = true,
           .expert_bias = true,
           .sinks = true,
           .full_every = 2},
    // Llama4TextConfig: chunks of 8192 tokens, each fourth layer without (and without RoPE).
    Family{.model_type = "llama4_text", .shared_expert = true, .full_every = 4, .chunk = 8192},
    Family{.model_type = "deepseek_v32",
           .router_bias = true,
           .config_class = "DeepseekV32Config",
           .hybrid = read_indexer},
    Family{.model_type = "glm_moe_dsa",
           .router_bias = true,
           .config_class = "GlmMoeDsaConfig",
           .hybrid = read_indexer},
    Family{.model_type = "deepseek_v4",
           .router_bias = true,
           .sinks = true,
           .config_class = "DeepseekV4Config",
           .hybrid = read_compressed},
    Family{.model_type = "gemma4_text",
           .qk_norm = true,
           .branch_norms = true,
           .tied = true,
           .config_class = "Gemma4TextConfig",
           .count = count_two_shapes,
           .hybrid = read_two_shapes},
    Family{.model_type = "nemotron_h",
           .gated_mlp = false,
           .router_bias = true,
           .config_class = "NemotronHConfig",
           .hybrid = read_one_by_one},
    Family{.model_type = "qwen3_next",
           .qk_norm = true,
           .config_class = "Qwen3NextConfig",
           .hybrid = read_gated_delta},
    Family{.model_type = "qwen3_5_text",
           .qk_norm = true,
           .config_class = "Qwen3_5TextConfig",
           .hybrid = read_gated_delta},
    Family{.model_type = "qwen3_5_moe_text",
           .qk_norm = true,
           .config_class = "Qwen3_5MoeTextConfig",
           .hybrid = read_gated_delta},
};

/// What configs of before Llama have, and activations that come without a gate.
bool lacks_gate(const JsonView& config) {
  const std::string name = activation_name(config);
  const bool older = find_any(config, {"activation_function", "n_embd"}).has_value();
  return (older && name.find("glu") == std::string::npos) || name == "relu2" || name == "xielu";
}

}  // namespace

Family family_of(const JsonView& config, Model& model) {
  const auto type = config.find("model_type");
  const std::string name = type ? type->string() : "";
  for (const Family& family : families) {
    if (family.model_type == name) {
      return family;
    }
  }
  const Family other{.gated_mlp = !lacks_gate(config)};
  model.assumed.push_back(fmt::format(
      "layers like Llama's: {}, RMSNorm, no biases ({})",
      other.gated_mlp ? "gated MLP" : "MLP without a gate",
      name.empty() ? "no model_type" : fmt::format("model_type '{}' is not in the table", name)));
  return other;
}

}  // namespace spp::model_keys
