// Effects of what a graph defines: products of linear layers, and functions row by row.
#include "schedule/effects.hpp"

#include <algorithm>

namespace spp {
namespace {

/// What an op works on.
struct Work {
  const Graph& graph;
  const Definition& definition;
  std::span<const int> tokens;  // atoms
};

template <class Op>
std::optional<Work> work_of(const Site& site, const Op& op) {
  const Graph& graph = site.grid().graph();
  if (op.definition < 0 || op.definition >= std::ssize(graph.definitions)) {
    site.stop(fmt::format("computes definition {}, which the graph lacks", op.definition));
    return {};
  }
  const auto* tokens = named_tokens(site, op.tokens);
  if (tokens == nullptr) {
    return {};
  }
  return Work{.graph = graph, .definition = graph.definition(op.definition), .tokens = *tokens};
}

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

/// Complete pieces of all these tokens and head atoms or parts; else stops.
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

/// Head atoms of an operand of a linear layer that lie in one row part of its parameter.
HeadAtoms atoms_of_part(const Site& site, TensorRef operand, int part, int parts) {
  return is_value(operand.tensor) ? HeadAtoms{.begin = part, .end = part + 1}
                                  : site.grid().heads_of_part(operand.tensor, part, parts);
}

/// Parts that a buffer of a value has something of, for the first of these tokens.
std::vector<int> parts_held(const Site& site, BufferId id, std::span<const int> tokens) {
  std::vector<int> parts;
  for (const Piece& piece : site.content(id).of_tokens(tokens.front())) {
    parts.push_back(piece.cell.heads);
  }
  return parts;
}

TensorRef gradient_of(const Graph& graph, TensorRef value) {
  return value.tensor == Tensor::out ? TensorRef(Tensor::d_out)
                                     : TensorRef(Tensor::d_value, graph.gradient_of(value.label));
}

/// Numbers of what a definition gives the gradient of a value.
Use use_of(const Graph& graph, TensorRef value, int definition) {
  for (const Use& use : graph.uses_of(value)) {
    if (use.definition == definition) {
      return use;
    }
  }
  throw InternalError("a definition does not use what it reads");
}

/// Adds pieces to those of a sum, cell by cell; `initial`: they are the sum.
void sum_up(const Site& site, BufferId id, TensorRef tensor, Contents added, bool initial,
            BufferId from) {
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

/// The blocks of a parameter that its buffer holds: all rows of these by all of those.
struct ParamBlocks {
  std::vector<int> rows, columns;
};

std::optional<ParamBlocks> blocks_of(const Site& site, BufferId id, int label) {
  if (!readable(site, id, {Tensor::param, label})) {
    return {};
  }
  ParamBlocks blocks;
  for (const Piece& piece : site.content(id).all()) {
    if (blocks.rows.empty() || blocks.rows.back() != piece.cell.tokens) {
      blocks.rows.push_back(piece.cell.tokens);
    }
    if (piece.cell.tokens == blocks.rows.front()) {
      blocks.columns.push_back(piece.cell.heads);
    }
  }
  if (blocks.rows.size() * blocks.columns.size() != site.content(id).all().size()) {
    site.stop(fmt::format("'{}' does not hold whole rows of blocks", site.buffer(id).name));
    return {};
  }
  return blocks;
}

/// All of x = y w^T's contraction, or y = x w's: operand parts that stand beside the parameter's.
bool operands(const Site& site, BufferId id, TensorRef tensor, const Work& work,
              std::span<const int> parts, int of_parts) {
  for (const int part : parts) {
    if (!complete(site, id, tensor, work.tokens, atoms_of_part(site, tensor, part, of_parts))) {
      return false;
    }
  }
  return true;
}

void multiply(const Site& site, const Gemm& op, const Work& work) {
  const TensorRef x = work.definition.reads.front();
  const TensorRef y = work.definition.writes.front();
  const Param& w = work.graph.param(work.definition.param);
  const auto blocks = blocks_of(site, op.b, work.definition.param);
  if (!blocks || !operands(site, op.a, x, work, blocks->rows, w.row_parts)) {
    return;
  }
  AtomSet met;
  for (const int part : blocks->rows) {
    met.insert(static_cast<std::size_t>(part));
  }
  Contents products;
  for (const int t : work.tokens) {
    for (const int part : blocks->columns) {
      products.add({.cell = {.tokens = t, .heads = part}, .contributions = met, .normaliser = {}});
    }
  }
  sum_up(site, op.c, y, std::move(products), op.initial, op.b);
}

void multiply_back(const Site& site, const Gemm& op, const Work& work) {
  const TensorRef x = work.definition.reads.front();
  const TensorRef d_y = gradient_of(work.graph, work.definition.writes.front());
  const TensorRef d_x = gradient_of(work.graph, x);
  const Param& w = work.graph.param(work.definition.param);
  const auto blocks = blocks_of(site, op.b, work.definition.param);
  if (!blocks || !operands(site, op.a, d_y, work, blocks->columns, w.column_parts)) {
    return;
  }
  AtomSet met;
  if (is_value(x.tensor)) {
    const Use use = use_of(work.graph, x, op.definition);
    for (const int part : blocks->columns) {
      met.insert(static_cast<std::size_t>(use.first + part));
    }
  } else if (std::ssize(blocks->columns) != w.column_parts) {
    site.stop(fmt::format("gives d_out {} of {} column parts of {}, which nothing adds up",
                          blocks->columns.size(), w.column_parts, w.name));
    return;
  }
  Contents products;
  for (const int t : work.tokens) {
    for (const int part : blocks->rows) {
      const HeadAtoms atoms = atoms_of_part(site, d_x, part, w.row_parts);
      for (int h = atoms.begin; h < atoms.end; ++h) {
        products.add({.cell = {.tokens = t, .heads = h}, .contributions = met, .normaliser = {}});
      }
    }
  }
  sum_up(site, op.c, d_x, std::move(products), op.initial, op.b);
}

/// Row parts of the parameter that an operand's buffer has, of the first of its tokens.
std::vector<int> row_parts_held(const Site& site, const Gemm& op, const Work& work) {
  const TensorRef x = work.definition.reads.front();
  const int parts = work.graph.sum_parts(work.definition);
  const std::vector<int> held = parts_held(site, op.a, work.tokens);
  std::vector<int> rows;
  for (int part = 0; part < parts; ++part) {
    const HeadAtoms atoms = atoms_of_part(site, x, part, parts);
    if (std::ranges::find(held, atoms.begin) != held.end()) {
      rows.push_back(part);
    }
  }
  return rows;
}

void multiply_for_weight(const Site& site, const Gemm& op, const Work& work) {
  const TensorRef x = work.definition.reads.front();
  const TensorRef d_y = gradient_of(work.graph, work.definition.writes.front());
  const Param& w = work.graph.param(work.definition.param);
  if (!readable(site, op.a, x) || !readable(site, op.b, d_y)) {
    return;
  }
  const std::vector<int> rows = row_parts_held(site, op, work);
  const std::vector<int> columns = parts_held(site, op.b, work.tokens);
  if (rows.empty() || columns.empty()) {
    site.stop(fmt::format("finds no tokens {} in '{}' or '{}'", to_string(op.tokens),
                          site.buffer(op.a).name, site.buffer(op.b).name));
    return;
  }
  if (!operands(site, op.a, x, work, rows, w.row_parts) ||
      !operands(site, op.b, d_y, work, columns, w.column_parts)) {
    return;
  }
  AtomSet met;
  for (const int t : work.tokens) {
    met.insert(static_cast<std::size_t>(t));
  }
  Contents products;
  for (const int row : rows) {
    for (const int column : columns) {
      products.add(
          {.cell = {.tokens = row, .heads = column}, .contributions = met, .normaliser = {}});
    }
  }
  sum_up(site, op.c, {Tensor::d_param, work.definition.param}, std::move(products), op.initial,
         op.b);
}

}  // namespace

void apply(const Site& site, const Gemm& op) {
  const auto work = work_of(site, op);
  if (!work) {
    return;
  }
  if (work->definition.function != LayerFunction::linear) {
    site.stop(fmt::format("definition {} is {}, not linear", op.definition,
                          to_string(work->definition.function)));
    return;
  }
  switch (op.kind) {
    case GemmKind::forward:
      return multiply(site, op, *work);
    case GemmKind::input_gradient:
      return multiply_back(site, op, *work);
    case GemmKind::weight_gradient:
      return multiply_for_weight(site, op, *work);
  }
}

namespace {

/// What a row-wise op reads and writes, in order.
struct Operands {
  std::vector<TensorRef> reads, writes;
};

Operands operands_of(const Graph& graph, const Definition& d, bool backward) {
  const auto gradient = [&](TensorRef ref) { return gradient_of(graph, ref); };
  const TensorRef param{Tensor::param, d.param};
  const bool has_param = d.param >= 0;
  if (!backward) {
    Operands all{.reads = d.reads, .writes = d.writes};
    if (has_param) {
      all.reads.push_back(param);
    }
    return all;
  }
  switch (d.function) {
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
      return {.reads = {d.reads[0], param, d.writes[1], gradient(d.writes[0])},
              .writes = {gradient(d.reads[0]), {Tensor::d_param, d.param}}};
    case LayerFunction::split_heads:
      return {.reads = {Tensor::d_q, Tensor::d_k, Tensor::d_v}, .writes = {gradient(d.reads[0])}};
    case LayerFunction::swiglu:
      return {.reads = {d.reads[0], d.reads[1], gradient(d.writes[0])},
              .writes = {gradient(d.reads[0]), gradient(d.reads[1])}};
    case LayerFunction::gelu:
      return {.reads = {d.reads[0], gradient(d.writes[0])}, .writes = {gradient(d.reads[0])}};
    case LayerFunction::add:  // of the input whose gradient it is, which the op's buffer tells
    case LayerFunction::linear:
      break;
  }
  return {};
}

/// The input of a sum whose gradient this is; nothing if it is of none.
std::optional<TensorRef> input_with_gradient(const Graph& graph, const Definition& sum,
                                             TensorRef gradient) {
  for (const TensorRef input : sum.reads) {
    if (gradient_of(graph, input) == gradient) {
      return input;
    }
  }
  return {};
}

/// d_x += d_z.
void pass_on(const Site& site, const RowKernel& op, const Work& work) {
  const TensorRef d_z = gradient_of(work.graph, work.definition.writes.front());
  const bool form = op.reads.ids().size() == 2 && op.writes.ids().size() == 1 &&
                    op.reads.ids()[1] == op.writes.ids()[0];
  if (!form) {
    site.stop("adds d_z to d_x: reads both, and writes d_x");
    return;
  }
  const BufferId target = op.writes.ids()[0];
  const TensorRef d_x = site.buffer(target).ref();
  const auto input = input_with_gradient(work.graph, work.definition, d_x);
  if (!input || d_x == d_z) {
    site.stop(
        fmt::format("gives {} to {}, which the sum does not read", site.name(d_z), site.name(d_x)));
    return;
  }
  if (!complete(site, op.reads.ids()[0], d_z, work.tokens,
                {.begin = 0, .end = site.grid().head_atoms(d_z)})) {
    return;
  }
  AtomSet met;
  met.insert(static_cast<std::size_t>(use_of(work.graph, *input, op.definition).first));
  Contents given;
  for (const int t : work.tokens) {
    for (int part = 0; part < site.grid().head_atoms(d_x); ++part) {
      given.add({.cell = {.tokens = t, .heads = part}, .contributions = met, .normaliser = {}});
    }
  }
  sum_up(site, target, d_x, std::move(given), false, op.reads.ids()[0]);
}

/// Cells of `ref` in one part of a row of `parts` parts.
HeadAtoms cells_of_part(const Site& site, TensorRef ref, int part, int parts) {
  return is_value(ref.tensor) ? HeadAtoms{.begin = part, .end = part + 1}
                              : site.grid().heads_of_part(ref.tensor, part, parts);
}

/// Parts of a row that the op works on: those of the first value that it names.
std::vector<int> parts_of(const Site& site, const RowKernel& op, const Work& work) {
  const Value& row = work.graph.value(work.definition.reads.front().label);
  if (op.backward && work.definition.function == LayerFunction::split_heads) {
    std::vector<int> parts;
    const auto held = site.content(op.reads.ids()[0]).of_tokens(work.tokens.front());
    for (int part = 0; part < row.parts; ++part) {
      const HeadAtoms atoms = site.grid().heads_of_part(Tensor::q, part, row.parts);
      for (const Piece& piece : held) {
        if (piece.cell.heads == atoms.begin) {
          parts.push_back(part);
        }
      }
    }
    return parts;
  }
  return parts_held(site, op.reads.ids()[0], work.tokens);
}

}  // namespace

void apply(const Site& site, const RowKernel& op) {
  const auto work = work_of(site, op);
  if (!work) {
    return;
  }
  const Definition& d = work->definition;
  if (d.function == LayerFunction::linear) {
    site.stop(fmt::format("definition {} is linear, a product", op.definition));
    return;
  }
  if (d.function == LayerFunction::add && op.backward) {
    return pass_on(site, op, *work);
  }
  const Operands all = operands_of(work->graph, d, op.backward);
  const auto reads = op.reads.ids();
  const auto writes = op.writes.ids();
  if (all.reads.empty() || reads.size() != all.reads.size() || writes.size() != all.writes.size()) {
    site.stop(fmt::format("has other operands than {} {}", to_string(d.function),
                          op.backward ? "backward" : "forward"));
    return;
  }
  const std::vector<int> parts = parts_of(site, op, *work);
  const int of_parts = work->graph.value(d.reads.front().label).parts;
  if (parts.empty()) {
    site.stop(fmt::format("finds no tokens {} in '{}'", to_string(op.tokens),
                          site.buffer(reads[0]).name));
    return;
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const TensorRef ref = all.reads[i];
    for (const int part : parts) {
      const bool there = is_param(ref.tensor) ? blocks_of(site, reads[i], ref.label).has_value()
                                              : complete(site, reads[i], ref, work->tokens,
                                                         cells_of_part(site, ref, part, of_parts));
      if (!there) {
        return;
      }
    }
  }
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const TensorRef ref = all.writes[i];
    Contents result;
    AtomSet met;
    if (ref.tensor == Tensor::d_param) {
      for (const int t : work->tokens) {
        met.insert(static_cast<std::size_t>(t));
      }
      result.add({.cell = {}, .contributions = std::move(met), .normaliser = {}});
      write(site, writes[i], ref, std::move(result));
      continue;
    }
    if (ref.tensor == Tensor::d_value) {
      met.insert(static_cast<std::size_t>(
          use_of(work->graph, d.reads[std::min(i, d.reads.size() - 1)], op.definition).first));
    }
    for (const int t : work->tokens) {
      for (const int part : parts) {
        const HeadAtoms atoms = cells_of_part(site, ref, part, of_parts);
        for (int h = atoms.begin; h < atoms.end; ++h) {
          result.add({.cell = {.tokens = t, .heads = h}, .contributions = met, .normaliser = {}});
        }
      }
    }
    write(site, writes[i], ref, std::move(result));
  }
}

}  // namespace spp
