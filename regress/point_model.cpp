#include "regress/point_model.hpp"

#include "base/error.hpp"

#include <functional>

namespace spp::regress {
namespace {

/// What the source leaves open of a model: as in GPT-3 (arXiv:2005.14165), an MLP four times as
/// wide and some 50 K words.
constexpr std::int64_t usual_vocabulary = 50304;

using Assume = std::function<void(std::string what, std::string value)>;

/// Stated, or said by the activation's name; else the usual: GPT's MLPs are four times as wide
/// and have no gate; experts in every layer (Mixtral, Qwen3, gpt-oss) have one.
bool gated(const Point& p, const Model& m, const Assume& assume) {
  if (p.gated) {
    return *p.gated;
  }
  if (!p.mlp.empty()) {
    return p.mlp.find("glu") != std::string::npos;
  }
  if (p.experts.value_or(1) > 1 && !p.ffn) {
    assume("gated", "yes, as in Mixtral");
    return true;
  }
  const bool gate = m.ffn != 4 * m.hidden;
  assume("gated", gate ? "yes, as the MLP is not 4 x hidden wide" : "no, as in GPT");
  return gate;
}

/// A model that is called after grouped queries has the usual eight groups (Llama 2 and 3).
int usual_kv_heads(const Point& p, const Assume& assume) {
  constexpr int groups = 8;
  if (p.model.find("gqa") == std::string::npos || *p.q_heads % groups != 0) {
    return *p.q_heads;
  }
  assume("kv_heads", fmt::format("{}", groups));
  return groups;
}

/// gpt-oss by its config.json: windows in every other layer, from the first on; biases, sinks.
void as_gpt_oss(Model& m) {
  m.attention_bias = m.output_bias = true;
  m.experts.router_bias = m.experts.bias = true;
  m.attention_sinks = true;
  m.narrow_mask = {.kind = MaskKind::window, .window = 128};
  for (std::int64_t i = 0; i < m.layers; ++i) {
    m.narrow_layers.push_back(i % 2 == 0);
  }
}

}  // namespace

Model stated_model(const Point& p, const Mask& mask, std::vector<Assumption>& assumed) {
  const Assume assume = [&assumed](std::string what, std::string value) {
    assumed.push_back({.what = std::move(what), .value = std::move(value), .source = "default"});
  };
  Model m;
  m.name = p.model;
  m.layers = *p.layers;
  m.hidden = *p.hidden;
  m.q_heads = *p.q_heads;
  m.kv_heads = p.kv_heads ? *p.kv_heads : usual_kv_heads(p, assume);
  m.head_dim = *p.head_dim;
  m.ffn = p.ffn.value_or(4 * m.hidden);
  if (!p.ffn && !p.experts) {
    assume("ffn", "4 x hidden");
  }
  m.gated_mlp = gated(p, m, assume);
  m.vocab = p.vocab.value_or(usual_vocabulary);
  if (!p.vocab) {
    assume("vocab", fmt::format("{}", usual_vocabulary));
  }
  m.tied_embeddings = p.tied_embeddings.value_or(false);
  m.mask = {.kind = mask.kind, .window = mask.window};
  if (p.experts && *p.experts > 1) {
    m.experts = {.count = *p.experts,
                 .per_token = p.experts_per_token.value_or(1),
                 .ffn = p.moe_ffn.value_or(m.ffn),
                 .shared = p.shared_experts.value_or(0),
                 .shared_ffn = p.shared_expert_ffn.value_or(p.shared_experts.value_or(0) *
                                                            p.moe_ffn.value_or(m.ffn)),
                 .dense_layers = p.dense_layers.value_or(0)};
  }
  if (p.model.find("gpt-oss") != std::string::npos) {
    as_gpt_oss(m);
    assume("model", "as gpt-oss: windows of 128 tokens in every other layer");
  }
  const bool without = p.variant.find("w/o MTP") != std::string::npos;
  if (p.model == "deepseek-v3" && !without) {  // as its configuration says
    m.predict_layers = 1;
    assume("model", "a layer that predicts a further token");
  }
  if (p.kv_lora_rank) {
    const auto rope = static_cast<int>(p.qk_rope_head_dim.value_or(64));
    const auto value = static_cast<int>(p.v_head_dim.value_or(*p.head_dim));
    // Some sources state the width of a whole query, others the part without positions.
    const int nope = *p.head_dim > value ? *p.head_dim - rope : *p.head_dim;
    m.latent = {.q_rank = p.q_lora_rank.value_or(0),
                .kv_rank = *p.kv_lora_rank,
                .nope_dim = nope,
                .rope_dim = rope,
                .value_dim = value};
    m.head_dim = nope + rope;
    m.kv_heads = m.q_heads;
  }
  return m;
}

}  // namespace spp::regress
