// A plan that does not fit the memory of its GPUs, in words.
#pragma once

#include "cli/request.hpp"
#include "planner/framework.hpp"

#include <string>

namespace spp::cli {

/// By how much, the longest sequence that fits, and of a training step what would save enough, of
/// what `framework`, if there is one, can run.
std::string does_not_fit(const Job& job, const StepPlan& plan, const Prediction& predicted,
                         const Framework* framework = nullptr);

}  // namespace spp::cli
