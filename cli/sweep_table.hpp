// A sweep's result for people: for each line its lengths, and between them what changes where.
#pragma once

#include "cli/output.hpp"
#include "cli/sweep_document.hpp"

#include <string>

namespace spp::cli {

std::string sweep_table(const Sweep& sweep, const Style& style);

}  // namespace spp::cli
