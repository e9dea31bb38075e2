// What was simulated op by op, phase by phase: attention calls, a layer, a step.
#pragma once

#include "base/json.hpp"
#include "report/sheet.hpp"

#include <string>

namespace spp::report {

/// A bar for each phase, of its parts; who waited longest, and for which pair. `calls`: a list of
/// phases as `simulate` writes them; nothing where it is empty.
void add_calls(Sheet& sheet, const JsonView& calls, std::string title);

}  // namespace spp::report
