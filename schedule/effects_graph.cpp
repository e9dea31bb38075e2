#include "schedule/effects_graph.hpp"

#include <algorithm>
#include <ranges>

namespace spp {
namespace {

/// The only piece of a cell, with all its contributions; else stops.
const Piece* complete_piece(const Site& site, BufferId id, TensorRef tensor, const Cell& cell) {
  const Piece* piece = only_piece(site, id, cell);
  if (piece == nullptr) {
    return nullptr;
  }
  const AtomSet missing = site.grid().complete(tensor, cell).minus(piece->contributions);
  const bool of_team = tensor.tensor == Tensor::out && !piece->normaliser.empty() &&
                       piece->normaliser != piece->contributions;
  if (!missing.empty() || of_team) {
    site.stop(fmt::format(
        "reads '{}' before it is complete: {} lacks {}", site.buffer(id).name,
        site.grid().cell_text(tensor, cell),
        of_team ? "its normaliser" : site.grid().contributions_text(tensor, cell, missing)));
    return nullptr;
  }
  return piece;
}

}  // namespace

std::optional<GraphWork> graph_work(const Site& site, int definition, const TokenSet& tokens) {
  const Graph& graph = site.grid().graph();
  if (definition < 0 || definition >= std::ssize(graph.definitions)) {
    site.stop(fmt::format("computes definition {}, which the graph lacks", definition));
    return {};
  }
  const auto* atoms = named_tokens(site, tokens);
  if (atoms == nullptr) {
    return {};
  }
  return GraphWork{.graph = graph,
                   .index = site.grid().index(),
                   .definition = graph.definition(definition),
                   .tokens = *atoms};
}

bool complete(const Site& site, BufferId id, TensorRef tensor, std::span<const int> tokens,
              HeadAtoms heads) {
  if (!readable(site, id, tensor)) {
    return false;
  }
  for (const int t : tokens) {
    for (int h = heads.begin; h < heads.end; ++h) {
      if (complete_piece(site, id, tensor, {.tokens = t, .heads = h}) == nullptr) {
        return false;
      }
    }
  }
  return true;
}

HeadAtoms atoms_of_part(const Site& site, TensorRef tensor, int part, int parts) {
  return is_value(tensor.tensor) ? HeadAtoms{.begin = part, .end = part + 1}
                                 : site.grid().heads_of_part(tensor.tensor, part, parts);
}

std::vector<int> parts_held(const Site& site, BufferId id, std::span<const int> tokens) {
  std::vector<int> parts;
  for (const Piece& piece : site.content(id).of_tokens(tokens.front())) {
    parts.push_back(piece.cell.heads);
  }
  return parts;
}

TensorRef gradient_of(const GraphIndex& index, TensorRef value) {
  return value.tensor == Tensor::out ? TensorRef(Tensor::d_out, value.label)
                                     : TensorRef(Tensor::d_value, index.gradient_of(value.label));
}

Use use_of(const GraphIndex& index, TensorRef value, int definition) {
  for (const Use& use : index.uses_of(value)) {
    if (use.definition == definition) {
      return use;
    }
  }
  throw InternalError("a definition does not use what it reads");
}

int use_of_param(const GraphIndex& index, int param, int definition) {
  for (const Use& use : index.uses_of_param(param)) {
    if (use.definition == definition) {
      return use.first;
    }
  }
  throw InternalError("a definition does not use its parameter");
}

void sum_up(const Site& site, BufferId id, TensorRef tensor, Contents added, bool initial,
            BufferId from) {
  if (!initial && !readable(site, id, tensor)) {
    return;
  }
  for (Piece& piece : added.change_all()) {
    const Piece* old = initial ? nullptr : only_piece(site, id, piece.cell);
    if (old == nullptr && !initial) {
      return;
    }
    if (old != nullptr) {
      Piece sum = *old;
      unite(site, tensor, sum, piece, "'" + site.buffer(from).name + "'",
            "'" + site.buffer(id).name + "'");
      piece = std::move(sum);
    }
  }
  write(site, id, tensor, std::move(added));
}

std::vector<int> column_parts_held(const Site& site, BufferId id) {
  std::vector<int> columns;
  const auto pieces = site.content(id).all();
  for (const Piece& piece : pieces) {
    if (piece.cell.tokens == pieces.front().cell.tokens) {
      columns.push_back(piece.cell.heads);
    }
  }
  return columns;
}

std::optional<ParamBlocks> blocks_of(const Site& site, BufferId id, int label) {
  if (!readable(site, id, TensorRef{Tensor::param, label})) {
    return {};
  }
  const Contents& content = site.content(id);
  ParamBlocks blocks;
  blocks.columns = column_parts_held(site, id);
  const auto has_columns = [&](int row) {
    return std::ranges::equal(content.of_tokens(row), blocks.columns, {},
                              [](const Piece& piece) { return piece.cell.heads; });
  };
  std::size_t cells = 0;
  for (int part = 0; part < site.grid().graph().param(label).row_parts; ++part) {
    const HeadAtoms rows = site.grid().rows_of_part(label, part);
    if (std::ranges::all_of(std::views::iota(rows.begin, rows.end), has_columns)) {
      blocks.rows.push_back(part);
      cells += static_cast<std::size_t>(rows.end - rows.begin) * blocks.columns.size();
    }
  }
  if (cells == 0 || cells != content.all().size()) {
    site.stop(fmt::format("'{}' does not hold whole blocks of {}", site.buffer(id).name,
                          site.name({Tensor::param, label})));
    return {};
  }
  for (const Piece& piece : content.all()) {
    if (!piece.contributions.empty()) {
      site.stop(fmt::format("reads '{}', which was updated before", site.buffer(id).name));
      return {};
    }
  }
  return blocks;
}

void add_block(const Site& site, Contents& gradients, int label, int part, int column,
               std::span<const int> tokens, std::span<const int> numbers) {
  AtomSet met;
  for (const int number : numbers) {
    for (const int t : tokens) {
      met.insert(site.grid().contributor(t, number));
    }
  }
  const HeadAtoms rows = site.grid().rows_of_part(label, part);
  for (int row = rows.begin; row < rows.end; ++row) {
    gradients.add(
        {.cell = {.tokens = row, .heads = column}, .contributions = met, .normaliser = {}});
  }
}

Contents row_products(const ParamBlocks& blocks, std::span<const int> tokens) {
  AtomSet met;
  for (const int part : blocks.rows) {
    met.insert(static_cast<std::size_t>(part));
  }
  Contents products;
  for (const int t : tokens) {
    for (const int part : blocks.columns) {
      products.add({.cell = {.tokens = t, .heads = part}, .contributions = met, .normaliser = {}});
    }
  }
  return products;
}

}  // namespace spp
