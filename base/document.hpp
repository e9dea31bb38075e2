// How documents begin, and dates in them.
#pragma once

#include "base/json.hpp"

#include <string>
#include <string_view>

namespace spp {

/// {"format": "sp-plan/<kind>", "format_version", "tool_version"}: how every document begins.
Json document(std::string_view kind);
/// {"format", "format_version", "name"}: how a part of one begins that has a format of its own.
Json headed(std::string_view kind, std::string_view name);

/// Now, by strftime's `form`: "%Y-%m-%d".
std::string utc(const char* form);

}  // namespace spp
