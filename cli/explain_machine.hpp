// A machine in sentences, and as a drawing of text: which GPUs share what, the way of a ring's hop,
// what an all-to-all waits for. For `topology check` and `topology import`.
#pragma once

#include "machine/machine.hpp"

#include <string>
#include <vector>

namespace spp::cli {

struct Explanation {
  std::vector<std::string> sentences;
  std::vector<std::string> drawing;  // lines, of at most 78 characters
};

Explanation explain(const MachineSpec& machine);

}  // namespace spp::cli
