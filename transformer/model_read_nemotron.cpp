// Nemotron-H (arXiv:2504.03624) and Nemotron 3: each layer is one thing behind one norm, Mamba2
// (arXiv:2405.21060), attention without positions, an MLP without a gate, or experts of such, on
// tokens or on latents of them. Names are those of transformers' NemotronHConfig.
#include "base/error.hpp"
#include "transformer/model_read.hpp"
#include "transformer/model_read_weights.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spp::model_keys {
namespace {

LinearLayers mamba2(const Published& p) {
  const auto number = [&](std::string_view key, std::int64_t otherwise, std::int64_t max) {
    return static_cast<int>(p.number(key, otherwise, max));
  };
  LinearLayers linear{.scan = {.rule = StateRule::mamba2}};
  StateScan& scan = linear.scan;
  scan.value_heads = number("mamba_num_heads", 128, most_heads);
  scan.value_dim = number("mamba_head_dim", 64, most_head_dim);
  scan.key_dim = number("ssm_state_size", 128, most_head_dim);
  scan.key_heads = number("n_groups", 8, most_heads);
  scan.chunk = number("chunk_size", 128, most_head_dim);
  linear.conv_kernel = number("conv_kernel", 4, most_head_dim);
  linear.conv_bias = p.flag("use_conv_bias", true);
  linear.bias = flag(p.config, "use_bias");
  if (scan.value_heads % scan.key_heads != 0) {
    p.config.fail(fmt::format("n_groups: {} do not divide the {} of mamba_num_heads",
                              scan.key_heads, scan.value_heads));
  }
  return linear;
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

std::optional<LayerBlocks> blocks_of(const Model& model, const std::string& kind) {
  if (kind == "linear_attention" || kind == "mamba") {
    return LayerBlocks{.mixer = Mixer::linear, .feed = Feed::none};
  }
  if (kind == "full_attention" || kind == "attention") {
    return LayerBlocks{.mixer = Mixer::attention, .feed = Feed::none};
  }
  if (kind == "mlp") {
    return LayerBlocks{.mixer = Mixer::none, .feed = Feed::mlp};
  }
  if (kind == "moe" && model.experts.count > 0) {
    return LayerBlocks{.mixer = Mixer::none, .feed = Feed::experts};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> read_one_by_one(const Published& p) {
  Model& m = p.model;
  const std::vector<std::string> kinds = block_kinds(p);
  if (kinds.empty()) {
    return "a mix of layers of which nothing says the order (no hybrid_override_pattern)";
  }
  for (const std::string& kind : kinds) {
    const auto blocks = blocks_of(m, kind);
    if (!blocks) {
      return "a mix of layers with some of a kind that is not known";
    }
    m.blocks.push_back(*blocks);
  }
  if (m.experts.count > 0) {
    m.experts.shared_ffn = p.number("moe_shared_expert_intermediate_size", 7688, most_ffn);
    m.experts.shared = 1;
    if (const auto latent = p.config.find("moe_latent_size")) {
      m.experts.latent = latent->integer(1, most_width);
    }
  }
  const auto further = p.config.find("num_nextn_predict_layers");
  if (further && further->integer(0, most_layers) > 0) {
    m.assumed.emplace_back(
        "layers that predict further tokens are one block each, like the last layer (attention "
        "before their experts is not counted)");
  }
  m.linear = mamba2(p);
  m.rope = false;
  return std::nullopt;
}

}  // namespace spp::model_keys
