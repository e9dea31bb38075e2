// Results for people: tables of at most 100 characters, then what to conclude from them.
#pragma once

#include "cli/output.hpp"
#include "cli/report_json.hpp"

#include <string>

namespace spp::cli {

std::string plan_table(const Job& job, const PlanResult& result, Seconds elapsed,
                       const Style& style);
std::string simulation_table(const Job& job, const Evaluation& evaluation, const Style& style);
std::string verification_table(const Verification& verification, const Job* job,
                               const Style& style);

}  // namespace spp::cli
