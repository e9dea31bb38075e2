// What a table of candidates can say of each, column by column.
#pragma once

#include "planner/plan.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

/// A column of the candidates, shown only where it says something.
struct CandidateColumn {
  std::string_view title;
  bool right = true;
  std::string (*of)(const Candidate&);
  bool (*shown)(const Candidate&) = [](const Candidate&) { return true; };
  std::string_view shared;  // how the value is called where all have it; "": each row says it
  int spare = 0;            // the least is left out first where there is no room; 0: never
  std::string_view words;   // what it is, for the legend; "": its title says it
};

/// Degrees, batch and what else of a plan a request leaves open.
std::vector<CandidateColumn> plan_columns(const Request& request);
/// The step, with half its interval.
std::vector<CandidateColumn> time_columns();
/// What is exposed, memory, the longest sequence.
std::vector<CandidateColumn> other_columns(const Request& request);

}  // namespace spp::cli
