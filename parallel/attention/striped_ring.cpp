// Striped Attention. Brandon et al. (arXiv:2311.09431).
//
// Rank r holds tokens r, r+R, r+2R, …; every block is then a causal block of its own, with the
// diagonal if the keys come from an earlier or the same rank, without it otherwise:
//
//   R = 4, 12 tokens, rank 1 holds 1,5,9:  x block 0 (0,4,8):  pairs 1+2+3 = 6
//                                          x block 2 (2,6,10): pairs 0+1+2 = 3
//
// Closed form: bytes as Ring Attention; FLOPs differ between ranks by the diagonals only (the last
// rank has most).
#include "parallel/attention/rotation.hpp"
#include "parallel/attention/strategy.hpp"

#include <array>

namespace spp::strategies::striped_ring {
namespace {

constexpr std::array layouts{Layout::striped};

}  // namespace

extern const Strategy entry{
    .name = "striped-ring",
    .title = "Striped ring",
    .paper = "Striped Attention, arXiv:2311.09431",
    .degrees = {.ring = true},
    .layouts = layouts,
    .why_not = rotation_why_not,
    .build = build_rotation,
    .closed_form = rotation_closed_form,
    .behind_cache = true,
};

}  // namespace spp::strategies::striped_ring
