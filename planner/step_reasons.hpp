// Why the recommended plan of a step has its degrees: each against the nearest other that there is,
// evaluated where the search had left it out.
#pragma once

#include "planner/step_trials.hpp"

#include <string>
#include <vector>

namespace spp {

/// A sentence for each degree of the winner, a plan of `trials` (decisions.hpp). What else is
/// evaluated for it is kept there, too: it may come before the winner.
std::vector<std::string> reasons_of(const Candidate& winner, StepTrials& trials);

}  // namespace spp
