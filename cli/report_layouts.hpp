// What the layouts of packed documents make of a plan (planner/layouts.hpp), as part of its answer.
#pragma once

#include "base/json.hpp"
#include "cli/output.hpp"
#include "planner/layouts.hpp"

#include <string>
#include <vector>

namespace spp::cli {

/// "layouts" of a plan's document; null for no layouts.
Json layouts_json(const std::vector<LayoutWork>& layouts);
/// A table of them and a sentence on which wins; "" for no layouts.
std::string layouts_text(const std::vector<LayoutWork>& layouts, const Style& style);

}  // namespace spp::cli
