// --plan FILE: a plan that one of our documents describes, and its request.
#pragma once

#include "cli/options.hpp"

namespace spp::cli {

/// Whether a plan costs what it does on the software that it was made for, or on our own runtime.
enum class CostedOn : std::uint8_t { its_stack, sp_plan };

/// What the file says about work and machine becomes the default of the options that were not
/// given; its plan is fixed. Nothing without --plan. InputError if degrees were given, too.
void adopt_plan_file(Arguments& arguments, CostedOn software = CostedOn::sp_plan);

}  // namespace spp::cli
