// A transformer layer as a graph that a schedule computes: from its list of tensor operations
// (transformer/layer.hpp), cut over the ranks of a tensor-parallel group.
#pragma once

#include "schedule/graph.hpp"
#include "transformer/layer.hpp"

#include <string>
#include <vector>

namespace spp {

struct LayerGraph {
  Graph graph;
  std::vector<Cut> cuts;  // by value: how the ranks of a group hold it
  std::string why_not;    // what of the layer no schedule holds yet; empty: nothing
};

/// Column-parallel matrices in `tensor` column parts, row-parallel ones in as many row parts.
/// Constants that time does not depend on are common ones: epsilon 1e-5, rotation base 10000.
LayerGraph layer_graph(const TensorOps& ops, int tensor);

}  // namespace spp
