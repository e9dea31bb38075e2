// read_model: which document it is, and the decoder (llm). Diffusion transformers:
// model_read_dit.cpp.
#include "transformer/model_read.hpp"

#include "base/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace spp {
namespace model_keys {

std::optional<JsonView> find_any(const JsonView& config, Names names) {
  for (const std::string_view name : names) {
    if (auto found = config.find(name)) {
      return found;
    }
  }
  return std::nullopt;
}

JsonView need_any(const JsonView& config, Names names) {
  if (auto found = find_any(config, names)) {
    return *found;
  }
  const std::vector<std::string_view> others(names.begin() + 1, names.end());
  config.fail(fmt::format(
      "key '{}' is missing{}", *names.begin(),
      others.empty() ? std::string() : fmt::format(" (or {})", fmt::join(others, ", "))));
}

bool flag(const JsonView& config, std::string_view key, bool otherwise) {
  const auto found = config.find(key);
  return found ? found->boolean() : otherwise;
}

std::string activation_name(const JsonView& config) {
  const auto said = find_any(
      config, {"hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act"});
  return said && said->value().is_string() ? said->string() : "";
}

Activation activation_of(std::string_view name) {
  if (name == "silu" || name == "swish" || name == "swiglu") {
    return Activation::silu;
  }
  if (name == "quick_gelu") {
    return Activation::quick_gelu;
  }
  if (name == "relu2") {
    return Activation::squared_relu;
  }
  return name.starts_with("gelu") ? Activation::gelu : Activation::other;
}

std::string said_as(const JsonView& value, std::string_view key) {
  constexpr std::size_t longest = 40;
  const Json& json = value.value();
  const std::string text = json.is_string() ? json.get<std::string>() : json.dump();
  return json.is_structured() || text.size() > longest ? std::string(key)
                                                       : fmt::format("{} {}", key, text);
}

std::string PerLayer::range() const { return fmt::format("{} to {}", least, value); }

PerLayer per_layer(const JsonView& view, std::int64_t max, std::int64_t layers) {
  if (!view.value().is_array()) {
    const std::int64_t value = view.integer(1, max);
    return {.value = value, .least = value};
  }
  if (std::cmp_not_equal(view.value().size(), layers)) {
    view.fail(fmt::format("{} numbers for {} layers", view.value().size(), layers));
  }
  PerLayer result{.value = 0, .least = max};
  for (const JsonView& element : view.elements()) {
    const std::int64_t value = element.integer(1, max);
    result.value = std::max(result.value, value);
    result.least = std::min(result.least, value);
  }
  return result;
}

std::optional<std::string> experts(const JsonView& config, std::int64_t layers) {
  const auto count = find_any(config, expert_counts);
  if (!count || count->value() == 0) {
    return std::nullopt;
  }
  const PerLayer number = per_layer(*count, most_experts, layers);
  if (number.value == 1) {
    return std::nullopt;
  }
  const auto top = find_any(config, experts_per_token);
  return top ? fmt::format("mixture of experts ({} experts, top {})", number.value,
                           per_layer(*top, most_experts, layers).value)
             : fmt::format("mixture of experts ({} experts)", number.value);
}

std::optional<JsonView> hybrid_pattern(const JsonView& config,
                                       const std::optional<JsonView>& wrapper) {
  constexpr std::string_view key = "hybrid_override_pattern";
  const auto pattern = config.find(key);
  return pattern || !wrapper ? pattern : wrapper->find(key);
}

bool experts_uneven(const JsonView& config) {
  const auto often = config.find("moe_layer_freq");
  const auto dense = config.find("mlp_only_layers");
  return (often && often->value() != 1) ||
         (dense && !(dense->value().is_array() && dense->value().empty()));
}

std::string not_costed_line(const std::vector<std::string>& reasons) {
  if (reasons.empty()) {
    return "";
  }
  if (reasons.size() == 1) {
    return reasons.front() + " is not costed yet";
  }
  const auto last = reasons.end() - 1;
  return fmt::format("{} and {} are not costed yet", fmt::join(reasons.begin(), last, ", "), *last);
}

}  // namespace model_keys

namespace {

/// A diffusion transformer has no vocabulary and names itself, or its heads in one of these ways.
bool looks_like_diffusion(const JsonView& config) {
  return !config.find("vocab_size") &&
         model_keys::find_any(config, {"_class_name", "attention_head_dim", "heads_num"});
}

/// Meta's own file beside its weights: no config.json, and without the width of the MLP.
void refuse_params_json(const JsonView& config) {
  if (config.find("dim") && config.find("n_layers") && config.find("n_heads")) {
    config.fail(
        "has the keys of Meta's params.json (dim, n_layers, n_heads); expected those of a "
        "config.json (hidden_size, num_hidden_layers)");
  }
}

/// The decoder of a multimodal checkpoint lies a level deeper, of one that speaks as well two.
JsonView decoder_of(const JsonView& config) {
  for (const std::string_view key :
       {"text_config", "llm_config", "language_config", "thinker_config"}) {
    if (const auto nested = config.find(key); nested && nested->value().is_object()) {
      return decoder_of(*nested);
    }
  }
  return config;
}

void read_published(const JsonView& config, const std::optional<JsonView>& wrapper, Model& model) {
  refuse_params_json(config);
  model_keys::read_decoder(decoder_of(config), wrapper, config, model);
}

/// "…/Qwen2.5-7B/config.json" -> "Qwen2.5-7B".
std::string name_of(const std::filesystem::path& file) {
  const std::string folder = file.parent_path().filename().string();
  return file.stem() == "config" && !folder.empty() ? folder : file.stem().string();
}

}  // namespace

Model read_model(const Json& document, const std::string& file) {
  const JsonView view(document, file);
  if (!document.is_object()) {
    view.fail("is not a model (an object with the keys of a config.json)");
  }
  Model model;
  if (!view.find("format")) {
    model.name = name_of(file);
    if (looks_like_diffusion(view)) {
      model_keys::read_diffusion(view, model);
    } else {
      read_published(view, std::nullopt, model);
    }
    return model;
  }
  expect_format(view, "sp-plan/model");
  view.allow_only({"format", "format_version", "name", "aliases", "kind", "nested_under", "config",
                   "layer_types_count", "hybrid_override_pattern", "hybrid_override_pattern_count",
                   "source", "note"});
  model.name = view.at("name").string();
  const JsonView kind = view.at("kind");
  const JsonView config = view.at("config");
  if (kind.string() == "llm") {
    read_published(config, view, model);
  } else if (kind.string() == "dit") {
    model_keys::read_diffusion(config, model);
  } else {
    kind.fail(fmt::format("'{}' is not 'llm' or 'dit'", kind.string()));
  }
  return model;
}

}  // namespace spp
