// Nemotron-H (arXiv:2504.03624) and Nemotron 3: each layer is one thing behind one norm, Mamba2
// (arXiv:2405.21060), attention, an MLP without a gate, or experts of such.
#include "base/error.hpp"
#include "transformer/model_read.hpp"
#include "transformer/model_read_weights.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spp::model_keys {
namespace {

/// NemotronHMamba2Mixer, with its norm before.
std::int64_t mamba2(const Published& p) {
  const std::int64_t heads = p.number("mamba_num_heads", 128, most_heads);
  const std::int64_t inner = heads * p.number("mamba_head_dim", 64, most_head_dim);
  const std::int64_t state = p.number("ssm_state_size", 128, most_head_dim);
  const std::int64_t mixed = inner + 2 * p.number("n_groups", 8, most_heads) * state;
  const std::int64_t kernel = p.number("conv_kernel", 4, most_head_dim);
  const std::int64_t conv_bias = p.flag("use_conv_bias", true) ? 1 : 0;
  const std::int64_t bias = flag(p.config, "use_bias") ? 1 : 0;
  const std::int64_t h = p.model.hidden;
  return h                                       // norm of the block
         + (h + bias) * (inner + mixed + heads)  // in_proj
         + mixed * (kernel + conv_bias)          // conv1d
         + 3 * heads                             // A_log, D, dt_bias
         + inner                                 // norm
         + (inner + bias) * h;                   // out_proj
}

/// NemotronHMoE, with its norm before: experts on tokens, or on latents of them (moe_latent_size).
PartWeights expert_block(const Published& p) {
  const Experts& e = p.model.experts;
  const std::int64_t h = p.model.hidden;
  const std::int64_t shared = p.number("moe_shared_expert_intermediate_size", 7688, most_ffn);
  const auto latent = p.config.find("moe_latent_size");
  const std::int64_t in = latent ? latent->integer(1, most_width) : h;
  const std::int64_t expert = 2 * in * e.ffn;  // up_proj, down_proj
  const std::int64_t bias = p.model.mlp_bias ? 1 : 0;
  const std::int64_t all = h                                         // norm of the block
                           + (h + 1) * e.count                       // gate, its correction
                           + expert * e.count                        // experts
                           + 2 * h * shared + bias * (h + shared)    // shared_experts
                           + (latent ? 2 * h * in + bias * (h + in)  // fc1_, fc2_latent_proj
                                     : 0);
  return {.parameters = all, .active = all - expert * (e.count - e.per_token)};
}

std::string_view kind_of_letter(char letter) {
  return letter == 'M'   ? "linear_attention"
         : letter == '*' ? "full_attention"
         : letter == '-' ? "mlp"
         : letter == 'E' ? "moe"
                         : "";
}

/// In the words of layers_block_type; empty where the config does not say.
std::vector<std::string> block_kinds(const Published& p) {
  if (auto published = p.kinds()) {
    return *published;
  }
  const auto pattern = hybrid_pattern(p.config, p.wrapper);
  if (!pattern) {
    return {};
  }
  std::vector<std::string> kinds;
  for (const char letter : pattern->string()) {
    kinds.emplace_back(kind_of_letter(letter));
  }
  if (std::cmp_not_equal(kinds.size(), p.model.layers)) {
    pattern->fail(fmt::format("{} kinds for {} layers", kinds.size(), p.model.layers));
  }
  return kinds;
}

std::optional<LayerWeights> block_of_kind(const Published& p, const std::string& kind) {
  const Model& m = p.model;
  if (kind == "linear_attention" || kind == "mamba") {
    const std::int64_t all = mamba2(p);
    return LayerWeights{.kind = "Mamba2", .parameters = all, .active = all};
  }
  if (kind == "full_attention" || kind == "attention") {
    const PartWeights part = part_weights(m, self_attention);
    return LayerWeights{.kind = "full attention",
                        .attention = std::string(heads_word(m.q_heads, m.kv_heads)),
                        .mask = "causal",
                        .parameters = part.parameters,
                        .active = part.active};
  }
  if (kind == "mlp") {
    const PartWeights part = part_weights(m, mlp);
    return LayerWeights{
        .kind = "MLP", .mlp = "dense", .parameters = part.parameters, .active = part.active};
  }
  if (kind == "moe" && m.experts.count > 0) {
    const PartWeights part = expert_block(p);
    return LayerWeights{
        .kind = "experts", .mlp = "experts", .parameters = part.parameters, .active = part.active};
  }
  return std::nullopt;
}

}  // namespace

std::vector<LayerWeights> count_one_by_one(const Published& p) {
  std::vector<LayerWeights> kinds;
  std::map<std::string, LayerWeights> known;  // each kind is read once
  for (const std::string& kind : block_kinds(p)) {
    auto at = known.find(kind);
    if (at == known.end()) {
      const auto layer = block_of_kind(p, kind);
      if (!layer) {
        return {};
      }
      at = known.emplace(kind, *layer).first;
    }
    add_layer(kinds, at->second);
  }
  return kinds;
}

}  // namespace spp::model_keys
