// Candidates for people: a row each, in the columns in which they differ, as wide as there is room.
//
//   #  plan              inner           step  than 1  most of that      memory  parts
//   1  usp U8xR4 zigzag  ulysses  30.3 s ±17%                           69.4 GB  AAAAAAAGGGs
//   2  usp U4xR8 zigzag  ulysses  31.1 s ±17%  +2.6 %  small +342 ms    69.4 GB  AAAAAAAGGGss
//
// What all have in common is said once. A bar has a letter for each part of the step, as long as
// that part is beside the slowest; the letters have colours only on a terminal.
#pragma once

#include "cli/output.hpp"
#include "planner/plan.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

struct TableRow {
  std::string label;
  const Candidate* candidate = nullptr;  // null: `otherwise` stands in its place
  std::string otherwise;
};

struct CandidateTable {
  std::vector<std::string> lines;  // the heading, then a line for each row
  std::string common;              // "TP 2, ZeRO 3, full recomputation"; "": nothing, or one row
  std::string letters;             // what the bars' letters mean; "": there are no bars
  std::string words;               // what stands in names and headings, in field's terms
};

struct TableWish {
  std::string_view title;   // of the labels
  std::size_t width = 100;  // characters of a line at most
  bool compare = true;      // rows are alternatives: against the first, and what they share once
  Style style;
};

CandidateTable candidate_table(const std::vector<TableRow>& rows, const Request& request,
                               const TableWish& wish);

/// "attention kernels", "waits of tensor parallelism": a part of the step for people.
std::string_view words_of(StepPart part);

/// The part of the step in which two predictions differ most, in the direction in which the whole
/// differs, and by how much: "tensor +418 ms".
std::string decisive_part(const Prediction& reference, const Prediction& other);

}  // namespace spp::cli
