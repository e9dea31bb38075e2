#include "transformer/model_read_family.hpp"

#include "transformer/model_read.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

namespace spp::model_keys {
namespace {

constexpr std::array families{
    Family{.model_type = "llama"},
    Family{.model_type = "mistral", .kv_heads = 8, .window = 4096, .config_class = "MistralConfig"},
    Family{.model_type = "mixtral", .routes = true, .kv_heads = 8, .config_class = "MixtralConfig"},
    Family{.model_type = "phi3"},
    Family{.model_type = "bitnet", .tied = true},
    Family{.model_type = "seed_oss", .attention_bias = true},
    Family{.model_type = "smollm3", .tied = true},
    Family{.model_type = "qwen", .both_halves = true, .attention_bias = true},
    Family{.model_type = "qwen2", .attention_bias = true},
    Family{.model_type = "qwen2_5_vl_text", .attention_bias = true},
    Family{.model_type = "qwen2_vl_text", .attention_bias = true},
    Family{.model_type = "qwen2_5_omni_text", .attention_bias = true},
    Family{.model_type = "qwen3",
           .qk_norm = true,
           .kv_heads = 32,
           .head_dim = 128,
           .config_class = "Qwen3Config"},
    Family{.model_type = "qwen3_vl_text",
           .qk_norm = true,
           .kv_heads = 32,
           .head_dim = 128,
           .config_class = "Qwen3VLTextConfig"},
    Family{.model_type = "qwen2_5_vl", .attention_bias = true},
    Family{.model_type = "qwen2_vl", .attention_bias = true},
    Family{.model_type = "gemma", .tied = true, .head_dim = 256, .config_class = "GemmaConfig"},
    Family{.model_type = "gemma2",  // Gemma2Config: a window in every other layer, the first among
           .branch_norms = true,    // them
           .tied = true,
           .full_every = 2,
           .kv_heads = 4,
           .head_dim = 256,
           .config_class = "Gemma2Config"},
    Family{.model_type = "cohere", .tied = true},
    Family{.model_type = "cohere2", .tied = true},
    Family{.model_type = "minicpm", .tied = true},
    Family{.model_type = "minicpm3", .tied = true},
    Family{.model_type = "exaone", .tied = true},
    Family{.model_type = "granite"},
    Family{.model_type = "molmo", .both_halves = true, .tied = true},
    Family{.model_type = "afmoe",
           .qk_norm = true,
           .branch_norms = true,
           .router_bias = true,
           .attention_gate = true,
           .head_dim = 128,
           .config_class = "AfmoeConfig"},
    Family{.model_type = "olmo2", .qk_norm = true},
    Family{.model_type = "minimax_m2", .qk_norm = true, .routes = true},
    Family{.model_type = "gemma3_text",  // Gemma3TextConfig: sliding_window_pattern 6
           .qk_norm = true,
           .branch_norms = true,
           .tied = true,
           .full_every = 6,
           .q_heads = 8,
           .kv_heads = 4,
           .head_dim = 256,
           .vocab = 262'208,
           .config_class = "Gemma3TextConfig"},
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
    Family{.model_type = "bert", .foreign = "an encoder"},
    Family{.model_type = "roberta", .foreign = "an encoder"},
    Family{.model_type = "xlm-roberta", .foreign = "an encoder"},
    Family{.model_type = "modernbert", .foreign = "an encoder"},
    Family{.model_type = "deberta-v2", .foreign = "an encoder"},
    Family{.model_type = "camembert", .foreign = "an encoder"},
    Family{.model_type = "esm", .foreign = "an encoder"},
    Family{.model_type = "eurobert", .foreign = "an encoder"},
    Family{.model_type = "llada2_moe", .foreign = "a language model by diffusion"},
    Family{.model_type = "brumby", .foreign = "power retention, a linear attention,"},
    Family{.model_type = "jetmoe", .foreign = "a mixture of experts within attention"},
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
    Family{.model_type = "qwen2_moe", .attention_bias = true, .routes = true, .shared_gate = true},
    Family{.model_type = "qwen3_moe",
           .qk_norm = true,
           .routes = true,
           .kv_heads = 4,
           .config_class = "Qwen3MoeConfig"},
    Family{.model_type = "qwen3_vl_moe_text", .qk_norm = true, .routes = true},
    Family{.model_type = "qwen3_omni_moe_text", .qk_norm = true, .routes = true},
    Family{.model_type = "deepseek_v2", .routes = true, .latents = true},
    Family{.model_type = "deepseek_v3",
           .routes = true,
           .latents = true,
           .router_bias = true,
           .q_rank = 1536,
           .dense_layers = 3,
           .config_class = "DeepseekV3Config"},
    Family{.model_type = "kimi_k2", .routes = true, .latents = true, .router_bias = true},
    Family{.model_type = "glm4_moe", .attention_bias = true, .routes = true, .router_bias = true},
    Family{.model_type = "glm4v_moe_text",
           .attention_bias = true,
           .routes = true,
           .router_bias = true},
    Family{.model_type = "mimo", .attention_bias = true},
    Family{.model_type = "gpt_oss",  // its config says silu, its code 1.702, and 7
           .activation = Activation::quick_gelu,
           .activation_limit = 7,
           .attention_bias = true,
           .output_bias = true,
           .routes = true,
           .router_bias = true,
           .expert_bias = true,
           .sinks = true,
           .full_every = 2},
    // Llama4TextConfig: chunks of 8192 tokens, each fourth layer without (and without RoPE).
    Family{.model_type = "llama4_text", .shared_expert = true, .full_every = 4, .chunk = 8192},
    Family{.model_type = "deepseek_v32",
           .routes = true,
           .latents = true,
           .router_bias = true,
           .config_class = "DeepseekV32Config",
           .hybrid = read_indexer},
    Family{.model_type = "glm_moe_dsa",
           .routes = true,
           .latents = true,
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
  const bool gates =
      activation_of(name) == Activation::silu || name.find("glu") != std::string::npos;
  return (older && !gates) || name == "relu2" || name == "xielu";
}

std::string biases_of(const Model& model) {
  if (!model.attention_bias && !model.output_bias) {
    return model.mlp_bias ? "biases of the MLP" : "no biases";
  }
  return fmt::format("biases of {}{}", model.output_bias ? "attention's projections" : "Q, K and V",
                     model.mlp_bias ? " and the MLP" : "");
}

/// Parts of keys' names that may speak of other layers than Llama's; of names that do not: what
/// training has, and windows, whose keys settle each other.
constexpr std::array<std::string_view, 10> telling{"moe",   "expert", "dense", "lora", "window",
                                                   "mamba", "linear", "bias",  "loop", "gate"};
constexpr std::array<std::string_view, 9> harmless{"loss",     "drop",          "init",
                                                   "dtype",    "prob",          "jitter",
                                                   "capacity", "window_layers", "sliding_window"};

bool has_part(const std::string& key, std::span<const std::string_view> parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return key.find(part) != std::string::npos; });
}

/// null, false, 0, an empty list, object or text.
bool says_nothing(const Json& value) {
  return value.is_null() || value == false || value == 0 ||
         (value.is_structured() && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

}  // namespace

Family family_of(const JsonView& config) {
  const auto type = config.find("model_type");
  const std::string name = type ? type->string() : "";
  for (const Family& family : families) {
    if (family.model_type == name) {
      return family;
    }
  }
  return {.gated_mlp = !lacks_gate(config)};
}

void assume_like_llama(const JsonView& config, const std::set<std::string>& asked, Model& model) {
  const auto type = config.find("model_type");
  model.assumed.insert(
      model.assumed.begin(),
      fmt::format("layers like Llama's: {}, RMSNorm, {} ({})",
                  model.gated_mlp ? "gated MLP" : "MLP without a gate", biases_of(model),
                  type ? fmt::format("model_type '{}' is not in the table", type->string())
                       : "no model_type"));
  std::vector<std::string> unread;
  for (const auto& [key, value] : config.members()) {
    if (!asked.contains(key) && has_part(key, telling) && !has_part(key, harmless) &&
        !says_nothing(value.value())) {
      unread.push_back(said_as(value, key));
    }
  }
  if (!unread.empty()) {
    model.assumed.push_back(
        fmt::format("nothing that these keys speak of: {}", fmt::join(unread, ", ")));
  }
}

}  // namespace spp::model_keys
