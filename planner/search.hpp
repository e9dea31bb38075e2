// Inside of plan(): which plans are simulated, and which are only bounded.
#pragma once

#include "planner/evaluator.hpp"

namespace spp {

/// A plan this much slower than the fastest is not recommended, however simple it is. Searches find
/// all that are nearer, so that which plans tie does not depend on how many are shown.
constexpr double most_slower = 0.1;
/// Of a step: below what any run repeats to.
constexpr double least_gain = 0.005;

/// Whether the constants' spreads and the errors of measured blocks allow that `a` is not slower
/// than `b` after all. Plans share their constants, so an error moves both: only the difference of
/// each component is uncertain.
bool within_reach(const Prediction& a, const Prediction& b, const ComponentSeconds& spreads);

/// Sorts simulated candidates, finds the ties of the best and puts the simplest of them first,
/// unless a faster plan is as simple. `spreads`: relative, of the components.
void rank(PlanResult& result, const Request& request, const ComponentSeconds& spreads);
/// Puts plans that were only bounded behind the ranked ones, as far as there is room.
void add_bounded(PlanResult& result, const Request& request, std::vector<Candidate> bounded);

/// Is told of every plan that is simulated to its end, and fits.
using OnSimulated = std::function<void(const Evaluation&)>;

/// Fills `result.candidates` with the simulated plans that fit, in no order, and counts. Returns
/// the plans that were to be simulated and were not, the most promising first, at most
/// request.top of them. `legal`: all plans.
std::vector<Candidate> search(const Request& request, const Evaluator& evaluator,
                              const std::vector<SequencePlan>& legal, const Watch& watch,
                              PlanResult& result, const OnSimulated& on_simulated = {});

}  // namespace spp
