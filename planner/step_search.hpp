// The search over whole steps: which plans are evaluated.
//
// The space (step_space.hpp) bounds every combination of degrees; the most promising comes first.
// Its attention is then searched by itself, once for each tensor degree, sequence degree and
// micro-batch, whose best plans and the leanest one are bounded with it; when one of them comes
// first, it is evaluated with every ZeRO stage that may be the fastest. The search ends when no
// bound is below the last plan that is shown, or when Request::most is spent.
#pragma once

#include "planner/plan.hpp"

namespace spp {

PlanResult plan_step(const Request& request, const Watch& watch);

}  // namespace spp
