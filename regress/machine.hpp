// A corpus file's machine block as a cluster that can be simulated. What the source does not say is
// filled in and listed.
#pragma once

#include "regress/corpus.hpp"
#include "sim/cluster.hpp"

#include <vector>

namespace spp::regress {

struct ComposedCluster {
  MachineSpec machine;
  int nodes = 1;
  std::vector<Assumption> assumptions;
};

/// The machine of `point`, with room for its ranks, as of the `year` of its source (0: not known).
/// InputError(where): an unknown GPU or link, more ranks than the nodes have.
ComposedCluster compose(const CorpusMachine& machine, int world, const Catalog& catalog,
                        std::string_view where, int year = 0);

}  // namespace spp::regress
