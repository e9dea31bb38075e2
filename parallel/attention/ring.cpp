// Ring Attention with contiguous chunks. Liu, Zaharia, Abbeel (arXiv:2310.01889).
// Deviation: blocks that the causal mask hides altogether are skipped (they still travel on).
//
//   R = 4, key block held at steps 0..3 (causal: x = skipped)
//     rank 0: 0 x x x        rank 2: 2 1 0 x
//     rank 1: 1 0 x x        rank 3: 3 2 1 0     <- every step somebody works: time of the full
//     mask
//
// Closed form (per rank): forward R-1 hops of k and v, 2*B*(N/R)*H_kv*d elements each; backward the
// same, and R hops of d_k, d_v. FLOPs of all ranks: every allowed pair once; the busiest rank is
// the last one.
#include "parallel/attention/rotation.hpp"
#include "parallel/attention/strategy.hpp"

#include <array>

namespace spp::strategies::ring {
namespace {

constexpr std::array layouts{Layout::contiguous, Layout::document_contiguous};

}  // namespace

extern const Strategy entry{
    .name = "ring",
    .title = "Ring Attention",
    .paper = "arXiv:2310.01889",
    .degrees = {.ring = true},
    .layouts = layouts,
    .why_not = rotation_why_not,
    .build = build_rotation,
    .closed_form = rotation_closed_form,
    .behind_cache = true,
};

}  // namespace spp::strategies::ring
