// What a simulation will take, known before it begins (schedule/demand.hpp).
#pragma once

#include "schedule/demand.hpp"
#include "sim/folding.hpp"

namespace spp::sim {

struct SimulationDemand {
  double ops = 0;    // of the representatives
  double flows = 0;  // that they put on the network
  Bytes memory;      // without the cluster and the folding
};

/// `all`: of the schedule; `lookahead`: of its ranks' windows (rank_window.hpp).
SimulationDemand demand_of(const Demand& all, int lookahead, const Folding& folding);

}  // namespace spp::sim
