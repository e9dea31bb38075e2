// Effects of a graph's linear layers.
#include "schedule/effects_graph.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace spp {
namespace {

/// All of x = y w^T's contraction, or y = x w's: operand parts that stand beside the parameter's.
bool operands(const Site& site, BufferId id, TensorRef tensor, const GraphWork& work,
              std::span<const int> parts, int of_parts) {
  for (const int part : parts) {
    if (!complete(site, id, tensor, work.tokens, atoms_of_part(site, tensor, part, of_parts))) {
      return false;
    }
  }
  return true;
}

/// The blocks of a parameter that an op multiplies by: `rows` by parts of x, `columns` by those of
/// y. Else stops.
std::optional<ParamBlocks> blocks_of_product(const Site& site, const Gemm& op,
                                             const GraphWork& work) {
  std::optional<ParamBlocks> blocks = blocks_of(site, op.b, work.definition.param);
  if (blocks && work.definition.transposed) {
    std::swap(blocks->rows, blocks->columns);
  }
  return blocks;
}

/// Parts of y's row.
int written_parts(const GraphWork& work) {
  return work.graph.value(work.definition.writes.front().label).parts;
}

/// Whether the op's one bias is there, for the columns that it works on; else stops.
std::optional<BufferId> bias_of(const Site& site, const Gemm& op, const GraphWork& work,
                                const std::vector<int>& columns) {
  const BufferId id = op.bias.ids()[0];
  if (op.bias.ids().size() > 1 || work.definition.bias < 0) {
    site.stop("has a bias that its definition lacks, or several");
    return {};
  }
  if (op.kind != GemmKind::weight_gradient) {
    const auto blocks = blocks_of(site, id, work.definition.bias);
    if (!blocks) {
      return {};
    }
    if (blocks->rows != columns) {
      site.stop(fmt::format("adds other parts of the bias '{}' than it has columns",
                            site.buffer(id).name));
      return {};
    }
  }
  return id;
}

/// The groups of experts whose matrices multiply the slots that a buffer holds of these tokens;
/// each has all of a token's slots that go there. Else stops.
std::optional<std::vector<int>> groups_met(const Site& site, BufferId id, const GraphWork& work) {
  const AtomGrid& grid = site.grid();
  const std::vector<int> held = parts_held(site, id, work.tokens);
  std::vector<int> groups;
  for (const int t : work.tokens) {
    for (int slot = 0; slot < work.graph.routing.chosen; ++slot) {
      const int group = grid.group_of(t, slot);
      const bool is_held = std::ranges::find(held, slot) != held.end();
      const bool met = std::ranges::find(groups, group) != groups.end();
      if (is_held && !met) {
        groups.push_back(group);
      }
    }
  }
  for (const int t : work.tokens) {
    for (int slot = 0; slot < work.graph.routing.chosen; ++slot) {
      const bool met = std::ranges::find(groups, grid.group_of(t, slot)) != groups.end();
      if (met != (std::ranges::find(held, slot) != held.end())) {
        site.stop(fmt::format("'{}' has other slots of tokens {} than go to its experts",
                              site.buffer(id).name, grid.tokens_text(std::vector{t})));
        return {};
      }
    }
  }
  std::ranges::sort(groups);
  return groups;
}

/// Cells of these slots of the op's tokens.
Contents of_slots(const GraphWork& work, std::span<const int> slots, const AtomSet& met) {
  Contents cells;
  for (const int t : work.tokens) {
    for (const int slot : slots) {
      cells.add({.cell = {.tokens = t, .heads = slot}, .contributions = met, .normaliser = {}});
    }
  }
  return cells;
}

/// Whether the op has the bias of its experts, for these groups of them, and beside it weights
/// where the definition says so, or neither; else stops.
bool biases_fit(const Site& site, const Gemm& op, const GraphWork& work,
                const std::vector<int>& groups) {
  const bool is_weighted = work.definition.reads.size() > 1;
  const bool has_none = op.kind == GemmKind::input_gradient && !is_weighted;
  const std::size_t wanted = is_weighted && !op.bias.empty() ? 1 : 0;
  if ((has_none && !op.bias.empty()) || op.bias_weights.ids().size() != wanted) {
    site.stop("has other biases of experts, or weights of them, than its definition");
    return false;
  }
  return op.bias.empty() || bias_of(site, op, work, groups).has_value();
}

/// What a weighted bias of experts has beside it: weights of these slots, which an input gradient
/// writes those of. Stops, and says no, if they are not there.
bool weigh_bias(const Site& site, const Gemm& op, const GraphWork& work,
                std::span<const int> slots) {
  if (op.bias_weights.empty()) {
    return true;
  }
  const BufferId id = op.bias_weights.ids()[0];
  const TensorRef weights = work.definition.reads.back();
  if (op.kind != GemmKind::input_gradient) {
    return operands(site, id, weights, work, slots, work.graph.routing.chosen);
  }
  AtomSet met;
  met.insert(static_cast<std::size_t>(use_of(work.index, weights, op.definition).first));
  write(site, id, gradient_of(work.index, weights), of_slots(work, slots, met));
  return true;
}

/// Each slot with its own expert's matrix, and bias.
void multiply_experts(const Site& site, const Gemm& op, const GraphWork& work) {
  const int label = work.definition.param;
  const TensorRef x = work.definition.reads.front();
  const TensorRef y = work.definition.writes.front();
  const TensorRef d_y = gradient_of(work.index, y);
  const bool is_forward = op.kind == GemmKind::forward;
  const TensorRef operand = op.kind == GemmKind::input_gradient ? d_y : x;
  if (op.experts != work.graph.param(label).experts / work.graph.routing.groups) {
    site.stop("multiplies by other matrices than those of a group of experts");
    return;
  }
  if (!readable(site, op.a, operand)) {
    return;
  }
  const std::vector<int> slots = parts_held(site, op.a, work.tokens);
  const auto groups = groups_met(site, op.a, work);
  if (!groups || !operands(site, op.a, operand, work, slots, work.graph.routing.chosen) ||
      !biases_fit(site, op, work, *groups) || !weigh_bias(site, op, work, slots)) {
    return;
  }
  if (op.kind == GemmKind::weight_gradient) {
    if (!operands(site, op.b, d_y, work, slots, work.graph.routing.chosen)) {
      return;
    }
    const auto given = [&](int param) {
      Contents gradients;
      const std::array by{use_of_param(work.index, param, op.definition)};
      for (const int group : *groups) {
        add_block(site, gradients, param, group, 0, work.tokens, by);
      }
      return gradients;
    };
    sum_up(site, op.c, {Tensor::d_param, label}, given(label), op.initial, op.b);
    for (const BufferId bias : op.bias) {
      const int of_bias = work.definition.bias;
      write(site, bias, TensorRef{Tensor::d_param, of_bias}, given(of_bias));
    }
    return;
  }
  const auto blocks = blocks_of(site, op.b, label);
  if (!blocks) {
    return;
  }
  if (blocks->rows != *groups) {
    site.stop(fmt::format("multiplies slots of experts {} by matrices of {}",
                          fmt::join(*groups, ", "), fmt::join(blocks->rows, ", ")));
    return;
  }
  AtomSet met;
  if (!is_forward) {
    met.insert(static_cast<std::size_t>(use_of(work.index, x, op.definition).first));
  } else if (!op.bias.empty()) {
    met.insert(static_cast<std::size_t>(work.graph.sum_parts(work.definition)));
  }
  if (is_forward && !op.initial) {
    site.stop("adds to what an expert gives, of which one product is all");
    return;
  }
  sum_up(site, op.c, is_forward ? y : gradient_of(work.index, x), of_slots(work, slots, met),
         op.initial, op.b);
}

void multiply(const Site& site, const Gemm& op, const GraphWork& work) {
  const TensorRef x = work.definition.reads.front();
  const TensorRef y = work.definition.writes.front();
  const int parts = work.graph.sum_parts(work.definition);
  const auto blocks = blocks_of_product(site, op, work);
  if (!blocks || !operands(site, op.a, x, work, blocks->rows, parts)) {
    return;
  }
  Contents products = row_products(*blocks, work.tokens);
  if (!op.bias.empty()) {
    const auto bias = bias_of(site, op, work, blocks->columns);
    if (!bias) {
      return;
    }
    for (Piece& product : products.change_all()) {
      product.contributions.insert(static_cast<std::size_t>(parts));
    }
  }
  sum_up(site, op.c, y, std::move(products), op.initial, op.b);
}

void multiply_back(const Site& site, const Gemm& op, const GraphWork& work) {
  if (!op.bias.empty()) {
    site.stop("has a bias, which no gradient of an input has");
    return;
  }
  const TensorRef x = work.definition.reads.front();
  const TensorRef d_y = gradient_of(work.index, work.definition.writes.front());
  const TensorRef d_x = gradient_of(work.index, x);
  const int parts = work.graph.sum_parts(work.definition);
  const auto blocks = blocks_of_product(site, op, work);
  if (!blocks || !operands(site, op.a, d_y, work, blocks->columns, written_parts(work))) {
    return;
  }
  AtomSet met;
  if (is_value(x.tensor)) {
    const Use use = use_of(work.index, x, op.definition);
    for (const int part : blocks->columns) {
      const int of_part = use.first + part;
      met.insert(static_cast<std::size_t>(of_part));
    }
  } else if (!op.initial) {
    site.stop("adds to d_out, of which one product gives all");
    return;
  } else if (std::ssize(blocks->columns) != written_parts(work)) {
    site.stop(fmt::format("gives d_out {} of {} column parts of {}, which nothing adds up",
                          blocks->columns.size(), written_parts(work),
                          work.graph.param(work.definition.param).name));
    return;
  }
  Contents products;
  for (const int t : work.tokens) {
    for (const int part : blocks->rows) {
      const HeadAtoms atoms = atoms_of_part(site, d_x, part, parts);
      for (int h = atoms.begin; h < atoms.end; ++h) {
        products.add({.cell = {.tokens = t, .heads = h}, .contributions = met, .normaliser = {}});
      }
    }
  }
  sum_up(site, op.c, d_x, std::move(products), op.initial, op.b);
}

/// Parts of x's row that an operand's buffer has, of the first of its tokens.
std::vector<int> read_parts_held(const Site& site, const Gemm& op, const GraphWork& work) {
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

void multiply_for_weight(const Site& site, const Gemm& op, const GraphWork& work) {
  const TensorRef x = work.definition.reads.front();
  const TensorRef d_y = gradient_of(work.index, work.definition.writes.front());
  if (!readable(site, op.a, x) || !readable(site, op.b, d_y)) {
    return;
  }
  const std::vector<int> rows = read_parts_held(site, op, work);
  const std::vector<int> columns = parts_held(site, op.b, work.tokens);
  if (rows.empty() || columns.empty()) {
    site.stop(fmt::format("finds no tokens {} in '{}' or '{}'", to_string(op.tokens),
                          site.buffer(op.a).name, site.buffer(op.b).name));
    return;
  }
  if (!operands(site, op.a, x, work, rows, work.graph.sum_parts(work.definition)) ||
      !operands(site, op.b, d_y, work, columns, written_parts(work))) {
    return;
  }
  const bool transposed = work.definition.transposed;
  const std::array by{use_of_param(work.index, work.definition.param, op.definition)};
  Contents products;
  for (const int row : rows) {
    for (const int column : columns) {
      add_block(site, products, work.definition.param, transposed ? column : row,
                transposed ? row : column, work.tokens, by);
    }
  }
  sum_up(site, op.c, {Tensor::d_param, work.definition.param}, std::move(products), op.initial,
         op.b);
  if (op.bias.empty()) {
    return;
  }
  if (const auto bias = bias_of(site, op, work, columns)) {
    const std::array by_bias{use_of_param(work.index, work.definition.bias, op.definition)};
    Contents gradients;
    for (const int column : columns) {
      add_block(site, gradients, work.definition.bias, column, 0, work.tokens, by_bias);
    }
    write(site, *bias, TensorRef{Tensor::d_param, work.definition.bias}, std::move(gradients));
  }
}

}  // namespace

void apply(const Site& site, const Gemm& op) {
  const auto work = graph_work(site, op.definition, op.tokens);
  if (!work) {
    return;
  }
  if (work->definition.function != LayerFunction::linear) {
    site.stop(fmt::format("definition {} is {}, not linear", op.definition,
                          to_string(work->definition.function)));
    return;
  }
  if (work->graph.is_of_experts(work->definition)) {
    return multiply_experts(site, op, *work);
  }
  if (op.experts > 0 || !op.bias_weights.empty()) {
    site.stop(fmt::format("definition {} has no experts", op.definition));
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

}  // namespace spp
