// The core of the double ring: how blocks travel in windows (picture: double_ring.cpp).
#pragma once

#include "parallel/attention/compose.hpp"

namespace spp::parameters {
extern const Parameter window;  // w of the double ring: ranks of an inner ring
}

namespace spp::strategies {

BufferId double_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                        ForwardBuffers io);
Statistics double_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                           BackwardBuffers io);

}  // namespace spp::strategies
