// Results for people: tables as wide as the terminal, then what to conclude from them.
#pragma once

#include "cli/candidate_table.hpp"
#include "cli/output.hpp"
#include "cli/report_json.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

/// What was assumed, a line each, with a heading; "" for nothing.
std::string assumptions_text(const std::vector<Assumption>& assumptions, const Style& style);

/// Why a search left plans unsettled.
inline constexpr std::string_view search_ended =
    "the search ended before (--budget, this machine's memory, or Ctrl-C)";

/// One phase of `what`, simulated: where its time goes, and its longest waits.
std::string call_text(const sim::Simulation& simulation, std::string_view what, Phase phase,
                      const Style& style);

std::string plan_table(const Job& job, const PlanResult& result, Seconds elapsed,
                       const Style& style);
std::string simulation_table(const Job& job, const Evaluation& evaluation, const Style& style);
std::string verification_table(const Verification& verification, const Job* job,
                               const Style& style);

}  // namespace spp::cli
