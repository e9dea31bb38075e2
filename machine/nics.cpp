#include "machine/nics.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace spp {

int modelled_nics(int nics, int gpus) {
  int count = std::min(nics, gpus);
  while (gpus % count != 0) {
    --count;
  }
  return count;
}

std::string in_place_of(int nics, int modelled, double gigabits, int gpus) {
  return fmt::format(
      "{} of {:.0f} Gb/s in place of {}: as many as divide {} GPUs, with the rate of all", modelled,
      gigabits, nics, gpus);
}

}  // namespace spp
