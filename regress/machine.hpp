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

/// The machine of `point`, with room for its ranks. InputError(where): an unknown GPU or link, more
/// ranks than the nodes have.
ComposedCluster compose(const CorpusMachine& machine, int world, const Catalog& catalog,
                        std::string_view where);

}  // namespace spp::regress
