// Inside of read_model: of which kinds a decoder's layers are. Attention before an MLP or experts,
// to all tokens, a window or a chunk; or what only the code of their makers knows.
#pragma once

#include "base/json.hpp"
#include "transformer/model.hpp"
#include "transformer/model_read_family.hpp"

#include <optional>
#include <string>
#include <vector>

namespace spp::model_keys {

/// Why a model is not costed, as far as keys alone say it: a config of such layers need not have
/// what those of usual ones have. `outer`: the whole document.
std::vector<std::string> reasons_by_keys(const JsonView& config,
                                         const std::optional<JsonView>& wrapper,
                                         const JsonView& outer, const Family& family);

/// Tokens see those behind them: in words why, by keys and by the class that uses the weights.
std::optional<std::string> looks_both_ways(const JsonView& config, const JsonView& outer);

/// Which layers see which tokens; a reason where that is not known.
std::optional<std::string> read_masks(const JsonView& config,
                                      const std::optional<JsonView>& wrapper, const Family& family,
                                      Model& model);

}  // namespace spp::model_keys
