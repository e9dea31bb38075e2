// Qwen3-Next and Qwen3.5: most layers have gated DeltaNet (arXiv:2412.06464), a linear attention,
// the others attention with a gate on its output; behind both an MLP, or experts with one that is
// shared and gated. Names are those of transformers' <Model>GatedDeltaNet.
#include "transformer/model_read.hpp"
#include "transformer/model_read_weights.hpp"

#include <string>
#include <vector>

namespace spp::model_keys {
namespace {

LinearLayers delta_net(const Published& p) {
  const auto number = [&](std::string_view key, std::int64_t otherwise, std::int64_t max) {
    return static_cast<int>(p.number(key, otherwise, max));
  };
  LinearLayers linear;
  StateScan& scan = linear.scan;
  scan.key_heads = number("linear_num_key_heads", 16, most_heads);
  scan.value_heads = number("linear_num_value_heads", 32, most_heads);
  scan.key_dim = number("linear_key_head_dim", 128, most_head_dim);
  scan.value_dim = number("linear_value_head_dim", 128, most_head_dim);
  linear.conv_kernel = number("linear_conv_kernel_dim", 4, most_head_dim);
  if (scan.value_heads % scan.key_heads != 0) {
    p.config.fail(
        fmt::format("linear_num_key_heads: {} do not divide the {} of linear_num_value_heads",
                    scan.key_heads, scan.value_heads));
  }
  return linear;
}

std::vector<std::string> delta_kinds(const Published& p) {
  if (auto published = p.kinds()) {
    return *published;
  }
  return p.turns(p.number("full_attention_interval", 4, most_layers), "full_attention",
                 "linear_attention");
}

}  // namespace

std::optional<std::string> read_gated_delta(const Published& p) {
  Model& m = p.model;
  for (const std::string& kind : delta_kinds(p)) {
    if (kind != "full_attention" && kind != "linear_attention") {
      return fmt::format("a mix of layers with {}", kind);
    }
    const auto layer = static_cast<std::int64_t>(m.blocks.size());
    m.blocks.push_back({.mixer = kind == "full_attention" ? Mixer::attention : Mixer::linear,
                        .feed = m.experts.routes(layer) ? Feed::experts : Feed::mlp});
  }
  if (m.experts.count > 0) {
    m.experts.shared = 1;
    m.experts.shared_ffn = p.number("shared_expert_intermediate_size", 512, most_ffn);
    m.experts.shared_gate = true;
  }
  m.linear = delta_net(p);
  m.attention_gate = true;
  return std::nullopt;
}

}  // namespace spp::model_keys
