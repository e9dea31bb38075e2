// StarTrail-C. Liu et al. (arXiv:2407.00611); the algorithm and its proof: startrail_core.hpp.
//
// Teams of C ranks share queries; C*C sub-rings of S = R/C^2 ranks carry the keys. Both placements:
// order ulysses,team,ring has a team on adjacent ranks (the paper's Collect_intra),
// ulysses,ring,team a sub-ring (P2P_intra). Layouts are at the level of teams: zigzag gives team T
// the chunks T and 2D-1-T of 2D.
//
//   R = 8, C = 2 (teams {0,1} {2,3} {4,5} {6,7}): key blocks by step
//     rank 0: 0 2   rank 1: 1 3   rank 2: 2 0   rank 3: 3 1   rank 4: 0 2   rank 5: 1 3 …
//     ring hops 0<->2, 1<->3, 4<->6, 5<->7; the initial exchange is the permutation
//     0->0 1->4 2->1 3->5 4->2 5->6 6->3 7->7
//
// Closed form (elements per rank, MHA, A = B*N*H*d/R): forward p2p 2*C*A for the initial exchange
// (less the gcd(C-1, S-1) + 1 ranks that send to themselves) and S-1 hops of 2*C*A; team
// collectives 4*(C-1)*A, and lse. Backward: the exchange and S-1 hops of q and d_out (2*C*A), S-1
// hops and the return of d_q (C*A); gathers of q, d_out, k, v and reduce-scatters of d_q, d_k, d_v:
// 7*(C-1)*A. Memory forward, S > 1: 4*C*A of travelling k and v, 2*C*A of q and partial out, its
// fp32 sum. Code, with the busiest ranks: startrail_closed_form.cpp.
#include "parallel/attention/startrail_core.hpp"
#include "parallel/attention/strategy.hpp"

#include <array>

namespace spp::strategies::startrail {
namespace {

constexpr std::array layouts{Layout::zigzag, Layout::contiguous, Layout::striped,
                             Layout::document_zigzag};

}  // namespace

extern const Strategy entry{
    .name = "startrail",
    .title = "StarTrail",
    .paper = "arXiv:2407.00611",
    .degrees = {.ring = true},
    .parameters = startrail_parameters,
    .layouts = layouts,
    .why_not = startrail_why_not,
    .build = build_startrail,
    .closed_form = startrail_closed_form,
};

}  // namespace spp::strategies::startrail
