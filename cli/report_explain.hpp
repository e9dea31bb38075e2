// plan --explain: the reasoning in full, behind the table.
#pragma once

#include "cli/output.hpp"
#include "planner/plan.hpp"

#include <string>

namespace spp::cli {

/// Every decision, the parts of every candidate beside each other, why each of the others loses,
/// and every plan that was rejected, by rule.
std::string explanation(const PlanResult& result, const Style& style);

}  // namespace spp::cli
