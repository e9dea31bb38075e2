// Inside of read_model: finding one quantity under the names that configs give it.
#pragma once

#include "base/json.hpp"
#include "transformer/model.hpp"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp::model_keys {

using Names = std::span<const std::string_view>;
using NameList = std::initializer_list<std::string_view>;

/// Largest values that are believed. Products of them (parameters, bytes of all states) stay below
/// 2^63.
constexpr std::int64_t most_layers = 10'000;
constexpr std::int64_t most_heads = 4'096;
constexpr std::int64_t most_head_dim = 2'048;
constexpr std::int64_t most_width = std::int64_t{1} << 18;  // hidden
constexpr std::int64_t most_ffn = std::int64_t{1} << 21;
constexpr std::int64_t most_vocab = std::int64_t{1} << 26;
constexpr std::int64_t most_tokens = std::int64_t{1} << 40;
constexpr std::int64_t most_experts = std::int64_t{1} << 14;

/// The first of `names` that is there and not null.
std::optional<JsonView> find_any(const JsonView& config, Names names);
inline std::optional<JsonView> find_any(const JsonView& config, NameList names) {
  return find_any(config, Names(names.begin(), names.size()));
}
/// The same; missing is an error that lists the names.
JsonView need_any(const JsonView& config, Names names);
inline JsonView need_any(const JsonView& config, NameList names) {
  return need_any(config, Names(names.begin(), names.size()));
}
/// True if the key is there and true; `otherwise` if it is missing.
bool flag(const JsonView& config, std::string_view key, bool otherwise = false);

/// Of an MLP or of experts; "" where it is not said.
std::string activation_name(const JsonView& config);

/// Of the names that configs have for it; SiLU as a gate (swiglu) too.
Activation activation_of(std::string_view name);

/// "key value" for a message; of a list or an object the key alone.
std::string said_as(const JsonView& value, std::string_view key);

/// A count that may be one number for all layers, or a list with one for each.
struct PerLayer {
  std::int64_t value = 0;  // the largest
  std::int64_t least = 0;
  [[nodiscard]] bool varies() const { return least != value; }
  /// "4 to 8".
  [[nodiscard]] std::string range() const;
};
/// InputError: a list of another length.
PerLayer per_layer(const JsonView& view, std::int64_t max, std::int64_t layers);

inline constexpr std::array<std::string_view, 6> expert_counts{
    "num_local_experts",  "num_experts",     "n_routed_experts",
    "num_routed_experts", "moe_num_experts", "moe_num_primary_experts"};
inline constexpr std::array<std::string_view, 9> experts_per_token{
    "num_experts_per_tok",
    "num_activated_experts",
    "moe_topk",
    "moe_top_k",
    "experts_per_token",
    "top_k_experts",
    "moe_k",
    "num_experts_per_token",
    "moe_num_active_primary_experts"};

/// "mixture of experts (8 experts, top 2)", when there is more than one expert.
std::optional<std::string> experts(const JsonView& config, std::int64_t layers);

/// One letter a layer, of the config or of our frame around it.
std::optional<JsonView> hybrid_pattern(const JsonView& config,
                                       const std::optional<JsonView>& wrapper);

/// Which layers have experts is said in a way that Experts does not express.
bool experts_uneven(const JsonView& config);

/// Puts the reasons into one line, "A and B are not costed yet"; nothing for no reasons.
std::string not_costed_line(const std::vector<std::string>& reasons);

/// Fills what the kinds have in common and refuses heads that do not divide. A key that is missing
/// in `published` is named by its first name. `outer`: the whole document.
void read_decoder(const JsonView& published, const std::optional<JsonView>& wrapper,
                  const JsonView& outer, Model& model);
void read_diffusion(const JsonView& config, Model& model);

}  // namespace spp::model_keys
