// Results for people: tables of at most 100 characters, then what to conclude from them.
#pragma once

#include "cli/output.hpp"
#include "cli/report_json.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

struct TableRow {
  std::string label;
  const Candidate* candidate = nullptr;  // null: `otherwise` stands in its place
  std::string otherwise;
};
/// Candidates, each behind its label, in the columns in which they say something; the first line is
/// the heading, `title` that of the labels.
std::vector<std::string> candidate_lines(std::string_view title, const std::vector<TableRow>& rows,
                                         const Request& request);
/// What was assumed, a line each, with a heading; "" for nothing.
std::string assumptions_text(const std::vector<Assumption>& assumptions, const Style& style);

std::string plan_table(const Job& job, const PlanResult& result, Seconds elapsed,
                       const Style& style);
std::string simulation_table(const Job& job, const Evaluation& evaluation, const Style& style);
std::string verification_table(const Verification& verification, const Job* job,
                               const Style& style);

}  // namespace spp::cli
