// --framework, --emit, and the framework behind --stack: what they mean for a request, and how an
// exported plan is shown. Shared by plan and export.
#pragma once

#include "cli/output.hpp"
#include "cli/request.hpp"
#include "planner/framework.hpp"

#include <string>
#include <vector>

namespace spp::cli {

/// The framework that has to run the plan: that of --framework, else of --stack; nothing: any.
const Framework* framework_of(const Arguments& arguments);

/// Defaults of other options that follow from it (its stack, the phase and mask that it has), and
/// what was assumed for that. Before read_job().
std::vector<Assumption> adopt_framework(Arguments& arguments, const Framework& framework);

/// Member "export" of a plan's document, and the body of an export's.
Json to_json(const Exported& exported, const Candidate& wanted);
/// The same for people: what cannot be, the nearest that can, and the snippet as it is pasted.
std::string export_text(const Exported& exported, const Candidate& wanted, const Style& style);

/// "megatron cannot run usp U8xR4 striped: …": why no snippet is that of the wanted plan.
std::string cannot_text(const Exported& exported, const Candidate& wanted);

}  // namespace spp::cli
