// Effects of what brings tokens to their experts and back.
#include "schedule/effects_graph.hpp"

#include <optional>

namespace spp {
namespace {

/// A copy of slots between two tensors of a definition, and what it gives a sum: slot j by the j-th
/// of its numbers; nothing where the result is no sum.
struct SlotCopy {
  bool spreads = false;  // a row to all slots; else the slots' sum to a row
  std::optional<int> first;
};

/// Nothing if no function of the graph, and no gradient of one, is this copy.
std::optional<SlotCopy> slot_copy(const GraphWork& work, TensorRef from, TensorRef to) {
  const Definition& d = work.definition;
  const TensorRef x = d.reads.front();
  const TensorRef y = d.writes.front();
  const bool spreads = d.function == LayerFunction::dispatch;
  if (from == x && to == y) {
    return SlotCopy{.spreads = spreads, .first = spreads ? std::nullopt : std::optional(0)};
  }
  if (from != gradient_of(work.index, y) || to != gradient_of(work.index, x)) {
    return {};
  }
  for (const Use& use : work.index.uses_of(x)) {
    if (&work.graph.definition(use.definition) == &d) {
      return SlotCopy{.spreads = !spreads, .first = use.first};
    }
  }
  return {};
}

/// Of a token, the slots that a copy is of.
std::vector<int> slots_of(const Site& site, const Copy& op, int token) {
  std::vector<int> slots;
  for (int slot = 0; slot < site.grid().graph().routing.chosen; ++slot) {
    if (!op.of_group || site.grid().group_of(token, slot) == op.expert_group) {
      slots.push_back(slot);
    }
  }
  return slots;
}

/// From a row to its slots, or from slots to the sum in their row.
void copy_between(const Site& site, const Copy& op, const GraphWork& work, const SlotCopy& copy) {
  const TensorRef from = site.buffer(op.from).ref();
  Contents copied;
  const auto has = [&](int token, int slot) {
    return complete(site, op.from, from, std::span(&token, 1), {.begin = slot, .end = slot + 1});
  };
  for (const int t : work.tokens) {
    AtomSet sum;
    for (const int slot : slots_of(site, op, t)) {
      if (!has(t, copy.spreads ? 0 : slot)) {
        return;
      }
      if (copy.spreads) {
        AtomSet met;
        if (copy.first) {
          met.insert(static_cast<std::size_t>(*copy.first));
        }
        copied.add({.cell = {.tokens = t, .heads = slot}, .contributions = met, .normaliser = {}});
      } else {
        const int of_slot = *copy.first + slot;
        sum.insert(static_cast<std::size_t>(of_slot));
      }
    }
    if (!copy.spreads) {
      copied.add({.cell = {.tokens = t, .heads = 0}, .contributions = sum, .normaliser = {}});
    }
  }
  if (op.of_group && !copy.spreads) {
    sum_up(site, op.to, site.buffer(op.to).ref(), std::move(copied), false, op.from);
  } else {
    overwrite(site, op.to, std::move(copied));
  }
}

/// Of one tensor, its slots, or those of a group: out of rows that have all slots, or into such.
void copy_within(const Site& site, const Copy& op) {
  const TensorRef tensor = site.buffer(op.from).ref();
  const auto* tokens = named_tokens(site, op.tokens);
  if (tokens == nullptr || !readable(site, op.from, tensor)) {
    return;
  }
  Contents copied;
  for (const int t : *tokens) {
    for (const int slot : slots_of(site, op, t)) {
      const Piece* piece = only_piece(site, op.from, {.tokens = t, .heads = slot});
      if (piece == nullptr) {
        return;
      }
      copied.add(*piece);
    }
  }
  if (op.of_group && op.kind == CopyKind::combine) {
    sum_up(site, op.to, tensor, std::move(copied), false, op.from);
  } else {
    overwrite(site, op.to, std::move(copied));
  }
}

}  // namespace

void copy_slots(const Site& site, const Copy& op) {
  const TensorRef from = site.buffer(op.from).ref();
  const TensorRef to = site.buffer(op.to).ref();
  const Graph& graph = site.grid().graph();
  const int groups = graph.routing.empty() ? 0 : graph.routing.groups;
  if (groups == 0 || (op.of_group && op.expert_group >= groups)) {
    site.stop(fmt::format("a group {} of {} groups of experts", op.expert_group, groups));
    return;
  }
  if (from == to) {
    return copy_within(site, op);
  }
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
    if (copy && copy->spreads == (op.kind == CopyKind::dispatch)) {
      return copy_between(site, op, *work, *copy);
    }
  }
  site.stop(fmt::format("a {} of {} to {}, which no function of the graph is", to_string(op.kind),
                        site.name(from), site.name(to)));
}

}  // namespace spp
