// What the effects of a graph's ops are made of.
#pragma once

#include "schedule/effects.hpp"

#include <optional>
#include <span>
#include <vector>

namespace spp {

/// What an op works on.
struct GraphWork {
  const Graph& graph;
  const GraphIndex& index;
  const Definition& definition;
  std::span<const int> tokens;  // atoms
};
/// Stops and gives nothing if the graph has no such definition, or the grid no such tokens.
std::optional<GraphWork> graph_work(const Site& site, int definition, const TokenSet& tokens);

/// Complete pieces of all these tokens and head atoms or parts; else stops.
bool complete(const Site& site, BufferId id, TensorRef tensor, std::span<const int> tokens,
              HeadAtoms heads);
/// Head atoms, or the part, of a tensor that lie in one of `parts` equal parts of a row.
HeadAtoms atoms_of_part(const Site& site, TensorRef tensor, int part, int parts);
/// Parts that a buffer of a value has something of, for the first of these tokens.
std::vector<int> parts_held(const Site& site, BufferId id, std::span<const int> tokens);
/// Of a value, or of attention's out.
TensorRef gradient_of(const GraphIndex& index, TensorRef value);
/// Numbers of what a definition gives the gradient of a value.
Use use_of(const GraphIndex& index, TensorRef value, int definition);
/// Adds pieces to those of a sum, cell by cell; `initial`: they are the sum.
void sum_up(const Site& site, BufferId id, TensorRef tensor, Contents added, bool initial,
            BufferId from);

/// The blocks of a parameter that its buffer holds: all rows of these by all of those.
struct ParamBlocks {
  std::vector<int> rows, columns;
};
/// Stops and gives nothing if they are not whole rows of blocks, or were updated.
std::optional<ParamBlocks> blocks_of(const Site& site, BufferId id, int label);
/// Column parts that a buffer of a parameter has something of, in its first row.
std::vector<int> column_parts_held(const Site& site, BufferId id);
/// What these tokens give the gradient of one block of a parameter, by these numbers of its uses.
void add_block(const Site& site, Contents& gradients, int label, int part, int column,
               std::span<const int> tokens, std::span<const int> numbers);
/// Numbers of what a definition gives the gradient of a parameter: of its first part.
int use_of_param(const GraphIndex& index, int param, int definition);
/// Products of these tokens' rows with such blocks: the sum over their row parts.
Contents row_products(const ParamBlocks& blocks, std::span<const int> tokens);

/// Between a value and its slots (Copy).
void copy_slots(const Site& site, const Copy& op);

/// An update of a parameter: named by its rows, not by tokens.
void update(const Site& site, const RowKernel& op, int label);

}  // namespace spp
