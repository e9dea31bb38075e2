#include "schedule/effects.hpp"
#include "schedule/measure.hpp"

#include <algorithm>
#include <utility>

namespace spp {
namespace {

/// The pieces that one member receives from all, or from one, of its group.
struct Part {
  std::vector<bool> tokens;  // by token atom or slot
  HeadAtoms heads;

  [[nodiscard]] bool contains(const Cell& cell) const {
    return tokens[static_cast<std::size_t>(cell.tokens)] && cell.heads >= heads.begin &&
           cell.heads < heads.end;
  }
};

/// What a member's op says that it receives; stops if the grid does not know it.
std::optional<Part> part_of(const Site& site, const Collective& op) {
  const TensorRef tensor = site.buffer(op.to).ref();
  const auto* tokens = named_rows(site, op.to_tokens, tensor);
  const auto heads = tokens != nullptr ? named_heads(site, op.to_heads, tensor) : std::nullopt;
  if (!heads) {
    return {};
  }
  const AtomGrid& grid = site.grid();
  Part part{.tokens = std::vector<bool>(static_cast<std::size_t>(grid.row_atoms(tensor))),
            .heads = *heads};
  for (const int t : *tokens) {
    part.tokens[static_cast<std::size_t>(t)] = true;
  }
  return part;
}

/// All members move the same tensor, from buffers with something in them, to others.
bool comparable(std::span<const Site> sites, std::span<const Collective* const> ops) {
  const TensorRef tensor = sites.front().buffer(ops.front()->from).ref();
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (!readable(sites[i], ops[i]->from, tensor)) {
      return false;
    }
    const Buffer& from = sites[i].buffer(ops[i]->from);
    const Buffer& to = sites[i].buffer(ops[i]->to);
    if (to.ref() != tensor || to.dtype != from.dtype || ops[i]->from == ops[i]->to) {
      sites[i].stop(fmt::format("moves '{}' ({} {}) to '{}' ({} {})", from.name,
                                to_string(from.dtype), sites[i].name(from.ref()), to.name,
                                to_string(to.dtype), sites[i].name(to.ref())));
      return false;
    }
  }
  return true;
}

/// Whether a buffer whose size is what moves has no room beside `content`; else stops.
bool fills(const Site& site, BufferId id, const Contents& content) {
  const Buffer& buffer = site.buffer(id);
  std::int64_t volume = 0;
  for (const Piece& piece : content.all()) {
    volume += site.grid().volume(buffer.ref(), piece.cell);
  }
  if (volume != buffer.tokens * buffer.heads) {
    site.stop(fmt::format("moves '{}' of {} x {} (tokens x heads) with {} in it", buffer.name,
                          buffer.tokens, buffer.heads, volume));
    return false;
  }
  return true;
}

/// Something of every cell that the op names has arrived; else stops.
bool arrived(const Site& site, TensorRef tensor, const Part& part, const Contents& content) {
  for (std::size_t t = 0; t < part.tokens.size(); ++t) {
    for (int h = part.heads.begin; part.tokens[t] && h < part.heads.end; ++h) {
      const Cell cell{.tokens = static_cast<int>(t), .heads = h};
      if (content.at(cell).empty()) {
        site.stop(fmt::format("receives no {} of {} from any member", site.name(tensor),
                              site.grid().cell_text(tensor, cell)));
        return false;
      }
    }
  }
  return true;
}

/// New contents of all members, written only when all are known.
void overwrite_all(std::span<const Site> sites, std::span<const Collective* const> ops,
                   std::vector<Contents> received) {
  for (std::size_t j = 0; j < sites.size(); ++j) {
    overwrite(sites[j], ops[j]->to, std::move(received[j]));
  }
}

/// Every member gets, of what its op names, the disjoint union of all members' pieces.
void sum_and_keep(std::span<const Site> sites, std::span<const Collective* const> ops) {
  if (!comparable(sites, ops)) {
    return;
  }
  const TensorRef tensor = sites.front().buffer(ops.front()->from).ref();
  if (!expect_sum(sites.front(), tensor)) {
    return;
  }
  std::vector<Contents> received(sites.size());
  for (std::size_t j = 0; j < sites.size(); ++j) {
    const Site& site = sites[j];
    const auto part = part_of(site, *ops[j]);
    const bool whole = ops[j]->kind != CollectiveKind::all_reduce ||
                       fills(site, ops[j]->from, site.content(ops[j]->from));
    if (!part || !whole) {
      return;
    }
    for (const Piece& own : site.content(ops[j]->from).all()) {
      if (!part->contains(own.cell)) {
        continue;
      }
      Piece sum{.cell = own.cell, .contributions = {}, .normaliser = own.normaliser};
      for (std::size_t i = 0; i < sites.size(); ++i) {
        const Piece* piece = only_piece(sites[i], ops[i]->from, own.cell);
        if (piece == nullptr) {
          return;
        }
        if (piece->normaliser != own.normaliser) {
          site.stop(fmt::format(
              "sums {} of {} over ranks {} and {}, but they are normalised over different keys",
              site.name(tensor), site.grid().cell_text(tensor, own.cell), site.rank.value,
              sites[i].rank.value));
          return;
        }
        unite(site, tensor, sum, *piece, fmt::format("rank {}", sites[i].rank.value),
              "an earlier rank of the group");
      }
      received[j].add(std::move(sum));
    }
    received[j].sort();
    if (!arrived(site, tensor, *part, received[j]) || !fills(site, ops[j]->to, received[j])) {
      return;
    }
  }
  overwrite_all(sites, ops, std::move(received));
}

/// Tokens and heads of each that the ops' shapes let one member send another; slots are tokens.
std::pair<std::int64_t, int> dealt(const Deal& deal, int from, int to) {
  if (const auto* experts = std::get_if<ExpertDeal>(&deal)) {
    return {experts->cells, 1};
  }
  const HeadDeal& heads = std::get<HeadDeal>(deal);
  const int owner = heads.direction == HeadDirection::scatter_heads ? to : from;
  return {heads.tokens, heads.heads(owner).count()};
}

/// Every member gets, of what its op names, all members' pieces.
void hand_out(std::span<const Site> sites, std::span<const Collective* const> ops) {
  if (!comparable(sites, ops)) {
    return;
  }
  const TensorRef tensor = sites.front().buffer(ops.front()->from).ref();
  std::vector<Contents> received(sites.size());
  for (std::size_t j = 0; j < sites.size(); ++j) {
    const Collective& op = *ops[j];
    const auto part = part_of(sites[j], op);
    if (!part) {
      return;
    }
    for (std::size_t i = 0; i < sites.size(); ++i) {
      std::int64_t volume = 0;
      for (const Piece& piece : sites[i].content(ops[i]->from).all()) {
        if (part->contains(piece.cell)) {
          received[j].add(piece);
          volume += sites[i].grid().volume(tensor, piece.cell);
        }
      }
      const auto [tokens, heads] = dealt(op.deal, static_cast<int>(i), static_cast<int>(j));
      if (volume != tokens * heads) {
        sites[j].stop(fmt::format(
            "receives {} (tokens x heads) from rank {}, but the op's shape says {} x {}", volume,
            sites[i].rank.value, tokens, heads));
        return;
      }
    }
    received[j].sort();
    if (!arrived(sites[j], tensor, *part, received[j])) {
      return;
    }
  }
  overwrite_all(sites, ops, std::move(received));
}

/// The same, and there is nothing else to get.
void gather(std::span<const Site> sites, std::span<const Collective* const> ops) {
  if (!comparable(sites, ops)) {
    return;
  }
  const TensorRef tensor = sites.front().buffer(ops.front()->from).ref();
  std::vector<Contents> received(sites.size());
  for (std::size_t j = 0; j < sites.size(); ++j) {
    const auto part = part_of(sites[j], *ops[j]);
    if (!part || !fills(sites[j], ops[j]->from, sites[j].content(ops[j]->from))) {
      return;
    }
    for (std::size_t i = 0; i < sites.size(); ++i) {
      for (const Piece& piece : sites[i].content(ops[i]->from).all()) {
        if (!part->contains(piece.cell)) {
          sites[j].stop(fmt::format(
              "receives {} of {} from rank {}, which it does not name", sites[j].name(tensor),
              sites[j].grid().cell_text(tensor, piece.cell), sites[i].rank.value));
          return;
        }
        received[j].add(piece);
      }
    }
    received[j].sort();
    if (!arrived(sites[j], tensor, *part, received[j])) {
      return;
    }
  }
  overwrite_all(sites, ops, std::move(received));
}

/// A ring reduces equal parts.
bool divides(std::span<const Site> sites, std::span<const Collective* const> ops) {
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const Collective& op = *ops[i];
    if (op.to_tokens.count() * op.to_heads.count() % op.group.size != 0) {
      sites[i].stop(fmt::format("{} tokens x {} heads do not divide over {} ranks",
                                op.to_tokens.count(), op.to_heads.count(), op.group.size));
      return false;
    }
  }
  return true;
}

}  // namespace

void deliver(const Site& sender, const Exchange& sent, const Site& receiver,
             const Exchange& received) {
  const auto from = sent.send.ids();
  const auto to = received.receive.ids();
  if (from.size() != to.size()) {
    sender.stop(fmt::format("sends {} buffers to rank {}, which receives {} in op {}", from.size(),
                            receiver.rank.value, to.size(), receiver.op));
    return;
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Buffer& source = sender.buffer(from[i]);
    const Buffer& target = receiver.buffer(to[i]);
    if (!readable(sender, from[i], source.ref())) {
      return;
    }
    const bool alike = source.ref() == target.ref() && source.dtype == target.dtype &&
                       source.tokens * source.heads == target.tokens * target.heads;
    if (!alike) {
      sender.stop(fmt::format(
          "sends '{}' ({} {}, {} x {}) to rank {}, which receives it in op {} as '{}' ({} {}, {} x "
          "{})",
          source.name, to_string(source.dtype), sender.name(source.ref()), source.tokens,
          source.heads, receiver.rank.value, receiver.op, target.name, to_string(target.dtype),
          receiver.name(target.ref()), target.tokens, target.heads));
      return;
    }
    overwrite(receiver, to[i], sender.content(from[i]));
  }
}

void meet(std::span<const Site> sites, std::span<const Collective* const> ops) {
  switch (ops.front()->kind) {
    case CollectiveKind::all_to_all:
      return hand_out(sites, ops);
    case CollectiveKind::all_gather:
      return gather(sites, ops);
    case CollectiveKind::all_reduce:
      if (!divides(sites, ops)) {
        return;
      }
      [[fallthrough]];
    case CollectiveKind::reduce_scatter:
      return sum_and_keep(sites, ops);
  }
}

}  // namespace spp
