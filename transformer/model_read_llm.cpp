// Decoders, whatever their layers: one reader, hence one file. What a config leaves to the code of
// its model_type: model_read_family.cpp. What layers see: model_read_kinds.cpp. What layers of
// attention and MLP or experts cannot express becomes a reason not to cost the model.
#include "base/error.hpp"
#include "transformer/model_read.hpp"
#include "transformer/model_read_family.hpp"
#include "transformer/model_read_heads.hpp"
#include "transformer/model_read_kinds.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace spp::model_keys {
namespace {

constexpr std::array<std::string_view, 5> mlp_widths{"intermediate_size", "n_inner", "ffn_dim",
                                                     "ffn_hidden_size", "d_ff"};
constexpr std::array<std::string_view, 2> expert_widths{"moe_intermediate_size",
                                                        "moe_ffn_hidden_size"};

/// By layer, whether it has an MLP; nothing where no list says it. Behind those of the layers there
/// may be kinds of such that predict.
std::optional<std::vector<bool>> dense_by_layer(const JsonView& config, std::int64_t layers) {
  const auto kinds = find_any(config, {"mlp_layer_types", "is_moe_layer"});
  if (!kinds) {
    return std::nullopt;
  }
  std::vector<bool> dense;
  for (const JsonView& kind : kinds->elements()) {
    dense.push_back(kind.value().is_boolean() ? !kind.boolean() : kind.string() == "dense");
  }
  if (std::cmp_less(dense.size(), layers)) {
    kinds->fail(fmt::format("{} kinds for {} layers", dense.size(), layers));
  }
  dense.resize(static_cast<std::size_t>(layers));
  return dense;
}

/// Which layers have experts: behind the first ones all, or each so many-th. A reason for others.
std::optional<std::string> read_expert_layers(const JsonView& config, const Family& family,
                                              Model& model) {
  const std::int64_t layers = model.layers;
  Experts& experts = model.experts;
  const auto first_dense = find_any(config, {"first_k_dense_replace", "moe_layer_start_index",
                                             "num_dense_layers", "moe_layer_num_skipped"});
  if (first_dense) {
    experts.dense_layers = first_dense->integer(0, most_layers);
  } else if (family.dense_layers > 0) {
    experts.dense_layers = std::min(family.dense_layers, layers);
    assume_default(fmt::format("first_k_dense_replace {}", family.dense_layers),
                   family.config_class, model);
  }
  if (const auto step = find_any(
          config, {"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"})) {
    experts.every = step->integer(1, most_layers);
  }
  bool mixed = false;
  const auto dense = dense_by_layer(config, layers);
  if (dense) {
    const auto first = std::find(dense->begin(), dense->end(), false);
    experts.dense_layers = first - dense->begin();
    mixed = std::find(first, dense->end(), true) != dense->end();
  }
  const auto at_ends = config.find("first_last_k_dense_replace");  // K-EXAONE, beside a list
  if (at_ends && !dense && !first_dense && at_ends->integer(0, most_layers) > 0) {
    mixed = true;
  }
  const auto last = config.find("moe_layer_end_index");
  const bool ends = last && last->value() != -1 && last->integer(0, most_layers) + 1 < layers;
  if (experts_uneven(config) || ends || mixed) {
    return fmt::format("a mixture of experts in some layers only ({} experts)", experts.count);
  }
  return std::nullopt;
}

void read_experts(const JsonView& config, const Family& family, Model& model,
                  std::vector<std::string>& reasons) {
  const auto count = find_any(config, expert_counts);
  const auto text = experts(config, model.layers);
  if (!count && family.routes) {
    need_any(config, expert_counts);
  }
  if (!count && find_any(config, expert_widths)) {
    reasons.emplace_back("a mixture of experts without their number");
  }
  if (!text) {
    if (const auto only = config.find("shared_intermediate_size")) {  // Granite 4.0's dense ones
      model.ffn = only->integer(1, most_ffn);
    }
    return;
  }
  const auto top = find_any(config, experts_per_token);
  const PerLayer number = per_layer(*count, most_experts, model.layers);
  if (!top || number.varies() || per_layer(*top, most_experts, model.layers).varies()) {
    reasons.push_back(top ? *text : *text + " without num_experts_per_tok");
    return;
  }
  Experts& e = model.experts;
  e.count = static_cast<int>(number.value);
  e.per_token = static_cast<int>(per_layer(*top, number.value, model.layers).value);
  const auto ffn = find_any(config, expert_widths);
  const PerLayer wide = ffn ? per_layer(*ffn, most_ffn, model.layers)
                            : PerLayer{.value = model.ffn, .least = model.ffn};
  e.ffn = wide.value;
  e.router_bias = family.router_bias;
  e.shared_gate = family.shared_gate;
  e.bias = family.expert_bias;
  bool uneven = wide.varies();
  if (const auto shared = find_any(config, {"n_shared_experts", "num_shared_experts",
                                            "moe_num_shared_experts", "num_shared_expert"})) {
    const bool listed = shared->value().is_array();
    const PerLayer each = listed ? per_layer(*shared, most_experts, model.layers) : PerLayer{};
    uneven = uneven || each.varies();
    e.shared = static_cast<int>(listed ? each.value : shared->integer(0, most_experts));
    e.shared_ffn = e.shared * e.ffn;
  } else if (const auto shared_wide =
                 find_any(config, {"shared_expert_intermediate_size", "shared_intermediate_size",
                                   "share_expert_dim"})) {
    e.shared_ffn = shared_wide->integer(0, most_ffn);
    e.shared = e.shared_ffn > 0 ? 1 : 0;
  } else if (family.shared_expert) {
    e.shared = 1;
    e.shared_ffn = e.ffn;
  }
  if (const auto dense = config.find("intermediate_size_mlp")) {  // Llama 4: of the other layers
    model.ffn = dense->integer(1, most_ffn);
  }
  if (uneven) {
    reasons.emplace_back("a mixture of experts of different width or number from layer to layer");
  }
  if (auto reason = read_expert_layers(config, family, model)) {
    reasons.push_back(std::move(*reason));
  }
  constexpr double most_weights = 1e17;
  const double weights = 3.0 * static_cast<double>(model.layers) *
                         static_cast<double>(model.hidden) *
                         (static_cast<double>(e.count) * static_cast<double>(e.ffn) +
                          static_cast<double>(e.shared_ffn));
  if (weights > most_weights) {
    count->fail(fmt::format("{} experts, {} wide, in {} layers have more weights than is believed",
                            e.count, e.ffn, model.layers));
  }
}

/// What the layers that were read cannot express.
std::vector<std::string> reasons_by_layers(const JsonView& config,
                                           const std::optional<JsonView>& wrapper,
                                           const Family& family, Model& model,
                                           const std::vector<std::string>& varying) {
  std::vector<std::string> reasons;
  read_experts(config, family, model, reasons);
  auto reason = family.hybrid == nullptr ? read_masks(config, wrapper, family, model)
                                         : family.hybrid({.config = config,
                                                          .wrapper = wrapper,
                                                          .config_class = family.config_class,
                                                          .model = model});
  if (reason) {
    reasons.push_back(std::move(*reason));
  }
  const bool two_shapes = family.hybrid == nullptr &&
                          find_any(config, {"num_global_key_value_heads", "global_head_dim"});
  if (two_shapes) {
    reasons.emplace_back("attention of different shape from layer to layer");
  }
  reasons.insert(reasons.end(), varying.begin(), varying.end());
  if (const auto width = config.find("word_embed_proj_dim");
      width && width->integer(1, most_width) != model.hidden) {
    reasons.push_back(fmt::format("an embedding of another width (word_embed_proj_dim {})",
                                  width->value().dump()));
  }
  return reasons;
}

/// What is known of a model that is not costed: the weights of its layers, if who counts them knows
/// them.
void count_weights(const JsonView& config, const std::optional<JsonView>& wrapper,
                   const Family& family, std::size_t assumed_of_ends, Model& model) {
  if (family.count != nullptr && !experts_uneven(config)) {
    model.counted = family.count({.config = config,
                                  .wrapper = wrapper,
                                  .config_class = family.config_class,
                                  .model = model});
  }
  constexpr double most_weights = 1e17;
  auto weights = static_cast<double>(model.extra_parameters);
  for (const LayerWeights& kind : model.counted) {
    weights += static_cast<double>(kind.layers) * static_cast<double>(kind.parameters);
  }
  if (weights > most_weights) {
    config.fail(fmt::format("{:.2g} weights are more than is believed", weights));
  }
  if (model.counted.empty()) {  // nothing is computed from the layers
    model.assumed.resize(assumed_of_ends);
    model.extra_parameters = 0;
  }
  model.experts = {};
  model.linear.reset();
  model.indexer.reset();
  model.grouped_output.reset();
  model.streams = 1;
  model.blocks.clear();
  model.narrow_layers.clear();
}

void read_mlp(const JsonView& config, const Family& family, Model& model,
              std::vector<std::string>& varying) {
  if (const auto ffn = find_any(config, mlp_widths)) {
    const PerLayer width = per_layer(*ffn, most_ffn, model.layers);
    model.ffn = family.both_halves ? width.value / 2 : width.value;
    if (width.varies()) {
      varying.push_back(
          fmt::format("an MLP of different width from layer to layer ({})", width.range()));
    }
  } else if (const auto moe = find_any(config, expert_widths)) {
    model.ffn = per_layer(*moe, most_ffn, model.layers).value;
  } else if (family.four_times || config.find("n_embd")) {  // their own rule without a width
    model.ffn = 4 * model.hidden;
    model.assumed.emplace_back("MLP width 4 x hidden (no width of it)");
  } else {
    (void)need_any(config, mlp_widths);
  }
}

void read_activation(const JsonView& config, const Family& family, Model& model) {
  const std::string name = activation_name(config);
  model.gated_mlp = family.gated_mlp;
  model.activation = family.activation ? *family.activation
                     : !name.empty()   ? activation_of(name)
                     : model.gated_mlp ? Activation::silu
                                       : Activation::gelu;
  const auto limit = config.find("swiglu_limit");
  model.activation_limit = limit ? limit->number() : family.activation_limit;
}

/// Llama's attention_bias means all four projections; Qwen2 has it on Q, K and V only. `bias` means
/// attention's for InternLM, and the MLP's besides for Falcon, which has no gate.
void read_biases(const JsonView& config, const Family& family, Model& model) {
  const auto all = config.find("bias");
  const bool everywhere = all && all->value() == true;
  const auto attention = find_any(
      config, {"attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "include_qkv_bias"});
  model.attention_bias = everywhere || (attention ? attention->boolean() : family.attention_bias);
  model.output_bias = everywhere || flag(config, "attention_out_bias",
                                         family.attention_bias ? family.output_bias
                                                               : flag(config, "attention_bias"));
  model.mlp_bias = (everywhere && !family.gated_mlp) || flag(config, "mlp_bias", family.mlp_bias);
  model.norm_bias = family.norm_bias;
}

/// RoPE that is stretched from the positions of its first training (YaRN, arXiv:2309.00071) reaches
/// further than `max_position_embeddings`, which some configs leave as it was.
void stretch_positions(const JsonView& config, Model& model) {
  const auto scaling = find_any(config, {"rope_scaling", "rope_parameters"});
  const bool is_one = scaling && scaling->value().is_object();
  const auto factor = is_one ? scaling->find("factor") : std::nullopt;
  const auto trained = is_one ? scaling->find("original_max_position_embeddings") : std::nullopt;
  if (factor && trained && factor->value().is_number()) {
    const double reach =
        factor->number(0, 1e6) * static_cast<double>(trained->integer(1, most_tokens));
    model.max_positions =
        std::max(model.max_positions,
                 static_cast<std::int64_t>(std::min(reach, static_cast<double>(most_tokens))));
  }
}

/// Transformers' PretrainedConfig ties where neither file nor class say otherwise. A nested object
/// lacks what its class says, and most classes of decoders say untied.
void read_tied(const JsonView& config, const JsonView& outer, const Family& family, bool nested,
               Model& model) {
  const auto own =
      find_any(config, {"tie_word_embeddings", "use_embedding_sharing", "weight_tying"});
  if (const auto tied = own ? own : outer.find("tie_word_embeddings")) {
    model.tied_embeddings = tied->boolean();
    return;
  }
  const bool known = !family.model_type.empty();
  model.tied_embeddings = known ? family.tied : !nested;
  model.assumed.push_back(fmt::format("{} embeddings (no tie_word_embeddings{})",
                                      model.tied_embeddings ? "tied" : "untied",
                                      known    ? ""
                                      : nested ? "; as most classes of nested decoders have it"
                                               : "; transformers' default"));
}

/// What a checkpoint has beside the weights that are counted, or has them in.
void assume_of_checkpoint(const JsonView& config, const JsonView& outer, Model& model) {
  const auto own = config.find("quantization_config");
  if (const auto stored = own ? own : outer.find("quantization_config");
      stored && stored->value().is_object()) {
    const auto method = stored->find("quant_method");
    model.assumed.push_back(fmt::format(
        "weights of 16 bits, not as its checkpoint has them (quantization_config{}); in a prefill "
        "fewer under --gemm-format",
        method ? ": " + method->string() : std::string()));
  }
  const auto thinker = outer.find("thinker_config");
  std::vector<std::string_view> others;
  for (const std::string_view key : {"vision_config", "audio_config"}) {
    if (outer.find(key) || (thinker && thinker->find(key))) {
      others.push_back(key);
    }
  }
  if (!others.empty()) {
    model.assumed.push_back(
        fmt::format("the decoder alone, nothing of {}", fmt::join(others, " and ")));
  }
}

/// The width of the stream. A config without one may have its decoder in an object that is not
/// known.
std::int64_t read_hidden(const JsonView& config) {
  constexpr std::array<std::string_view, 4> widths{"hidden_size", "n_embd", "n_embed", "d_model"};
  if (const auto hidden = find_any(config, widths)) {
    return hidden->integer(1, most_width);
  }
  std::vector<std::string> parts;
  for (const auto& [key, value] : config.members()) {
    if (value.value().is_object() && key.ends_with("_config")) {
      parts.push_back(key);
    }
  }
  if (!parts.empty()) {
    config.fail(fmt::format("key '{}' is missing, and {} is not known to hold a decoder",
                            widths.front(), fmt::join(parts, ", ")));
  }
  return need_any(config, widths).integer(1, most_width);
}

void read_predicting(const JsonView& config, Model& model) {
  if (const auto further = find_any(config, {"num_nextn_predict_layers", "mtp_num_layers",
                                             "mtp_num_hidden_layers", "num_mtp_layers"})) {
    model.predict_layers = static_cast<int>(further->integer(0, most_layers));
  }
}

/// Of layers that are none of a decoder's: what the config says in so many words.
void read_said(const JsonView& config, Model& model) {
  read_said_heads(config, model);
  const auto ffn = find_any(config, mlp_widths);
  model.ffn = ffn && ffn->value().is_number() ? ffn->integer(0, most_ffn) : 0;
}

}  // namespace

void read_decoder(const JsonView& published, const std::optional<JsonView>& wrapper,
                  const JsonView& outer, Model& model) {
  std::set<std::string> asked;
  const JsonView config = published.noting(asked);
  const bool nested = &config.value() != &outer.value();
  const Family family = family_of(config);
  std::vector<std::string> varying;
  model.kind = ModelKind::llm;
  model.mask = {.kind = MaskKind::causal};
  model.hidden = read_hidden(config);
  model.layers = need_any(config, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"})
                     .integer(1, most_layers);
  const NameList vocabularies{"vocab_size", "n_vocab", "padded_vocab_size"};
  if (family.vocab > 0 && !find_any(config, vocabularies)) {
    model.vocab = family.vocab;
    assume_default(fmt::format("vocab_size {}", model.vocab), family.config_class, model);
  } else {
    model.vocab = need_any(config, vocabularies).integer(1, most_vocab);
  }
  if (const auto positions = find_any(config, {"max_position_embeddings", "n_positions",
                                               "max_sequence_length", "seq_length"})) {
    model.max_positions = positions->integer(1, most_tokens);
  }
  stretch_positions(config, model);
  read_tied(config, outer, family, nested, model);
  const std::size_t assumed_of_ends = model.assumed.size();
  if (const auto foreign = reasons_by_keys(config, wrapper, outer, family); !foreign.empty()) {
    read_said(config, model);
    model.mask.kind = looks_both_ways(config, outer) ? MaskKind::full : MaskKind::causal;
    model.not_costed = not_costed_line(foreign);
    return;
  }
  read_heads(config, family, nested, model, varying);
  read_latent(config, family, model);
  if (!varying.empty()) {
    varying = {fmt::format("attention of different shape from layer to layer ({})",
                           fmt::join(varying, ", "))};
  }
  read_mlp(config, family, model, varying);
  read_activation(config, family, model);
  read_biases(config, family, model);
  model.branch_norms = flag(config, "sandwich_norm", family.branch_norms);
  const auto qk_norm = find_any(config, {"use_qk_norm", "attention_layer_norm"});
  model.qk_norm = qk_norm ? qk_norm->boolean() : family.qk_norm;
  model.attention_gate = family.attention_gate;
  model.attention_sinks = family.sinks;
  read_predicting(config, model);
  if (family.learned_positions) {
    model.extra_parameters = model.max_positions * model.hidden;
  }
  assume_of_checkpoint(config, outer, model);
  const auto reasons = reasons_by_layers(config, wrapper, family, model, varying);
  if (!reasons.empty()) {
    count_weights(config, wrapper, family, assumed_of_ends, model);
    model.not_costed = not_costed_line(reasons);
  } else if (family.model_type.empty()) {
    assume_like_llama(config, asked, model);
  }
}

}  // namespace spp::model_keys
