// USP: Ulysses inside, ring outside. Fang and Zhao (arXiv:2405.07719); yunchang.
//
// The Ulysses all-to-alls gather the tokens of a Ulysses group, whose members then each take part
// in a ring over the R groups with their own heads. `order` says which of the two is innermost
// (yunchang's use_ulysses_low).
//
//   U = 2, R = 2, order ulysses,ring: Ulysses groups {0,1} {2,3}, rings {0,2} {1,3}
//                 order ring,ulysses: Ulysses groups {0,2} {1,3}, rings {0,1} {2,3}
//
// Closed form: the all-to-alls of Ulysses over U ranks with N/(U*R) tokens each, plus the hops of a
// ring of R with 1/U of the heads. FLOPs 1/P of the whole with zigzag.
#include "parallel/attention/rotation.hpp"
#include "parallel/attention/strategy.hpp"

#include <array>

namespace spp::strategies::usp {
namespace {

std::string why_not_usp(const Problem&, const SequencePlan& plan) {
  return plan.ulysses < 2 || plan.ring < 2
             ? "USP needs both degrees above 1 (else it is Ulysses or a ring)"
             : "";
}

constexpr std::array layouts{Layout::zigzag, Layout::contiguous, Layout::striped,
                             Layout::document_zigzag};

}  // namespace

extern const Strategy entry{
    .name = "usp",
    .title = "USP: Ulysses x ring",
    .paper = "arXiv:2405.07719",
    .degrees = {.ulysses = true, .ring = true},
    .layouts = layouts,
    .why_not = why_not_usp,
    .build = build_rotation,
    .closed_form = rotation_closed_form,
    .behind_cache = true,
};

}  // namespace spp::strategies::usp
