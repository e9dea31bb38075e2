// DeepSpeed-Ulysses. Jacobs et al. (arXiv:2309.14509).
//
// All-to-alls turn "some tokens, all heads" into "all tokens, some heads"; attention itself is then
// local and whole. Heads that do not divide: HeadPolicy (KV heads replicated as in DeepSpeed ALST
// and verl, padded as in diffusers' ulysses_anything, or dealt out unevenly).
//
//   U = 4, 8 heads:  rank 1 before: tokens [N/4, N/2) x heads 0..7;  after: all tokens x heads 2..3
//
// Closed form (per rank): four all-to-alls forward (q, k, v, out) and four backward (d_out, d_q,
// d_k, d_v), each (U-1)/U of the local tensor; independent of the mask. FLOPs: 1/U of the whole.
#include "parallel/attention/rotation.hpp"
#include "parallel/attention/strategy.hpp"

#include <array>

namespace spp::strategies::ulysses {
namespace {

std::string why_not_ulysses(const Problem&, const SequencePlan& plan) {
  return plan.ranks() > 1 && plan.ulysses == 1 ? "a Ulysses degree of 1 splits nothing" : "";
}

constexpr std::array layouts{Layout::contiguous};

}  // namespace

extern const Strategy entry{
    .name = "ulysses",
    .title = "DeepSpeed-Ulysses",
    .paper = "arXiv:2309.14509",
    .degrees = {.ulysses = true},
    .layouts = layouts,
    .why_not = why_not_ulysses,
    .build = build_rotation,
    .closed_form = rotation_closed_form,
    .behind_cache = true,
};

}  // namespace spp::strategies::ulysses
