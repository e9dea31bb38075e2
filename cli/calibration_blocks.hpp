// Which attention blocks a calibration measures.
#pragma once

#include "samples/series.hpp"

#include <vector>

namespace spp::cli {

/// The attention blocks of all legal plans of `problem` over `ranks`, forward and backward; blocks
/// that a profile cannot tell apart (machine/attention_table) once.
std::vector<AttentionBlock> blocks_of_plans(const Problem& problem, int ranks);

}  // namespace spp::cli
