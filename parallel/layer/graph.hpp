// A transformer layer, or a model's whole step, as a graph that a schedule computes: from its lists
// of tensor operations (transformer/layer.hpp), cut over the ranks of a tensor-parallel group.
#pragma once

#include "schedule/graph.hpp"
#include "transformer/layer.hpp"

#include <string>
#include <vector>

namespace spp {

struct LayerGraph {
  Graph graph;
  std::vector<Cut> cuts;  // by value: how the ranks of a group hold it
  std::vector<int>
      units;  // by definition, rising: whose parameters are gathered together, a layer's
  std::vector<ModuleSet> modules;  // by definition: that it is part of, for recomputation
  std::vector<LayerMask> masks;    // that attentions see by, by Definition::mask
  std::string why_not;             // what of it no schedule holds yet; empty: nothing
};

/// Column-parallel matrices in `tensor` column parts, row-parallel ones in as many row parts; those
/// of experts in `expert_groups`. The period of a routing is for the schedule to say.
/// Constants that time does not depend on are common ones: epsilon 1e-5, rotation base 10000.
LayerGraph layer_graph(const TensorOps& ops, int tensor, int expert_groups = 1);

/// Of a model of words: embedding, all layers one after the other, final norm, loss head and
/// cross-entropy, each cut likewise (the tables by words), and an update of every parameter at this
/// rate; 0: none. The cross-entropy's kernels are word_sums and word_loss, whatever the list has.
LayerGraph step_graph(const Model& model, int tensor, double rate, int expert_groups = 1);

}  // namespace spp
