// Keys of corpus files: which are known, and which are a slip of one. A source's own words pass; a
// number of its own passes, too, but is told of, since it may have been meant for us.
#pragma once

#include "base/json.hpp"

#include <set>
#include <string>
#include <vector>

namespace spp::regress {

/// Refuses a key that resembles one of `known`; what else a source says passes. InputError, also
/// if `object` is none.
void refuse_slips(const JsonView& object, const std::vector<std::string>& known);

/// The same for a point or a workload. Adds the names of numbers (lists, objects) that are neither
/// known nor what a source derived ("…_printed") to `unread`.
void refuse_slips_of_point(const JsonView& object, std::set<std::string>& unread);

}  // namespace spp::regress
