// --plan FILE: a plan that one of our documents describes, and its request.
#pragma once

#include "cli/options.hpp"

namespace spp::cli {

/// What the file says about work and machine becomes the default of the options that were not
/// given; its plan is fixed. Nothing without --plan. InputError if degrees were given, too.
void adopt_plan_file(Arguments& arguments);

}  // namespace spp::cli
