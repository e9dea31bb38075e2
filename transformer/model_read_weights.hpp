// Inside of read_model: architectures that are one maker's. Hybrid models are read by a function
// each. Of layers that no list of operations describes (layer.hpp), so that they are not costed,
// the weights are counted tensor by tensor, as the modelling code of
// Hugging Face transformers creates them (src/transformers/models/<model_type>/modeling_*.py),
// with that code's names in comments. Counted are the decoder's: no encoders of images or sound, no
// layers that predict further tokens, no tables of token ids.
//
// What a config does not say is the default of its configuration class there
// (configuration_*.py beside it), and stands in Model::assumed with the name of that class.
#pragma once

#include "base/json.hpp"
#include "transformer/layer.hpp"
#include "transformer/model.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp::model_keys {

/// Into Model::assumed: what a config does not say and its class fills in, in words.
void assume_default(std::string_view what, std::string_view config_class, Model& model);

/// What there is to count from. `model` has what all decoders have in common, with experts.
struct Published {
  const JsonView& config;
  const std::optional<JsonView>& wrapper;  // our frame around it
  std::string_view config_class;           // "Qwen3_5TextConfig"
  Model& model;                            // its `assumed` and `extra_parameters` grow

  /// A number of the config, from `min` to `max`; `otherwise` where the key is missing.
  [[nodiscard]] std::int64_t number(std::string_view key, std::int64_t otherwise, std::int64_t max,
                                    std::int64_t min = 1) const;
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
  /// Something else that the class fills in.
  void assume(std::string_view what) const;
  /// The published list of the layers' kinds; nothing without one. InputError: not one a layer.
  [[nodiscard]] std::optional<std::vector<std::string>> kinds() const;
  /// The list that the class makes without one: each so many-th layer of one kind, the rest of
  /// another. InputError: our frame counts others.
  [[nodiscard]] std::vector<std::string> turns(std::int64_t every, std::string_view kind,
                                               std::string_view rest) const;
};

/// The layers that such a config describes, kind by kind; empty where a kind is not known.
using CountLayers = std::vector<LayerWeights> (*)(const Published&);

std::vector<LayerWeights> count_two_shapes(const Published&);  // Gemma 4 E2B, E4B

/// Fills in what the layers of a hybrid model are; a reason where its config does not say that.
using ReadHybrid = std::optional<std::string> (*)(const Published&);

std::optional<std::string> read_gated_delta(const Published&);  // Qwen3-Next, Qwen3.5
std::optional<std::string> read_one_by_one(const Published&);   // Nemotron-H, Nemotron 3
std::optional<std::string> read_two_shapes(const Published&);   // Gemma 4
std::optional<std::string> read_indexer(const Published&);      // DeepSeek-V3.2, GLM-5
std::optional<std::string> read_compressed(const Published&);   // DeepSeek-V4

/// One more layer: beside those of its kind, or the first of it.
void add_layer(std::vector<LayerWeights>& kinds, LayerWeights layer);

/// Weights of a part of a layer, and how many of them a token meets.
struct PartWeights {
  std::int64_t parameters = 0, active = 0;
};

}  // namespace spp::model_keys
