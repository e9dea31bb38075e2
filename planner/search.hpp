// Inside of plan(): which plans are simulated, and which are only bounded.
#pragma once

#include "planner/evaluator.hpp"

namespace spp {

/// Fills `result.candidates` with the simulated plans that fit, in no order, and counts. Returns
/// the plans that were to be simulated and were not, the most promising first, at most
/// request.top of them. `legal`: all plans.
std::vector<Candidate> search(const Request& request, const Evaluator& evaluator,
                              const std::vector<SequencePlan>& legal, const Watch& watch,
                              PlanResult& result);

}  // namespace spp
