// --plan FILE: a plan that one of our documents describes, and its request.
#pragma once

#include "cli/options.hpp"
#include "planner/plan.hpp"

#include <optional>
#include <string>

namespace spp::cli {

/// Whether a plan costs what it does on the software that it was made for, or on our own runtime;
/// nothing: its machine is left out.
enum class CostedOn : std::uint8_t { its_stack, sp_plan, nothing };

/// Which ranks work together, as a file says beside the degrees and orders that make it so.
struct SaidGroups {
  Json groups;
  std::string where;
};

/// What the file says about work and machine becomes the default of the options that were not
/// given; its plan is fixed. Nothing without --plan. InputError if degrees were given, too, or if
/// the file's plan is none for what its request asks.
std::optional<SaidGroups> adopt_plan_file(Arguments& arguments,
                                          CostedOn software = CostedOn::sp_plan);

/// InputError if the plan that was read from the file has other groups than the file says.
void expect_groups(const std::optional<SaidGroups>& said, const StepPlan& plan);

}  // namespace spp::cli
