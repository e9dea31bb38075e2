// Inside of read_model: what published configs of decoders leave to the code of their model_type.
#pragma once

#include "base/json.hpp"
#include "transformer/model.hpp"
#include "transformer/model_read_weights.hpp"

#include <cstdint>
#include <set>
#include <string>
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
  /// Its layers have experts, or latents of keys and values, which the config has to say.
  bool routes = false, latents = false;
  bool router_bias = false;     // of experts: gpt-oss; DeepSeek-V3's correction of their scores
  bool expert_bias = false;     // of the experts' matrices
  bool shared_expert = false;   // one beside the routed ones, as wide
  bool shared_gate = false;     // of the shared ones: a number a token
  bool sinks = false;           // of attention: a learned logit a head
  bool four_times = false;      // an MLP four times as wide as the stream where no width is said
  bool attention_gate = false;  // a number for each that attention gives, from its input
  /// What its layers are, where no key says that they are not those of a decoder.
  std::string_view foreign{};
  /// Each so many-th layer sees everything, the others a chunk or the config's window; 0: not said.
  std::int64_t full_every = 0;
  std::int64_t chunk = 0;
  // Where a config does not say them; 0: it has to.
  int q_heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t vocab = 0, window = 0, q_rank = 0, dense_layers = 0;
  std::string_view config_class{};  // whose defaults hold
  CountLayers count = nullptr;      // the weights of layers that are not costed
  ReadHybrid hybrid = nullptr;      // of layers of several kinds that are costed, or some of them
};

/// By model_type; one that is not in the table, which has no model_type then, is like Llama, with a
/// gate or without one as its keys have it.
Family family_of(const JsonView& config);

/// That a model was read like Llama, and which keys that may speak of other layers were not `asked`
/// for: for Model::assumed, of a family that is not in the table.
void assume_like_llama(const JsonView& config, const std::set<std::string>& asked, Model& model);

}  // namespace spp::model_keys
