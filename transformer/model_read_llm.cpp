// Decoders, whatever their layers: one reader, hence one file. What a config leaves to the code of
// its model_type: model_read_family.cpp. What layers see: model_read_kinds.cpp. What layers of
// attention and MLP or experts cannot express becomes a reason not to cost the model.
#include "base/error.hpp"
#include "transformer/model_read.hpp"
#include "transformer/model_read_family.hpp"
#include "transformer/model_read_kinds.hpp"

#include <algorithm>

namespace spp::model_keys {
namespace {

constexpr std::array<std::string_view, 4> head_counts{"num_attention_heads", "n_head", "n_heads",
                                                      "num_heads"};
constexpr std::array<std::string_view, 5> mlp_widths{"intermediate_size", "n_inner", "ffn_dim",
                                                     "ffn_hidden_size", "d_ff"};
constexpr std::array<std::string_view, 2> expert_widths{"moe_intermediate_size",
                                                        "moe_ffn_hidden_size"};

/// Which layers have experts: behind the first ones all, or each so many-th. A reason for others.
std::optional<std::string> read_expert_layers(const JsonView& config, std::int64_t layers,
                                              Experts& experts) {
  if (const auto dense = find_any(config, {"first_k_dense_replace", "moe_layer_start_index"})) {
    experts.dense_layers = dense->integer(0, most_layers);
  }
  if (const auto step = find_any(
          config, {"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"})) {
    experts.every = step->integer(1, most_layers);
  }
  bool mixed = false;
  if (const auto kinds = config.find("mlp_layer_types")) {
    std::vector<bool> dense;
    for (const JsonView& kind : kinds->elements()) {
      dense.push_back(kind.string() == "dense");
    }
    dense.resize(static_cast<std::size_t>(layers), false);
    const auto first = std::ranges::find(dense, false);
    experts.dense_layers = first - dense.begin();
    mixed = std::find(first, dense.end(), true) != dense.end();
  }
  const auto last = config.find("moe_layer_end_index");
  const bool ends = last && last->value() != -1 && last->integer(0, most_layers) + 1 < layers;
  if (experts_uneven(config) || ends || mixed) {
    return fmt::format("experts in some layers only ({} experts)", experts.count);
  }
  return std::nullopt;
}

void read_experts(const JsonView& config, const Family& family, Model& model,
                  std::vector<std::string>& reasons) {
  const auto count = find_any(config, expert_counts);
  const auto text = experts(config);
  if (!count && find_any(config, expert_widths)) {
    reasons.emplace_back("a mixture of experts without their number");
  }
  if (!text) {
    return;
  }
  const auto top = find_any(config, experts_per_token);
  const PerLayer number = per_layer(*count, most_experts);
  if (!top || number.varies || per_layer(*top, most_experts).varies) {
    reasons.push_back(top ? *text : *text + " without num_experts_per_tok");
    return;
  }
  Experts& e = model.experts;
  e.count = static_cast<int>(number.value);
  e.per_token = static_cast<int>(per_layer(*top, number.value).value);
  const auto ffn = find_any(config, expert_widths);
  const PerLayer wide = ffn ? per_layer(*ffn, most_ffn) : PerLayer{.value = model.ffn};
  e.ffn = wide.value;
  e.router_bias = family.router_bias;
  e.shared_gate = family.shared_gate;
  e.bias = family.expert_bias;
  bool uneven = wide.varies;
  if (const auto shared = find_any(config, {"n_shared_experts", "num_shared_experts",
                                            "moe_num_shared_experts", "num_shared_expert"})) {
    const PerLayer each = shared->value().is_array()
                              ? per_layer(*shared, most_experts)
                              : PerLayer{.value = shared->integer(0, most_experts)};
    uneven = uneven || each.varies;
    e.shared = static_cast<int>(each.value);
    e.shared_ffn = e.shared * e.ffn;
  } else if (const auto shared_wide = config.find("shared_expert_intermediate_size")) {
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
    reasons.emplace_back("experts of different width or number from layer to layer");
  }
  if (auto reason = read_expert_layers(config, model.layers, e)) {
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
                                           const Family& family, Model& model, bool varying) {
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
  if (varying || two_shapes) {
    reasons.emplace_back("attention of different shape from layer to layer");
  }
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
                   const Family& family, Model& model) {
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
  if (model.counted.empty()) {  // nothing is computed from them
    model.assumed.clear();
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

/// Heads of latent attention are as wide as it says, and each has its own K and V.
void read_latent(const JsonView& config, Model& model) {
  const auto rank = config.find("kv_lora_rank");
  if (!rank) {
    return;
  }
  Latent& latent = model.latent;
  const auto dim = [&](std::string_view key) {
    return static_cast<int>(config.at(key).integer(1, most_head_dim));
  };
  latent.kv_rank = rank->integer(1, most_width);
  if (const auto q = config.find("q_lora_rank")) {
    latent.q_rank = q->integer(0, most_width);
  }
  latent.nope_dim = dim("qk_nope_head_dim");
  latent.rope_dim = dim("qk_rope_head_dim");
  latent.value_dim = config.find("v_head_dim") ? dim("v_head_dim") : latent.nope_dim;
  model.head_dim = latent.nope_dim + latent.rope_dim;
  model.kv_heads = model.q_heads;
}

void read_heads(const JsonView& config, const Family& family, Model& model, bool& varying) {
  const bool by_family = family.q_heads > 0 && !find_any(config, head_counts);
  const JsonView heads = by_family ? config : need_any(config, head_counts);
  const PerLayer q = by_family ? PerLayer{.value = family.q_heads} : per_layer(heads, most_heads);
  model.q_heads = static_cast<int>(q.value);
  model.kv_heads = by_family ? family.kv_heads : model.q_heads;
  varying = varying || q.varies;
  const auto kv = find_any(
      config, {"num_key_value_heads", "n_kv_heads", "num_kv_heads", "multi_query_group_num"});
  // Falcon's first layers have one KV head, whatever num_kv_heads says.
  const bool one = flag(config, "multi_query") && config.find("new_decoder_architecture") &&
                   !flag(config, "new_decoder_architecture");
  if (one) {
    model.kv_heads = 1;
  } else if (kv) {
    const PerLayer number = per_layer(*kv, most_heads);
    model.kv_heads = static_cast<int>(number.value);
    varying = varying || number.varies;
  } else if (flag(config, "multi_query")) {
    model.kv_heads = 1;
  }
  if (!varying && model.q_heads % model.kv_heads != 0) {
    (kv ? *kv : heads)
        .fail(fmt::format("{} key/value heads do not divide {} attention heads", model.kv_heads,
                          model.q_heads));
  }
  const auto part_of_latent = [&](std::string_view key) {  // 0: no latent attention
    const auto dim = config.find(key);
    return dim ? dim->integer(0, most_head_dim) : 0;
  };
  const std::int64_t rope = part_of_latent("qk_rope_head_dim");
  const std::int64_t nope = part_of_latent("qk_nope_head_dim");
  if (const auto dim =
          find_any(config, {"head_dim", "attention_head_dim", "d_kv", "kv_channels"})) {
    model.head_dim = static_cast<int>(dim->integer(1, most_head_dim));
  } else if (family.head_dim > 0) {
    model.head_dim = family.head_dim;
  } else if (rope > 0 && nope > 0) {
    model.head_dim = static_cast<int>(rope + nope);
  } else if (model.hidden % model.q_heads != 0) {
    heads.fail(fmt::format("{} heads do not divide the hidden size {}, and there is no head_dim",
                           model.q_heads, model.hidden));
  } else {
    model.head_dim = static_cast<int>(model.hidden / model.q_heads);
  }
}

void read_mlp(const JsonView& config, const Family& family, Model& model, bool& varying) {
  if (const auto ffn = find_any(config, mlp_widths)) {
    const PerLayer width = per_layer(*ffn, most_ffn);
    model.ffn = family.both_halves ? width.value / 2 : width.value;
    varying = varying || width.varies;
  } else if (const auto moe = find_any(config, expert_widths)) {
    model.ffn = per_layer(*moe, most_ffn).value;
  } else if (family.four_times || config.find("n_embd")) {  // their own rule without a width
    model.ffn = 4 * model.hidden;
    model.assumed.emplace_back("MLP width 4 x hidden (no width of it)");
  } else {
    (void)need_any(config, mlp_widths);
  }
}

Activation activation_of(std::string_view name) {
  if (name == "silu" || name == "swish" || name == "swiglu") {
    return Activation::silu;
  }
  if (name == "quick_gelu") {
    return Activation::quick_gelu;
  }
  if (name == "relu2") {
    return Activation::squared_relu;
  }
  return name.starts_with("gelu") ? Activation::gelu : Activation::other;
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

}  // namespace

void read_decoder(const JsonView& config, const std::optional<JsonView>& wrapper,
                  const JsonView& outer, Model& model) {
  const Family family = family_of(config, model);
  bool varying = false;
  model.kind = ModelKind::llm;
  model.mask = {.kind = MaskKind::causal};
  model.hidden =
      need_any(config, {"hidden_size", "n_embd", "n_embed", "d_model"}).integer(1, most_width);
  model.layers = need_any(config, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"})
                     .integer(1, most_layers);
  const NameList vocabularies{"vocab_size", "n_vocab", "padded_vocab_size"};
  model.vocab = family.vocab > 0 && !find_any(config, vocabularies)
                    ? family.vocab
                    : need_any(config, vocabularies).integer(1, most_vocab);
  if (const auto positions = find_any(config, {"max_position_embeddings", "n_positions",
                                               "max_sequence_length", "seq_length"})) {
    model.max_positions = positions->integer(1, most_tokens);
  }
  if (const auto foreign = reasons_by_keys(config, wrapper, outer, family); !foreign.empty()) {
    if (find_any(config, head_counts)) {
      read_heads(config, family, model, varying);
    }
    if (find_any(config, mlp_widths)) {
      read_mlp(config, family, model, varying);
    }
    model.assumed.clear();  // nothing is computed from it
    model.not_costed = not_costed_line(foreign);
    return;
  }
  read_heads(config, family, model, varying);
  read_latent(config, model);
  read_mlp(config, family, model, varying);
  read_activation(config, family, model);
  model.attention_bias = flag(config, "attention_bias", family.attention_bias);
  // Llama's attention_bias means all four projections; Qwen2 has it on Q, K and V only.
  model.output_bias =
      flag(config, "attention_out_bias",
           family.attention_bias ? family.output_bias : flag(config, "attention_bias"));
  model.mlp_bias = flag(config, "mlp_bias", family.mlp_bias);
  model.norm_bias = family.norm_bias;
  model.branch_norms = family.branch_norms;
  model.qk_norm = flag(config, "use_qk_norm", family.qk_norm);
  model.attention_sinks = family.sinks;
  const auto own = find_any(config, {"tie_word_embeddings", "use_embedding_sharing"});
  if (const auto tied = own ? own : outer.find("tie_word_embeddings")) {
    model.tied_embeddings = tied->boolean();
  } else {
    model.tied_embeddings = family.tied;
    model.assumed.push_back(
        fmt::format("{} embeddings (no tie_word_embeddings)", family.tied ? "tied" : "untied"));
  }
  if (const auto further = find_any(
          config, {"num_nextn_predict_layers", "mtp_num_layers", "mtp_num_hidden_layers"})) {
    model.predict_layers = static_cast<int>(further->integer(0, most_layers));
  }
  if (family.learned_positions) {
    model.extra_parameters = model.max_positions * model.hidden;
  }
  if (const auto stored = outer.find("quantization_config");
      stored && stored->value().is_object()) {
    const auto method = stored->find("quant_method");
    model.assumed.push_back(fmt::format(
        "weights of 16 bits, not as its checkpoint has them (quantization_config{}); fewer under "
        "--gemm-format",
        method ? ": " + method->string() : std::string()));
  }
  const auto reasons = reasons_by_layers(config, wrapper, family, model, varying);
  if (!reasons.empty()) {
    count_weights(config, wrapper, family, model);
    model.not_costed = not_costed_line(reasons);
  }
}

}  // namespace spp::model_keys
