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
//
// Under a window over contiguous chunks only the chunks just before are needed: the rotation ends
// after n of its R steps, and gradients go home from there in one message (below: n for R).
//
// Closed form, per rank: L = N/R tokens of this rank's heads; Q, K = bytes of their query and KV
// tile, Qw, Kw in the gradients' dtype, s = fp32 scalars of L tokens.
//   bytes   forward R-1 hops of 2K; backward R-1 hops of 2K and R hops of 2Kw
//   FLOPs   all allowed pairs; the busiest rank: those of the last ring chunk (sizes.hpp)
//   memory  beside inputs and outputs, R > 2: forward Q + 4K + s + fp32 sum of out;
//           backward Q + 6K + s + Qw + 4Kw; R = 2: 2K less; and Q for q or d_out inside Ulysses
#pragma once

#include "parallel/attention/compose.hpp"

namespace spp::strategies {

BufferId rotate_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                        ForwardBuffers io);
Statistics rotate_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                           BackwardBuffers io);

/// The schedule of a rotation over plan.ring ranks, inside Ulysses over plan.ulysses ranks.
Schedule build_rotation(const Problem& problem, const SequencePlan& plan, Phase phase,
                        const BuildOptions& options);
/// A ring of one rank is no ring.
std::string rotation_why_not(const Problem& problem, const SequencePlan& plan);

/// Closed forms, Ulysses terms included.
ClosedForm rotation_closed_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                                const BuildOptions& options);

}  // namespace spp::strategies
