// Qwen3-Next and Qwen3.5: most layers have gated DeltaNet (arXiv:2412.06464), a linear attention,
// the others attention with a gate on its output; behind both an MLP, or experts with one that is
// shared and gated.
#include "transformer/model_read.hpp"
#include "transformer/model_read_weights.hpp"

#include <string>
#include <vector>

namespace spp::model_keys {
namespace {

/// <Model>GatedDeltaNet, with its norm before.
std::int64_t delta_net(const Published& p) {
  const std::int64_t k_heads = p.number("linear_num_key_heads", 16, most_heads);
  const std::int64_t v_heads = p.number("linear_num_value_heads", 32, most_heads);
  const std::int64_t keys = k_heads * p.number("linear_key_head_dim", 128, most_head_dim);
  const std::int64_t v_dim = p.number("linear_value_head_dim", 128, most_head_dim);
  const std::int64_t values = v_heads * v_dim;
  const std::int64_t kernel = p.number("linear_conv_kernel_dim", 4, most_head_dim);
  const std::int64_t h = p.model.hidden;
  return h                               // input_layernorm
         + h * (2 * keys + 2 * values)   // in_proj_qkvz; in Qwen3.5 in_proj_qkv, in_proj_z
         + h * 2 * v_heads               // in_proj_ba; in_proj_b, in_proj_a
         + (2 * keys + values) * kernel  // conv1d, without bias
         + 2 * v_heads                   // A_log, dt_bias
         + v_dim                         // norm
         + values * h;                   // out_proj
}

/// The second half of q_proj.
std::int64_t output_gate(const Model& model) {
  return model.q_width() * (model.hidden + (model.attention_bias ? 1 : 0));
}

PartWeights behind_attention(const Published& p) {
  if (p.model.experts.count == 0) {
    return part_weights(p.model, mlp);
  }
  Model with_shared = p.model;
  Experts& e = with_shared.experts;
  e.shared = 1;
  e.shared_ffn = p.number("shared_expert_intermediate_size", 512, most_ffn);
  PartWeights part = part_weights(with_shared, spp::experts);
  part.parameters += p.model.hidden;  // shared_expert_gate
  part.active += p.model.hidden;
  return part;
}

std::vector<std::string> delta_kinds(const Published& p) {
  if (auto published = p.kinds()) {
    return *published;
  }
  return p.turns(p.number("full_attention_interval", 4, most_layers), "full_attention",
                 "linear_attention");
}

}  // namespace

std::vector<LayerWeights> count_gated_delta(const Published& p) {
  const Model& m = p.model;
  const std::vector<std::string> order = delta_kinds(p);
  const PartWeights rest = behind_attention(p);
  const std::int64_t linear = delta_net(p);
  const std::int64_t full = part_weights(m, self_attention).parameters + output_gate(m);
  std::vector<LayerWeights> kinds;
  for (const std::string& kind : order) {
    const bool attends = kind == "full_attention";
    if (!attends && kind != "linear_attention") {
      return {};
    }
    const std::int64_t mixer = attends ? full : linear;
    add_layer(kinds,
              {.kind = attends ? "full attention" : "linear attention",
               .attention = std::string(attends ? heads_word(m.q_heads, m.kv_heads) : "none"),
               .mask = attends ? "causal" : "none",
               .mlp = m.experts.count > 0 ? "experts" : "dense",
               .parameters = mixer + rest.parameters,
               .active = mixer + rest.active});
  }
  return kinds;
}

}  // namespace spp::model_keys
