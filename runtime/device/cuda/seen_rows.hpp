// Which keys each query of a block sees, as a table that kernels can read.
#pragma once

#include "runtime/device/cuda/attention_ops.cuh"
#include "runtime/kernels/attention.hpp"

#include <vector>

namespace spp::runtime::cuda {

/// By query, in the order of visible.q_tokens; rows of the keys are in that of visible.k_tokens.
std::vector<SeenKeyRows> seen_rows(const Visibility& visible);

}  // namespace spp::runtime::cuda
