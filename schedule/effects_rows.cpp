// Effects of a graph's functions row by row.
#include "schedule/effects_graph.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

namespace spp {
namespace {

/// What a row-wise op reads and writes, in order.
struct Operands {
  std::vector<TensorRef> reads, writes;
};

/// log_sum, from the sums that a definition writes; these themselves if nothing makes a loss of
/// them.
TensorRef log_sum_of(const GraphWork& work) {
  const TensorRef sums = work.definition.writes.front();
  for (const Use& use : work.index.uses_of(sums)) {
    const Definition& d = work.graph.definition(use.definition);
    if (d.function == LayerFunction::word_loss) {
      return d.writes[1];
    }
  }
  return sums;
}

Operands operands_of(const GraphWork& work, bool backward) {
  const auto& [graph, index, d, tokens] = work;
  const auto gradient = [&](TensorRef ref) { return gradient_of(work.index, ref); };
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
    case LayerFunction::split_heads: {
      const int label = d.writes.front().label;
      Operands all{.reads = {{Tensor::d_q, label}, {Tensor::d_k, label}, {Tensor::d_v, label}},
                   .writes = {}};
      std::ranges::transform(d.reads, std::back_inserter(all.writes), gradient);
      if (has_param) {
        all.reads.insert(all.reads.end(), {d.reads[0], param});
        all.writes.emplace_back(Tensor::d_param, d.param);
      }
      return all;
    }
    case LayerFunction::split:
      return {.reads = {gradient(d.writes[0]), gradient(d.writes[1])},
              .writes = {gradient(d.reads[0])}};
    case LayerFunction::swiglu:
      return {.reads = {d.reads[0], d.reads[1], gradient(d.writes[0])},
              .writes = {gradient(d.reads[0]), gradient(d.reads[1])}};
    case LayerFunction::gelu:
      return {.reads = {d.reads[0], gradient(d.writes[0])}, .writes = {gradient(d.reads[0])}};
    case LayerFunction::embedding:
      return {.reads = {d.reads[0], param, gradient(d.writes[0])},
              .writes = {{Tensor::d_param, d.param}}};
    case LayerFunction::word_sums:
      return {.reads = {d.reads[0], d.reads[1], log_sum_of(work)},
              .writes = {gradient(d.reads[0])}};
    case LayerFunction::route:
      return {.reads = {d.writes[0], gradient(d.writes[0])}, .writes = {gradient(d.reads[0])}};
    case LayerFunction::expert_swiglu: {
      const TensorRef d_weights = gradient(d.reads[1]);
      Operands all{.reads = {d.reads[0], d.reads[1], gradient(d.writes[0])},
                   .writes = {gradient(d.reads[0]), d_weights}};
      // What reads them behind this gives them first.
      if (&graph.definition(index.uses_of(d.reads[1]).back().definition) != &d) {
        all.reads.push_back(d_weights);
      }
      return all;
    }
    case LayerFunction::dispatch:  // copies
    case LayerFunction::combine:
    case LayerFunction::add:  // of the input whose gradient it is, which the op's buffer tells
    case LayerFunction::linear:
    case LayerFunction::word_loss:  // its gradient is a constant, which word_sums knows
    case LayerFunction::adam:
      break;
  }
  return {};
}

/// The input of a sum whose gradient this is; nothing if it is of none.
std::optional<TensorRef> input_with_gradient(const GraphIndex& index, const Definition& sum,
                                             TensorRef gradient) {
  for (const TensorRef input : sum.reads) {
    if (gradient_of(index, input) == gradient) {
      return input;
    }
  }
  return {};
}

/// d_x += d_z.
void pass_on(const Site& site, const RowKernel& op, const GraphWork& work) {
  const TensorRef d_z = gradient_of(work.index, work.definition.writes.front());
  const bool form = op.reads.ids().size() == 2 && op.writes.ids().size() == 1 &&
                    op.reads.ids()[1] == op.writes.ids()[0];
  if (!form) {
    site.stop("adds d_z to d_x: reads both, and writes d_x");
    return;
  }
  const BufferId target = op.writes.ids()[0];
  const TensorRef d_x = site.buffer(target).ref();
  const auto input = input_with_gradient(work.index, work.definition, d_x);
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
  met.insert(static_cast<std::size_t>(use_of(work.index, *input, op.definition).first));
  Contents given;
  for (const int t : work.tokens) {
    for (int part = 0; part < site.grid().head_atoms(d_x); ++part) {
      given.add({.cell = {.tokens = t, .heads = part}, .contributions = met, .normaliser = {}});
    }
  }
  sum_up(site, target, d_x, std::move(given), false, op.reads.ids()[0]);
}

/// Parts of a row that the op works on: those of the first value that it names.
std::vector<int> parts_of(const Site& site, const RowKernel& op, const GraphWork& work) {
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

/// How an op works: on these parts of a row; with these row parts of a parameter, or of logits; and
/// by which numbers a value's gradient remembers it: one, or one for each part of the row.
struct Given {
  std::vector<int> parts;
  int of_parts = 1;
  std::vector<int> rows;
  Use use{};
  int definition = 0;
};

/// What a row-wise op gives a tensor, for its tokens and parts.
Contents given_to(const Site& site, TensorRef ref, const GraphWork& work, const Given& by) {
  Contents result;
  if (ref.tensor == Tensor::d_param) {
    const int first = use_of_param(work.index, ref.label, by.definition);
    std::vector<int> numbers{first};
    if (work.definition.function == LayerFunction::split_heads) {
      numbers.clear();
      std::ranges::transform(by.parts, std::back_inserter(numbers),
                             [&](int part) { return first + part; });
    }
    for (const int row : by.rows) {
      add_block(site, result, ref.label, row, 0, work.tokens, numbers);
    }
    return result;
  }
  AtomSet met;
  if (ref.tensor == Tensor::d_value) {
    const bool of_parts = by.use.count > 1;
    for (const int part : of_parts ? by.parts : std::vector{0}) {
      const int of_part = by.use.first + part;
      met.insert(static_cast<std::size_t>(of_part));
    }
  }
  if (ref.tensor == Tensor::value && work.graph.sum_parts(work.definition) > 0) {
    for (const int part : by.rows) {
      met.insert(static_cast<std::size_t>(part));
    }
  }
  const bool whole = is_value(ref.tensor) && work.graph.value(ref.label).parts == 1;
  std::vector<int> parts = whole ? std::vector<int>{0} : by.parts;
  if (work.definition.function == LayerFunction::route && !whole) {  // of whole scores, all slots
    parts.resize(static_cast<std::size_t>(work.graph.routing.chosen));
    std::iota(parts.begin(), parts.end(), 0);
  }
  for (const int t : work.tokens) {
    for (const int part : parts) {
      const HeadAtoms atoms = atoms_of_part(site, ref, part, by.of_parts);
      for (int h = atoms.begin; h < atoms.end; ++h) {
        result.add({.cell = {.tokens = t, .heads = h}, .contributions = met, .normaliser = {}});
      }
    }
  }
  return result;
}

}  // namespace

void update(const Site& site, const RowKernel& op, int label) {
  const auto* rows = named_rows(site, op.tokens, {Tensor::param, label});
  if (rows == nullptr) {
    return;
  }
  constexpr std::array reads{Tensor::d_param, Tensor::master, Tensor::first_moment,
                             Tensor::second_moment};
  constexpr std::array writes{Tensor::master, Tensor::first_moment, Tensor::second_moment,
                              Tensor::param};
  if (op.backward || op.slots || op.reads.ids().size() != reads.size() ||
      op.writes.ids().size() != writes.size()) {
    site.stop(
        "has other operands or flags than an update: it reads d_param, master and moments, and "
        "writes master, moments and param");
    return;
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (!readable(site, op.reads.ids()[i], TensorRef{reads[i], label})) {
      return;
    }
  }
  const std::vector<int> columns = column_parts_held(site, op.reads.ids()[0]);
  Contents updated;
  for (const int row : *rows) {
    for (const int column : columns) {
      const Cell cell{.tokens = row, .heads = column};
      for (std::size_t i = 0; i < reads.size(); ++i) {
        const BufferId id = op.reads.ids()[i];
        const Piece* piece = only_piece(site, id, cell);
        if (piece == nullptr) {
          return;
        }
        const AtomSet& all = site.grid().complete({reads[i], label}, cell);
        if (piece->contributions == all) {
          continue;
        }
        site.stop(reads[i] == Tensor::d_param
                      ? fmt::format("updates by part of a gradient: {} lacks {}",
                                    site.grid().cell_text({reads[i], label}, cell),
                                    site.grid().contributions_text({reads[i], label}, cell,
                                                                   all.minus(piece->contributions)))
                      : fmt::format("updates '{}' a second time", site.buffer(id).name));
        return;
      }
      updated.add({.cell = cell, .contributions = site.grid().updated(), .normaliser = {}});
    }
  }
  for (std::size_t i = 0; i < writes.size(); ++i) {
    write(site, op.writes.ids()[i], TensorRef{writes[i], label}, updated);
  }
}

void apply(const Site& site, const RowKernel& op) {
  const Graph& graph = site.grid().graph();
  if (op.definition >= 0 && op.definition < std::ssize(graph.definitions) &&
      graph.definition(op.definition).function == LayerFunction::adam) {
    return update(site, op, graph.definition(op.definition).param);
  }
  const auto work = graph_work(site, op.definition, op.tokens);
  if (!work) {
    return;
  }
  const Definition& d = work->definition;
  if (d.function == LayerFunction::linear) {
    site.stop(fmt::format("definition {} is linear, a product", op.definition));
    return;
  }
  if (op.slots != (d.function == LayerFunction::expert_swiglu)) {
    site.stop("expert_swiglu works on slots, no other function does");
    return;
  }
  if (d.function == LayerFunction::add && op.backward) {
    return pass_on(site, op, *work);
  }
  const Operands all = operands_of(*work, op.backward);
  const auto reads = op.reads.ids();
  const auto writes = op.writes.ids();
  if (all.reads.empty() || reads.size() != all.reads.size() || writes.size() != all.writes.size()) {
    site.stop(fmt::format("has other operands than {} {}", to_string(d.function),
                          op.backward ? "backward" : "forward"));
    return;
  }
  const std::vector<int> parts = parts_of(site, op, *work);
  const int of_parts = work->graph.value(d.reads.front().label).parts;
  if (d.function == LayerFunction::word_sums && parts != std::vector{op.part}) {
    site.stop(
        fmt::format("works on part {} of {}, but has others", op.part, site.name(d.reads.front())));
    return;
  }
  if (parts.empty()) {
    site.stop(fmt::format("finds no tokens {} in '{}'", to_string(op.tokens),
                          site.buffer(reads[0]).name));
    return;
  }
  std::vector<int> rows = d.function == LayerFunction::word_sums ? parts : std::vector<int>{0};
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const TensorRef ref = all.reads[i];
    if (std::ranges::find(all.writes, ref) != all.writes.end()) {
      if (!readable(site, reads[i], ref)) {
        return;
      }
      continue;  // a sum that it adds to
    }
    if (is_param(ref.tensor)) {
      const auto blocks = blocks_of(site, reads[i], ref.label);
      if (!blocks) {
        return;
      }
      rows = blocks->rows;
      if (d.function == LayerFunction::embedding && rows != std::vector{op.part}) {
        site.stop(fmt::format("looks words up in part {} of {}, but has others", op.part,
                              site.name(ref)));
        return;
      }
      continue;
    }
    for (const int part : parts) {
      const bool whole = is_value(ref.tensor) && work->graph.value(ref.label).parts == 1;
      if (!complete(
              site, reads[i], ref, work->tokens,
              whole ? HeadAtoms{.begin = 0, .end = 1} : atoms_of_part(site, ref, part, of_parts))) {
        return;
      }
    }
  }
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const TensorRef ref = all.writes[i];
    const Use use =
        ref.tensor == Tensor::d_value
            ? use_of(work->index, d.reads[std::min(i, d.reads.size() - 1)], op.definition)
            : Use();
    const auto sum = std::ranges::find(all.reads, ref);
    const bool adds = sum != all.reads.end();
    if (adds && reads[static_cast<std::size_t>(sum - all.reads.begin())] != writes[i]) {
      site.stop(fmt::format("adds to {}: reads and writes it in one place", site.name(ref)));
      return;
    }
    sum_up(site, writes[i], ref,
           given_to(site, ref, *work,
                    {.parts = parts,
                     .of_parts = of_parts,
                     .rows = rows,
                     .use = use,
                     .definition = op.definition}),
           !adds, reads[0]);
  }
}

}  // namespace spp
