// Ulysses x StarTrail: heads first, then StarTrail in the ring dimension. Named as possible by the
// StarTrail paper (arXiv:2407.00611, section 6) and shipped by nobody.
//
//   U = 2, R = 4, C = 2 (P = 8, order ulysses,team,ring): Ulysses groups {0,1} {2,3} {4,5} {6,7};
//   ranks 0,2,4,6 run StarTrail R = 4, C = 2 with the first half of the heads, 1,3,5,7 with the
//   second
//
// Closed form: the all-to-alls of Ulysses plus StarTrail's terms with 1/U of the heads.
#include "parallel/attention/startrail_core.hpp"
#include "parallel/attention/strategy.hpp"

#include <array>

namespace spp::strategies::ulysses_startrail {
namespace {

std::string why_not_both(const Problem& problem, const SequencePlan& plan) {
  return plan.ulysses < 2 ? "a Ulysses degree of 1 is plain StarTrail"
                          : startrail_why_not(problem, plan);
}

constexpr std::array layouts{Layout::zigzag, Layout::contiguous, Layout::striped,
                             Layout::document_zigzag};

}  // namespace

extern const Strategy entry{
    .name = "ulysses-startrail",
    .title = "Ulysses x StarTrail",
    .paper = "arXiv:2407.00611 with arXiv:2309.14509",
    .degrees = {.ulysses = true, .ring = true},
    .parameters = startrail_parameters,
    .layouts = layouts,
    .why_not = why_not_both,
    .build = build_startrail,
    .closed_form = startrail_closed_form,
};

}  // namespace spp::strategies::ulysses_startrail
