// A sweep's result as a document (docs/schema/sweep.schema.json) and as comma-separated values.
#pragma once

#include "cli/request.hpp"
#include "planner/sweep.hpp"

#include <string>
#include <vector>

namespace spp::cli {

/// One line of a sweep: what was asked on one machine.
struct SweepLine {
  std::string model, topology;  // as they were given; "": a bare shape, a composed machine
  std::string gpus, nodes;      // as they were given; "": the default
  Job job;  // of the shortest length, with the assumptions of all; without a request where
            // `refused` says why
  std::string refused;  // no such question can be asked; "": it can
};

/// All of it. `cells[line]` is empty where the line is refused.
struct Sweep {
  std::vector<SweepLine> lines;
  std::vector<std::int64_t> lengths;
  SweepResult result;  // its lines are `lines`, those that are refused included
  Seconds elapsed{};
};

/// Assumptions of all lines, each once.
std::vector<Assumption> assumptions_of(const Sweep& sweep);

/// Why a cell has no plan; "" if it has one.
std::string reason_of(const SweepLine& line, const SweepCell& cell);

/// "refused", or the cell's verdict.
std::string verdict_text(const SweepLine& line, const SweepCell& cell);

Json sweep_document(const Sweep& sweep);

/// A row for each cell, as RFC 4180 has it.
std::string sweep_csv(const Sweep& sweep);

}  // namespace spp::cli
