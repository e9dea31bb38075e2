// Effects of a graph's functions row by row.
#include "schedule/effects_graph.hpp"

#include <algorithm>

namespace spp {
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
void pass_on(const Site& site, const RowKernel& op, const GraphWork& work) {
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

}  // namespace

void apply(const Site& site, const RowKernel& op) {
  const auto work = graph_work(site, op.definition, op.tokens);
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
                                                         atoms_of_part(site, ref, part, of_parts));
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
        const HeadAtoms atoms = atoms_of_part(site, ref, part, of_parts);
        for (int h = atoms.begin; h < atoms.end; ++h) {
          result.add({.cell = {.tokens = t, .heads = h}, .contributions = met, .normaliser = {}});
        }
      }
    }
    write(site, writes[i], ref, std::move(result));
  }
}

}  // namespace spp
