// What this machine can take, asked before anything is built. What goes beyond is refused in one
// line, which says how much it would be, how much may be, and what to do; --force goes on.
#pragma once

#include "cli/options.hpp"
#include "planner/plan.hpp"

#include <string>

namespace spp::cli {

inline constexpr Option force_option{
    "force", "", "go on although this machine has too little memory, or it takes very long"};

/// Of what this process may still allocate, the part that one command may plan to use.
constexpr double memory_part = 0.75;

/// Bytes that one command may plan to use; the largest number where nothing is known.
Bytes usable_memory();

/// What a search may take that goes on for so many seconds, about: a million ops a second count, so
/// that the same question has the same answer everywhere.
inline constexpr double search_seconds = 8;
Effort search_limit(double seconds = search_seconds);

/// Refusal (nothing fits) if `effort` goes beyond usable_memory() or takes longer than a quarter of
/// an hour, about; not with --force. `what` begins the line: "the proof of usp U8xR4".
/// `instead`: "fewer ranks need less".
void expect_feasible(const Arguments& arguments, const std::string& what, const Effort& effort,
                     const std::string& instead);

/// Seconds given as an option: above 0, at most a day.
double seconds(const Arguments& arguments, std::string_view option, std::string_view otherwise);

}  // namespace spp::cli
