// Where the ranks of a transport are.
#pragma once

#include "base/units.hpp"
#include "runtime/comm/transport.hpp"

#include <string>
#include <vector>

namespace spp::runtime {

/// Hosts with equally many ranks each.
struct Hosts {
  std::vector<std::string> names;  // by node; "host:1" if nodes are emulated
  int per_node = 1;                // ranks of a node, neighbours
  std::int64_t cores = 1;          // that the ranks of these neighbouring nodes may use:
  int nodes_on_cores = 1;          // several on one machine, unless each has cores of its own
  Bytes memory{};                  // of a node
  [[nodiscard]] int nodes() const { return static_cast<int>(names.size()); }
};
/// All ranks together. InputError unless the ranks of a host are neighbours and equally many.
Hosts find_hosts(Transport& transport);

/// All ranks together: where each of them runs, a line each: its host, its CPU, the cores that it
/// may use. What was measured elsewhere is not comparable.
std::vector<std::string> describe_places(Transport& transport);

/// All ranks together: whether this rank has a core of its own while the ranks behind it wait.
bool has_own_core(Transport& transport);

}  // namespace spp::runtime
