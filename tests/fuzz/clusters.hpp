// What a machine that was read is good for: clusters whose links carry something.
#pragma once

#include "base/error.hpp"
#include "sim/cluster.hpp"

#include <cmath>
#include <cstdint>

namespace spp::fuzz {

inline void build_clusters(const MachineSpec& machine) {
  for (const int nodes : {1, 3}) {
    const std::int64_t gpus = nodes * machine.gpus_per_node.value;
    const sim::Cluster cluster(machine, nodes, static_cast<int>(gpus));
    for (const sim::Link& link : cluster.links()) {
      const double capacity = link.capacity.value();
      ensure(std::isfinite(capacity) && capacity > 0, "a link that carries nothing, or anything");
    }
    const int last = cluster.gpus() - 1;
    const sim::Path path = cluster.path(0, last);
    ensure(last == 0 || !path.links().empty(), "no way to the last GPU");
  }
}

}  // namespace spp::fuzz
