#include "transformer/model_read_weights.hpp"

#include "base/error.hpp"
#include "transformer/model_read.hpp"

#include <algorithm>
#include <utility>

namespace spp::model_keys {

void assume_default(std::string_view what, std::string_view config_class, Model& model) {
  model.assumed.push_back(
      fmt::format("{} (not in the config; default of transformers' {})", what, config_class));
}

std::int64_t Published::number(std::string_view key, std::int64_t otherwise, std::int64_t max,
                               std::int64_t min) const {
  if (const auto found = config.find(key)) {
    return found->integer(min, max);
  }
  assume(fmt::format("{} {}", key, otherwise));
  return otherwise;
}

bool Published::flag(std::string_view key, bool otherwise) const {
  if (const auto found = config.find(key)) {
    return found->boolean();
  }
  assume(fmt::format("{} {}", key, otherwise));
  return otherwise;
}

void Published::assume(std::string_view what) const { assume_default(what, config_class, model); }

std::optional<std::vector<std::string>> Published::kinds() const {
  const auto list = find_any(config, {"layer_types", "layers_block_type"});
  if (!list) {
    return std::nullopt;
  }
  std::vector<std::string> kinds;
  for (const JsonView& layer : list->elements()) {
    kinds.push_back(layer.string());
  }
  if (std::cmp_not_equal(kinds.size(), model.layers)) {
    list->fail(fmt::format("{} kinds for {} layers", kinds.size(), model.layers));
  }
  return kinds;
}

std::vector<std::string> Published::turns(std::int64_t every, std::string_view kind,
                                          std::string_view rest) const {
  std::vector<std::string> kinds;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    kinds.emplace_back((i + 1) % every == 0 ? kind : rest);
  }
  if (const auto counts = wrapper ? wrapper->find("layer_types_count") : std::nullopt) {
    for (const auto& [name, number] : counts->members()) {
      const auto made = std::ranges::count(kinds, name);
      if (number.integer(1, most_layers) != made) {
        number.fail(fmt::format("each {}th of {} layers makes {}", every, model.layers, made));
      }
    }
  }
  return kinds;
}

void add_layer(std::vector<LayerWeights>& kinds, LayerWeights layer) {
  for (LayerWeights& kind : kinds) {
    layer.layers = kind.layers;
    if (kind == layer) {
      ++kind.layers;
      return;
    }
  }
  layer.layers = 1;
  kinds.push_back(std::move(layer));
}

}  // namespace spp::model_keys
