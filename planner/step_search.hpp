// The search over whole steps: which plans are evaluated.
//
// The space (step_space.hpp) bounds every combination of degrees; the most promising comes first.
// Its memory around attention is then worked out; if that fits, its attention is searched by itself
// (step_attention.hpp), whose plans are bounded with it; when one of them comes first, or is the
// first of its shape, it is evaluated with every ZeRO stage that may be the fastest. A leaner plan
// of attention is simulated only when what it takes at least comes first. The search ends when no
// bound is below the last plan that is shown, or when Request::most is spent.
#pragma once

#include "planner/plan.hpp"

namespace spp {

PlanResult plan_step(const Request& request, const Watch& watch);

}  // namespace spp
