// Network cards of a node that its description cannot have one by one: it deals out as many GPUs to
// each.
#pragma once

#include <string>

namespace spp {

/// As many of a node's cards as a description can have: a divisor of its GPUs.
int modelled_nics(int nics, int gpus);
/// That the modelled ones of `gigabits` each stand for all, as an assumption says it.
std::string in_place_of(int nics, int modelled, double gigabits, int gpus);

}  // namespace spp
