#include "transformer/model_read_kinds.hpp"

#include "base/error.hpp"
#include "transformer/model_read.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
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
std::optional<std::int64_t> active_window(const JsonView& config, const Model& model) {
  const auto window = config.find("sliding_window");
  if (!window || window->value() == 0 || !flag(config, "use_sliding_window", !is_qwen(config))) {
    return std::nullopt;
  }
  const std::int64_t tokens = window->integer(1, most_tokens);
  if (model.max_positions > 0 && tokens >= model.max_positions) {
    return std::nullopt;
  }
  return tokens;
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

/// What says of some layers that they are of kinds which only the code of their makers knows.
inline constexpr std::array<std::string_view, 18> foreign_layers{"attn_type_list",
                                                                 "linear_attn_config",
                                                                 "hybrid_layer_pattern",
                                                                 "cross_attention_layers",
                                                                 "global_attn_every_n_layers",
                                                                 "attn_layer_indices",
                                                                 "full_attn_idxs",
                                                                 "sliding_window_layout",
                                                                 "attention_types",
                                                                 "dense_attention_every_n_layers",
                                                                 "mixer_types",
                                                                 "sparse_config",
                                                                 "attn_mode",
                                                                 "block_types",
                                                                 "_block_types",
                                                                 "lru_width",
                                                                 "state_size",
                                                                 "ssm_cfg"};

/// MiniMax lists 1 for attention, 0 for linear attention; M2 has the first alone.
bool says_kinds(const JsonView& config, std::string_view key) {
  const auto said = config.find(key);
  if (!said || key != "attn_type_list" || !said->value().is_array()) {
    return said.has_value();
  }
  const Json& kinds = said->value();
  return !std::all_of(kinds.begin(), kinds.end(), [](const Json& kind) { return kind == 1; });
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
  // Granite 4.0 has the sizes of state-space layers where its list of kinds has none of them, too.
  if (kinds.empty() && find_any(config, {"ssm_state_size", "mamba_num_heads", "mamba_d_state",
                                         "attn_layer_period", "block_configs"})) {
    return "a mix of layers (state-space or one by one)";
  }
  const auto foreign = std::ranges::find_if(
      foreign_layers, [&](std::string_view key) { return says_kinds(config, key); });
  if (foreign != foreign_layers.end()) {
    return fmt::format("a mix of layers ({})", *foreign);
  }
  return std::nullopt;
}

/// Keys of layers that only the code of their makers knows, and what they have.
struct ForeignPart {
  std::string_view key, what;
  double above = -1;  // as a number it says so from here on; false never does
};
inline constexpr std::array foreign_parts{
    ForeignPart{"zero_expert_num",
                "two attentions and MLPs a layer beside experts, some of which are none"},
    ForeignPart{"share_q_dim", "attention whose queries come from a shared latent"},
    ForeignPart{"num_attention_groups", "attention in groups (num_attention_groups)"},
    ForeignPart{"parallel_attn_mlp_res", "an MLP beside all experts (parallel_attn_mlp_res)"},
    ForeignPart{"residual_moe", "an MLP beside all experts (residual_moe)"},
    ForeignPart{"moe_config", "experts that an object of its own describes (moe_config)"},
    ForeignPart{"attn_config", "attention that an object of its own describes (attn_config)"},
    ForeignPart{"ffn_config", "an MLP that an object of its own describes (ffn_config)"},
    ForeignPart{"layer_group_size", "a mix of layers (layer_group_size)", 1},
    ForeignPart{"altup_num_inputs", "alternating updates (altup_num_inputs)", 0},
    ForeignPart{"num_attention_heads_per_layer",
                "attention of different shape from layer to layer"},
    ForeignPart{"use_cla", "layers that use the keys of others (use_cla)", 0}};

bool has(const JsonView& config, const ForeignPart& part) {
  const auto said = config.find(part.key);
  if (!said || said->value() == false) {
    return false;
  }
  return !said->value().is_number() || said->number() > part.above;
}

/// Its attention looks both ways. Gemma 4 says "vision" where only the tokens of an image do.
bool is_encoder(const JsonView& config, const JsonView& outer, const Family& family) {
  const auto both_ways = config.find("use_bidirectional_attention");
  if (both_ways && (both_ways->value() == true || both_ways->value() == "all")) {
    return true;
  }
  const auto architectures = outer.find("architectures");
  const auto masked = [](const Json& name) {
    return name.is_string() && name.get_ref<const std::string&>().ends_with("ForMaskedLM");
  };
  return family.encoder || (architectures && std::ranges::any_of(architectures->value(), masked));
}

}  // namespace

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
  } else if (is_encoder(config, outer, family)) {
    reasons.emplace_back("an encoder");
  }
  const auto part =
      std::ranges::find_if(foreign_parts, [&](const ForeignPart& p) { return has(config, p); });
  if (part != foreign_parts.end()) {
    reasons.emplace_back(part->what);
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
  if (const auto window = active_window(config, model)) {
    see_window(config, *window, model);
  }
  if (const auto chunk = config.find("attention_chunk_size")) {
    return fmt::format("chunked attention ({} tokens)", chunk->integer(1, most_tokens));
  }
  return std::nullopt;
}

}  // namespace spp::model_keys
