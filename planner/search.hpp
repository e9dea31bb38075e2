// Inside of plan(): which plans are simulated, and which are only bounded.
#pragma once

#include "planner/evaluator.hpp"

namespace spp {

/// Sorts simulated candidates, finds the ties of the best and puts the simplest of them first,
/// unless a faster plan is as simple. `spreads`: relative, of the components.
void rank(PlanResult& result, const Request& request, const ComponentSeconds& spreads);
/// Puts plans that were only bounded behind the ranked ones, as far as there is room.
void add_bounded(PlanResult& result, const Request& request, std::vector<Candidate> bounded);

/// Fills `result.candidates` with the simulated plans that fit, in no order, and counts. Returns
/// the plans that were to be simulated and were not, the most promising first, at most
/// request.top of them. `legal`: all plans.
std::vector<Candidate> search(const Request& request, const Evaluator& evaluator,
                              const std::vector<SequencePlan>& legal, const Watch& watch,
                              PlanResult& result);

}  // namespace spp
