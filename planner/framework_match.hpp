// Which of a framework's ways a plan is: for what it cannot run, and for the text that it takes.
#pragma once

#include "planner/framework.hpp"

#include <vector>

namespace spp {

/// The way that the plan is, or comes nearest to, and what keeps it from it.
struct FrameworkMatch {
  const Way* way = nullptr;  // null: the framework does not have the plan's strategy
  std::vector<Cannot> reasons;
};

FrameworkMatch match(const Framework& framework, const SequencePlan& plan, const Problem& problem,
                     const AttentionTraits& traits);

}  // namespace spp
