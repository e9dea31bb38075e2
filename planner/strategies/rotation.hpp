// The rotating core shared by all rings whose KV block passes once around all R ranks: plain,
// zigzag, striped (layout decides) and the ring dimension of USP.
//
// Forward, step i = 0 … R-1 on ring position r: attend to block (r - i) mod R while block
// (r - i - 1) mod R arrives from the previous rank; two receive buffers. Partial results are merged
// in fp32. Parts of a block that the mask hides are not computed, the block still travels on.
//
// Backward: k and v rotate as before, and d_k, d_v travel one step behind them on a second stream,
// so that a block's gradient visits the same ranks; after the last step one more hop brings it home
// (R hops; ring-flash-attention does the same).
#pragma once

#include "planner/strategies/compose.hpp"

namespace spp::strategies {

void rotate_forward(ProgramBuilder& b, const CoreContext& c, ForwardBuffers io);
void rotate_backward(ProgramBuilder& b, const CoreContext& c, BackwardBuffers io);

/// The schedule of a rotation over plan.ring ranks, inside Ulysses over plan.ulysses ranks.
Schedule build_rotation(const Problem& problem, const SequencePlan& plan, Phase phase,
                        const BuildOptions& options);
/// A ring of one rank is no ring.
std::string rotation_why_not(const Problem& problem, const SequencePlan& plan);

/// Closed forms, Ulysses terms included.
ClosedForm rotation_closed_form(const Problem& problem, const SequencePlan& plan, Phase phase,
                                const BuildOptions& options);

}  // namespace spp::strategies
