// StarTrail-C in the ring dimension (arXiv:2407.00611 v2, Algorithms 1-3), forward and backward.
//
// R = C*C*S ranks: D = R/C teams of C members, in C team groups of S teams. Rank (T, m) is member m
// of team T = g*S + s. The team gathers q, k, v; the *initial exchange* gives (T, m) the keys of
// block C*s + m from member g of that team, so that each team group holds one complete copy of all
// blocks; then blocks rotate inside the sub-ring {(g, m, s): s = 0 … S-1}, S-1 hops; at step i rank
// (T, m) computes team T's queries against block C*((s - i) mod S) + m. The team combines its C
// partial results by an LSE-weighted reduce-scatter.
//
// Without the initial exchange all members would start from their own team's keys: half of the
// block pairs (C = 2) would be met twice and the others never. tests/conformance shows that it is
// refused.
//
// Backward: keys stay at home. The query side (q, d_out, lse, delta) takes the same initial
// exchange and ring, d_q travels one step behind it and goes straight back to its sender at the
// end; d_q, d_k and d_v are then partial sums over the members: reduce-scatter in the team. (The
// paper states the loops; gather, return and reductions are the only completion consistent with
// them.)
#pragma once

#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/compose.hpp"

#include <array>

namespace spp::strategies {

inline constexpr std::array startrail_parameters{&parameters::team};

BufferId startrail_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                           ForwardBuffers io);
Statistics startrail_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                              BackwardBuffers io);

/// The schedule of StarTrail over plan.ring ranks, inside Ulysses over plan.ulysses ranks.
Schedule build_startrail(const Problem& problem, const SequencePlan& plan, Phase phase,
                         const BuildOptions& options);
std::string startrail_why_not(const Problem& problem, const SequencePlan& plan);

/// Closed form with the Ulysses terms; C >= 2.
ClosedForm startrail_closed_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                                 const BuildOptions& options);

}  // namespace spp::strategies
