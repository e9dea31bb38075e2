// Zigzag ring. zhuzilin/ring-flash-attention; the "dual chunk swap" of Megatron-LM and
// TransformerEngine.
//
// The sequence is cut into 2R chunks, rank r holds chunks r and 2R-1-r. Under the causal mask every
// block off the diagonal is then exactly half needed, on every rank at every step:
//
//   R = 4 (8 chunks), rank 1 holds 1,6:   step 0: own block, causal          "diagonal"
//                                         step 1: block 0 = 0,7: q 1,6 x k 0  "lower"
//                                         step 2: block 3 = 3,4: q 6 x k 3,4  "upper"
//                                         step 3: block 2 = 2,5: q 6 x k 2,5  "upper"
//
// document-zigzag does so with every packed document (THD): all of the above holds of each.
//
// Closed form: bytes as Ring Attention; FLOPs are the same on every rank.
#include "parallel/attention/rotation.hpp"
#include "parallel/attention/strategy.hpp"

#include <array>

namespace spp::strategies::zigzag_ring {
namespace {

constexpr std::array layouts{Layout::zigzag, Layout::document_zigzag};

}  // namespace

extern const Strategy entry{
    .name = "zigzag-ring",
    .title = "Zigzag ring",
    .paper = "zhuzilin/ring-flash-attention; Megatron-LM context parallelism",
    .degrees = {.ring = true},
    .layouts = layouts,
    .why_not = rotation_why_not,
    .build = build_rotation,
    .closed_form = rotation_closed_form,
    .behind_cache = true,
};

}  // namespace spp::strategies::zigzag_ring
