// What the commands that search have in common: their request, and why there is no answer.
#pragma once

#include "cli/request.hpp"

#include <string>

namespace spp::cli {

inline constexpr Option objective_option{"objective", "time|tokens_per_s|memory",
                                         "what to rank by (default: time)"};
inline constexpr Option budget_option{
    "budget", "SECONDS",
    "search for so long at most, about: a million ops a second count, so that the answer is "
    "the same everywhere (default: 8); plan, where nothing fits: as long again to look for what "
    "does"};
inline constexpr Option framework_option{
    "framework", "NAME",
    "search only what this framework can run: megatron, deepspeed, … (see export --list)"};

/// A job whose request says what is searched, how long, by what and for whom. `top`: candidates
/// that are wanted.
Job read_search(Arguments arguments, int top);

/// Why the answer is "none", with the nearest that would do.
std::string nothing_fits(const Request& request, const PlanResult& result);
std::string no_legal_plan(const Request& request, const PlanResult& result);

}  // namespace spp::cli
