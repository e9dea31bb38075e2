// Effects of what brings tokens to their experts and back.
#include "schedule/effects_graph.hpp"

#include <optional>

namespace spp {
namespace {

/// A copy of slots between two tensors of a definition, and what the result remembers of it.
struct SlotCopy {
  bool spreads = false;  // a row to all slots; else the slots' sum to a row
  AtomSet met;
};

/// Nothing if no function of the graph, and no gradient of one, is this copy.
std::optional<SlotCopy> slot_copy(const GraphWork& work, TensorRef from, TensorRef to) {
  const Definition& d = work.definition;
  const TensorRef x = d.reads.front();
  const TensorRef y = d.writes.front();
  const bool spreads = d.function == LayerFunction::dispatch;
  if (from == x && to == y) {
    return SlotCopy{.spreads = spreads, .met = {}};
  }
  if (from != gradient_of(work.index, y) || to != gradient_of(work.index, x)) {
    return {};
  }
  for (const Use& use : work.index.uses_of(x)) {
    if (&work.graph.definition(use.definition) == &d) {
      SlotCopy copy{.spreads = !spreads, .met = {}};
      copy.met.insert(static_cast<std::size_t>(use.first));
      return copy;
    }
  }
  return {};
}

}  // namespace

void copy_slots(const Site& site, const Copy& op) {
  const TensorRef from = site.buffer(op.from).ref();
  const TensorRef to = site.buffer(op.to).ref();
  const Graph& graph = site.grid().graph();
  for (int i = 0; i < std::ssize(graph.definitions); ++i) {
    const LayerFunction function = graph.definition(i).function;
    if (function != LayerFunction::dispatch && function != LayerFunction::combine) {
      continue;
    }
    const auto work = graph_work(site, i, op.tokens);
    if (!work) {
      return;
    }
    const auto copy = slot_copy(*work, from, to);
    if (!copy || copy->spreads != (op.kind == CopyKind::dispatch)) {
      continue;
    }
    const int read = copy->spreads ? 1 : graph.routing.chosen;
    const int written = copy->spreads ? graph.routing.chosen : 1;
    if (!complete(site, op.from, from, work->tokens, {.begin = 0, .end = read})) {
      return;
    }
    Contents copied;
    for (const int t : work->tokens) {
      for (int slot = 0; slot < written; ++slot) {
        copied.add(
            {.cell = {.tokens = t, .heads = slot}, .contributions = copy->met, .normaliser = {}});
      }
    }
    overwrite(site, op.to, std::move(copied));
    return;
  }
  site.stop(fmt::format("a {} of {} to {}, which no function of the graph is", to_string(op.kind),
                        site.name(from), site.name(to)));
}

}  // namespace spp
