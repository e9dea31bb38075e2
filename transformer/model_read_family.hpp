// Inside of read_model: what published configs of decoders leave to the code of their model_type.
#pragma once

#include "base/json.hpp"
#include "transformer/model.hpp"
#include "transformer/model_read_weights.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace spp::model_keys {

/// What a published config leaves to the code of its model_type.
struct Family {
  std::string_view model_type;
  bool gated_mlp = true;
  bool both_halves = false;                // the MLP's width counts gate and up together
  std::optional<Activation> activation{};  // whatever the config says
  double activation_limit = 0;             // unless it says another (swiglu_limit)
  bool attention_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool norm_bias = false;
  bool qk_norm = false;
  bool branch_norms = false;
  bool tied = false;
  bool learned_positions = false;
  bool router_bias = false;    // of experts: gpt-oss; DeepSeek-V3's correction of their scores
  bool expert_bias = false;    // of the experts' matrices
  bool shared_expert = false;  // one beside the routed ones, as wide
  bool shared_gate = false;    // of the shared ones: a number a token
  bool sinks = false;          // of attention: a learned logit a head
  bool four_times = false;     // an MLP four times as wide as the stream where no width is said
  bool encoder = false;        // its attention looks both ways
  /// Each so many-th layer sees everything, the others a chunk or the config's window; 0: not said.
  std::int64_t full_every = 0;
  std::int64_t chunk = 0;
  // Where a config does not say them; 0: it has to.
  int q_heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t vocab = 0;
  std::string_view config_class;  // whose defaults hold
  CountLayers count = nullptr;    // the weights of layers that are not costed
  ReadHybrid hybrid = nullptr;    // of layers of several kinds that are costed, or some of them
};

/// By model_type; one that is not in the table is like Llama, with a gate or without one as its
/// keys have it, which Model::assumed then says.
Family family_of(const JsonView& config, Model& model);

}  // namespace spp::model_keys
