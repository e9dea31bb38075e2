// The graphs of all layer kernels of a schedule's probes as one: each keeps its definition, under
// other numbers.
#pragma once

#include "runtime/calibrate/layer_probes.hpp"

#include <span>
#include <vector>

namespace spp::runtime {

/// Where a kernel's own values, parameters and definition begin.
struct GraphPlace {
  int value = 0, param = 0, definition = 0;
};

struct ProbeGraph {
  Graph graph;
  std::vector<GraphPlace> places;  // by probe; of no meaning where it is no kernel of a layer
};
/// `shape`: of row-wise functions.
ProbeGraph graph_of(std::span<const Probe> probes, const Problem& shape);

/// A tensor of a kernel's own graph, as the whole one calls it.
TensorRef placed(TensorRef ref, const GraphPlace& place);

}  // namespace spp::runtime
