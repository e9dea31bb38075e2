// Gemma 4: layers that see a window and layers that see everything differ in the width of their
// heads and in how many K and V there are; K may be V; the large one of experts has these beside an
// MLP. The small ones, whose last layers use the K and V of others and whose layers have tables of
// their own, are counted, not costed. Names are those of transformers' Gemma4Text<…>.
#include "base/error.hpp"
#include "transformer/model_read.hpp"
#include "transformer/model_read_weights.hpp"

#include <string>
#include <utility>
#include <vector>

namespace spp::model_keys {
namespace {

/// Gemma4TextExperts and its router, beside the MLP of a Gemma4TextDecoderLayer.
PartWeights experts_beside(const Published& p) {
  if (!p.flag("enable_moe_block", false)) {
    return {};
  }
  const std::int64_t h = p.model.hidden;
  const std::int64_t count = need_any(p.config, {"num_experts"}).integer(1, most_experts);
  const std::int64_t expert =  // of gate_up_proj and down_proj
      3 * h * need_any(p.config, {"moe_intermediate_size"}).integer(1, most_ffn);
  const auto top = p.config.find("top_k_experts");
  if (!top) {
    p.model.assumed.emplace_back("every token goes through all experts (no top_k_experts)");
  }
  const std::int64_t per_token = top ? top->integer(1, count) : count;
  const std::int64_t all = count * expert  // experts
                           + h * count     // router.proj
                           + h + count     // router.scale, router.per_expert_scale
                           + 3 * h;        // pre_ and post_feedforward_layernorm_2, post_…_1
  return {.parameters = all, .active = all - expert * (count - per_token)};
}

/// What each layer adds of a table of its own (Gemma 3n's per-layer embeddings), and, once, that
/// table and what is made of the input for it.
std::int64_t input_of_layers(const Published& p) {
  const std::int64_t width = p.number("hidden_size_per_layer_input", 256, most_width, 0);
  if (width == 0) {
    return 0;
  }
  const std::int64_t h = p.model.hidden;
  const std::int64_t words = p.number("vocab_size_per_layer_input", 262'144, most_vocab);
  p.model.extra_parameters +=
      p.model.layers * width * (words + h)  // embed_tokens_per_layer, per_layer_model_projection
      + width;                              // per_layer_projection_norm
  return 2 * h * width +
         h;  // per_layer_input_gate, per_layer_projection, post_per_layer_input_norm
}

/// Gemma4TextAttention.
std::int64_t shaped_attention(const Model& m, const KvHeads& heads, bool shares_kv) {
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    return in * out + (m.attention_bias ? out : 0);
  };
  const std::int64_t q = std::int64_t{m.q_heads} * heads.dim;
  std::int64_t sum = linear(m.hidden, q) + linear(q, m.hidden) + heads.dim;  // and q_norm
  if (!shares_kv) {
    const std::int64_t projection = linear(m.hidden, std::int64_t{heads.count} * heads.dim);
    sum += (heads.v_is_k ? 1 : 2) * projection + heads.dim;  // and k_norm; v_norm has none
  }
  return sum;
}

/// Of the layers that see everything.
KvHeads global_heads(const Published& p) {
  const bool v_is_k = p.flag("attention_k_eq_v", false);
  const auto global = p.config.find("num_global_key_value_heads");
  return {.count = global && v_is_k ? static_cast<int>(global->integer(1, most_heads))
                                    : p.model.kv_heads,
          .dim = static_cast<int>(p.number("global_head_dim", 512, most_head_dim)),
          .v_is_k = v_is_k};
}

/// By layer; as the class has it, the last sees everything.
std::vector<std::string> gemma_kinds(const Published& p) {
  std::vector<std::string> kinds;
  if (auto published = p.kinds()) {
    kinds = std::move(*published);
  } else {
    p.assume("full attention in every 6th layer");
    kinds = p.turns(6, "full_attention", "sliding_attention");
  }
  kinds.back() = "full_attention";
  return kinds;
}

}  // namespace

std::optional<std::string> read_two_shapes(const Published& p) {
  Model& m = p.model;
  const auto is_zero = [&](std::string_view key, std::int64_t otherwise, std::int64_t max) {
    const auto number = p.config.find(key);
    return (number ? number->integer(0, max) : otherwise) == 0;
  };
  if (!is_zero("num_kv_shared_layers", 0, most_layers)) {
    return "sharing of K and V between layers";
  }
  if (!is_zero("hidden_size_per_layer_input", 256, most_width)) {
    return "a table of words in every layer";
  }
  for (const std::string& kind : gemma_kinds(p)) {
    if (kind != "full_attention" && kind != "sliding_attention") {
      return fmt::format("a mix of layers with {}", kind);
    }
    m.narrow_layers.push_back(kind == "sliding_attention");
  }
  m.narrow_mask = {.kind = MaskKind::window,
                   .window = p.number("sliding_window", 512, most_tokens)};
  m.narrow_heads = {.count = m.kv_heads, .dim = m.head_dim};
  const KvHeads everything = global_heads(p);
  m.kv_heads = everything.count;
  m.head_dim = everything.dim;
  m.v_is_k = everything.v_is_k;
  if (m.q_heads % m.kv_heads != 0) {
    p.config.at("num_global_key_value_heads")
        .fail(fmt::format("{} key/value heads do not divide {} attention heads", m.kv_heads,
                          m.q_heads));
  }
  m.v_norm = true;
  m.layer_scale = true;
  if (!p.flag("enable_moe_block", false)) {
    m.experts = {};
  } else {
    m.experts.shared = 1;
    m.experts.shared_ffn = m.ffn;
    m.experts.own_norms = true;
  }
  return std::nullopt;
}

std::vector<LayerWeights> count_two_shapes(const Published& p) {
  const Model& m = p.model;
  const KvHeads sliding{.count = m.kv_heads, .dim = m.head_dim};
  const KvHeads everything = global_heads(p);
  const std::int64_t sharing = p.number("num_kv_shared_layers", 0, most_layers, 0);
  const bool wide = sharing > 0 && p.flag("use_double_wide_mlp", false);
  const PartWeights moe = experts_beside(p);
  const std::int64_t input = input_of_layers(p);
  const std::int64_t window = p.number("sliding_window", 512, most_tokens);
  const std::vector<std::string> order = gemma_kinds(p);
  std::vector<LayerWeights> kinds;
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::string& kind = order[static_cast<std::size_t>(i)];
    const bool all = kind == "full_attention";
    if (!all && kind != "sliding_attention") {
      return {};
    }
    const bool shares_kv = i >= m.layers - sharing;
    const KvHeads& shape = all ? everything : sliding;
    const std::int64_t dense = shaped_attention(m, shape, shares_kv)                 //
                               + 3 * m.hidden * m.ffn * (wide && shares_kv ? 2 : 1)  // mlp
                               + 4 * m.hidden + 1  // norms around attention and MLP, layer_scalar
                               + input;
    add_layer(kinds, {.kind = all ? "full attention" : "sliding attention",
                      .attention = std::string(heads_word(m.q_heads, shape.count)),
                      .mask = all ? "causal" : fmt::format("window:{}", window),
                      .mlp = moe.parameters > 0 ? "experts" : "dense",
                      .parameters = dense + moe.parameters,
                      .active = dense + moe.active});
  }
  return kinds;
}

}  // namespace spp::model_keys
