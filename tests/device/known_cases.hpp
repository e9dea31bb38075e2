// Cases that a device's kernels know.
#pragma once

#include "tests/conformance/cases.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace spp::test {

/// The reference kernels of a device know keys in two runs of rows (seen_rows.hpp), cuDNN's calls
/// in one, and refuse in one line what has more: keys gathered from many pieces of documents; of
/// cuDNN some group-casts, too.
inline bool is_known_to_devices(const SequencePlan& plan) {
  return !strategies::by_name(plan.strategy, "test").for_sparse_masks &&
         (plan.strategy != "all-gather" || !deals_documents(plan.layout));
}

inline std::vector<Case> known(std::vector<Case> all) {
  std::erase_if(all, [](const Case& c) { return !is_known_to_devices(c.plan); });
  return all;
}

}  // namespace spp::test
