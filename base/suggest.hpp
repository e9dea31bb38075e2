// "Did you mean": the known name nearest to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace spp {

/// Edit distance (insert, delete, replace, swap of neighbours), case-insensitive.
int edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `name` if it is near enough to be a typing error, else "".
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// " (did you mean 'x'?)" or, without a near name, " (one of: a, b, c)"; for the end of a message.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace spp
