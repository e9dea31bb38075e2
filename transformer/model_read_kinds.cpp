#include "transformer/model_read_kinds.hpp"

#include "base/error.hpp"
#include "transformer/model_read.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

namespace spp::model_keys {
namespace {

/// How often each word occurs: "48 linear_attention, 16 full_attention".
std::string counted(const std::map<std::string, std::int64_t>& words) {
  std::vector<std::pair<std::int64_t, std::string>> order;
  order.reserve(words.size());
  for (const auto& [word, count] : words) {
    order.emplace_back(-count, word);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> parts;
  parts.reserve(order.size());
  for (const auto& [count, word] : order) {
    parts.push_back(fmt::format("{} {}", -count, word));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Kinds of layers with their number, from a published list or from our wrapper's count.
std::map<std::string, std::int64_t> layer_kinds(const JsonView& config,
                                                const std::optional<JsonView>& wrapper) {
  std::map<std::string, std::int64_t> kinds;
  if (const auto list = find_any(config, {"layer_types", "layers_block_type"})) {
    for (const JsonView& layer : list->elements()) {
      ++kinds[layer.string()];
    }
  } else if (const auto count = wrapper ? wrapper->find("layer_types_count") : std::nullopt) {
    if (!count->value().is_object()) {
      count->fail("is not an object of kind: number of layers");
    }
    for (const auto& [kind, layers] : count->members()) {
      kinds[kind] = layers.integer(1, most_layers);
    }
  }
  return kinds;
}

/// Qwen2Config and Qwen3Config switch their window on, and have it from a layer on.
bool is_qwen(const JsonView& config) {
  const auto type = config.find("model_type");
  return type && type->string().starts_with("qwen");
}

/// One window for all layers that have one; none if it is switched off or wider than the positions.
std::optional<std::int64_t> active_window(const JsonView& config, const Family& family,
                                          Model& model) {
  const auto within_positions = [&](std::int64_t tokens) {
    return model.max_positions > 0 && tokens >= model.max_positions ? std::nullopt
                                                                    : std::optional(tokens);
  };
  if (family.window > 0 && !config.value().contains("sliding_window")) {
    assume_default(fmt::format("sliding_window {}", family.window), family.config_class, model);
    return within_positions(family.window);
  }
  const auto window = config.find("sliding_window");
  if (!window || window->value() == 0 || !flag(config, "use_sliding_window", !is_qwen(config))) {
    return std::nullopt;
  }
  return within_positions(window->integer(1, most_tokens));
}

bool sees_everything(const std::string& kind) {
  return kind == "full_attention" || kind == "attention";
}
bool sees_a_part(const std::string& kind) {
  return kind == "sliding_attention" || kind == "chunked_attention";
}

/// Each so many-th layer sees everything, the others a part; 0: not so.
std::int64_t full_every(const JsonView& config, const Family& family) {
  const auto pattern = config.find("sliding_window_pattern");
  return pattern && pattern->value().is_number() ? pattern->integer(1, most_layers)
                                                 : family.full_every;
}

/// Which layers see a part only, and what; nothing where no layer does. A reason where the order of
/// the kinds is not known.
std::optional<std::string> narrow_layers(const JsonView& config, const Family& family,
                                         const std::map<std::string, std::int64_t>& kinds,
                                         Model& model) {
  const auto list = find_any(config, {"layer_types", "layers_block_type"});
  std::vector<bool> narrow;
  if (list) {
    for (const JsonView& layer : list->elements()) {
      narrow.push_back(sees_a_part(layer.string()));
    }
  } else if (const auto pattern = config.find("sliding_window_pattern");
             pattern && pattern->value().is_string()) {
    return fmt::format("a mix of layers (sliding_window_pattern {})", pattern->string());
  } else if (const std::int64_t every = full_every(config, family); every > 1) {
    for (std::int64_t i = 0; i < model.layers; ++i) {
      narrow.push_back((i + 1) % every != 0);
    }
  }
  if (list && static_cast<std::int64_t>(narrow.size()) != model.layers) {
    list->fail(fmt::format("{} kinds for {} layers", narrow.size(), model.layers));
  }
  const auto number = std::count(narrow.begin(), narrow.end(), true);
  std::int64_t said = 0;
  for (const auto& [kind, count] : kinds) {
    said += sees_a_part(kind) ? count : 0;
  }
  if (!kinds.empty() && said != number) {
    return fmt::format("a mix of layers ({})", counted(kinds));
  }
  if (number == 0) {
    return std::nullopt;
  }
  const auto chunk = config.find("attention_chunk_size");
  const bool no_chunks = !chunk && config.value().contains("attention_chunk_size");
  if (no_chunks && family.chunk > 0) {
    return std::nullopt;  // a null: all layers see everything
  }
  if (chunk || family.chunk > 0) {
    const std::int64_t tokens = chunk ? chunk->integer(1, most_tokens) : family.chunk;
    if (number == model.layers) {  // a model's own mask has no chunks
      return fmt::format("chunked attention ({} tokens)", tokens);
    }
    model.narrow_mask = {.kind = MaskKind::causal, .chunk = tokens};
  } else {
    model.narrow_mask = {.kind = MaskKind::window,
                         .window = need_any(config, {"sliding_window"}).integer(1, most_tokens)};
  }
  if (number == model.layers) {
    model.mask = model.narrow_mask;
  } else {
    model.narrow_layers = std::move(narrow);
  }
  return std::nullopt;
}

/// All layers, or those from max_window_layers on.
void see_window(const JsonView& config, std::int64_t window, Model& model) {
  constexpr std::int64_t usual = 28;  // Qwen2Config
  const auto said = config.find("max_window_layers");
  const std::int64_t first = !is_qwen(config) ? 0 : said ? said->integer(0, most_layers) : usual;
  const LayerMask mask{.kind = MaskKind::window, .window = window};
  if (first == 0) {
    model.mask = mask;
  } else if (first < model.layers) {
    model.narrow_mask = mask;
    for (std::int64_t i = 0; i < model.layers; ++i) {
      model.narrow_layers.push_back(i >= first);
    }
  }
}

/// Keys of layers that only the code of their makers knows, and what they have, which is singular:
/// a sentence goes on with "is".
struct ForeignPart {
  std::string_view key, what;
  double above = -1;           // as a number it says so from here on; false never does
  bool unless_listed = false;  // not where a list of the layers' kinds has none of them
};

constexpr std::string_view mix = "a mix of layers";
constexpr std::string_view linear_attention = "linear attention";
constexpr std::string_view state_space = "state-space mixing";
inline constexpr std::array foreign_layers{
    ForeignPart{"attn_type_list", mix}, ForeignPart{"linear_attn_config", mix},
    ForeignPart{"hybrid_layer_pattern", mix}, ForeignPart{"cross_attention_layers", mix},
    ForeignPart{"global_attn_every_n_layers", mix, 1, true}, ForeignPart{"attn_layer_indices", mix},
    ForeignPart{"full_attn_idxs", mix}, ForeignPart{"sliding_window_layout", mix},
    ForeignPart{"attention_types", mix},
    ForeignPart{"dense_attention_every_n_layers", mix, 1, true}, ForeignPart{"mixer_types", mix},
    ForeignPart{"sparse_config", "sparse attention"}, ForeignPart{"block_types", mix},
    ForeignPart{"_block_types", mix}, ForeignPart{"attn_layer_period", mix, -1, true},
    ForeignPart{"block_configs", "a shape of its own for each layer", -1, true},
    ForeignPart{"lru_width", "a linear recurrence"}, ForeignPart{"state_size", state_space},
    ForeignPart{"ssm_cfg", state_space},
    // Granite 4.0 has these sizes where its list of kinds has no such layers, too.
    ForeignPart{"ssm_state_size", state_space, -1, true},
    ForeignPart{"mamba_num_heads", state_space, -1, true},
    ForeignPart{"mamba_d_state", state_space, -1, true}, ForeignPart{"attn_mode", linear_attention},
    ForeignPart{"expand_k", linear_attention},
    ForeignPart{"attention_hidden_size", linear_attention},
    ForeignPart{"decay_low_rank_dim", linear_attention},
    ForeignPart{"qk_dim_factor", linear_attention}};

inline constexpr std::array foreign_parts{
    ForeignPart{"zero_expert_num",
                "a layer of two attentions and MLPs beside experts, some of which are none"},
    ForeignPart{"share_q_dim", "attention whose queries come from a shared latent"},
    ForeignPart{"num_attention_groups", "attention in groups"},
    ForeignPart{"parallel_attn_mlp_res", "an MLP beside all experts"},
    ForeignPart{"residual_moe", "an MLP beside all experts"},
    ForeignPart{"moe_config", "a mixture of experts that an object of its own describes"},
    ForeignPart{"attn_config", "attention that an object of its own describes"},
    ForeignPart{"ffn_config", "an MLP that an object of its own describes"},
    ForeignPart{"layer_group_size", mix, 1},
    ForeignPart{"altup_num_inputs", "an alternating update of several streams", 0},
    ForeignPart{"num_attention_heads_per_layer",
                "attention of different shape from layer to layer"},
    ForeignPart{"use_cla", "sharing of K and V between layers", 0},
    ForeignPart{"total_ut_steps", "a stack of layers that runs several times", 1},
    ForeignPart{"num_loops", "a stack of layers that runs several times", 1}};

bool has(const JsonView& config, const ForeignPart& part) {
  const auto said = config.find(part.key);
  if (!said || said->value() == false) {
    return false;
  }
  if (part.key == "attn_type_list" && said->value().is_array()) {
    // MiniMax lists 1 for attention, 0 for linear attention; M2 has the first alone.
    return !std::ranges::all_of(said->value(), [](const Json& kind) { return kind == 1; });
  }
  return !said->value().is_number() || said->number() > part.above;
}

/// Of the first of `parts` that the config has.
std::optional<std::string> reason_of(const JsonView& config, std::span<const ForeignPart> parts,
                                     bool listed) {
  for (const ForeignPart& part : parts) {
    if (!(part.unless_listed && listed) && has(config, part)) {
      return fmt::format("{} ({})", part.what, said_as(config.at(part.key), part.key));
    }
  }
  return std::nullopt;
}

/// That layers are of several kinds, or of one that is not attention and an MLP or experts.
std::optional<std::string> foreign_mix(const JsonView& config,
                                       const std::optional<JsonView>& wrapper) {
  if (const auto pattern = hybrid_pattern(config, wrapper)) {
    std::map<std::string, std::int64_t> letters;
    for (const char c : pattern->string()) {
      ++letters[c == 'M'   ? "Mamba"
                : c == '*' ? "attention"
                : c == '-' ? "MLP"
                : c == 'E' ? "expert"
                           : "other"];
    }
    return fmt::format("a mix of layers ({})", counted(letters));
  }
  const auto kinds = layer_kinds(config, wrapper);
  const bool known = std::all_of(kinds.begin(), kinds.end(), [](const auto& kind) {
    return sees_everything(kind.first) || sees_a_part(kind.first);
  });
  if (!known) {
    return fmt::format("a mix of layers ({})", counted(kinds));
  }
  if (const auto interval = config.find("full_attention_interval");
      interval && interval->integer(1, most_layers) > 1) {
    return fmt::format("a mix of layers (full attention every {} layers)",
                       interval->integer(1, most_layers));
  }
  return reason_of(config, foreign_layers, !kinds.empty());
}

}  // namespace

std::optional<std::string> looks_both_ways(const JsonView& config, const JsonView& outer) {
  // Gemma 4 says "vision" where only the tokens of an image do.
  const auto both_ways = config.find("use_bidirectional_attention");
  const auto architectures = outer.find("architectures");
  const auto masked = [](const Json& name) {
    return name.is_string() && name.get_ref<const std::string&>().ends_with("ForMaskedLM");
  };
  if ((both_ways && (both_ways->value() == true || both_ways->value() == "all")) ||
      (architectures && std::ranges::any_of(architectures->value(), masked))) {
    return "an encoder";
  }
  if (!flag(config, "is_causal", true)) {
    return "attention that looks both ways (is_causal false)";
  }
  if (const auto filled_in = config.find("mask_token_id")) {
    return fmt::format("a model that fills in masked tokens ({})",
                       said_as(*filled_in, "mask_token_id"));
  }
  return std::nullopt;
}

std::vector<std::string> reasons_by_keys(const JsonView& config,
                                         const std::optional<JsonView>& wrapper,
                                         const JsonView& outer, const Family& family) {
  std::vector<std::string> reasons;
  if (family.hybrid == nullptr) {
    if (auto mix = foreign_mix(config, wrapper)) {
      reasons.push_back(std::move(*mix));
    }
    if (const auto topk = config.find("index_topk")) {
      reasons.push_back(
          fmt::format("sparse attention (index_topk {})", topk->integer(1, most_tokens)));
    }
  }
  if (flag(config, "is_encoder_decoder")) {
    reasons.emplace_back("an encoder with a decoder");
  } else if (!family.foreign.empty()) {
    reasons.emplace_back(family.foreign);
  } else if (auto both_ways = looks_both_ways(config, outer)) {
    reasons.push_back(std::move(*both_ways));
  }
  if (auto part = reason_of(config, foreign_parts, false)) {
    reasons.push_back(std::move(*part));
  }
  return reasons;
}

std::optional<std::string> read_masks(const JsonView& config,
                                      const std::optional<JsonView>& wrapper, const Family& family,
                                      Model& model) {
  const auto kinds = layer_kinds(config, wrapper);
  if (auto reason = narrow_layers(config, family, kinds, model)) {
    return reason;
  }
  if (!kinds.empty() || full_every(config, family) > 0) {
    return std::nullopt;
  }
  if (const auto window = active_window(config, family, model)) {
    see_window(config, *window, model);
  }
  if (const auto chunk = config.find("attention_chunk_size")) {
    return fmt::format("chunked attention ({} tokens)", chunk->integer(1, most_tokens));
  }
  return std::nullopt;
}

}  // namespace spp::model_keys
