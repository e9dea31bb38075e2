// Where the ranks of a transport are.
#pragma once

#include "runtime/comm/transport.hpp"
#include "samples/calibration.hpp"

#include <string>
#include <vector>

namespace spp::runtime {

/// All ranks together. InputError unless the ranks of a host are neighbours and equally many.
Hosts find_hosts(Transport& transport);

/// All ranks together: where each of them runs, a line each: its host, its CPU, the cores that it
/// may use. What was measured elsewhere is not comparable.
std::vector<std::string> describe_places(Transport& transport);

/// All ranks together: whether this rank has a core of its own while the ranks behind it wait.
bool has_own_core(Transport& transport);

}  // namespace spp::runtime
