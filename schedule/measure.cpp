#include "schedule/measure.hpp"

namespace spp {
namespace {

Bytes size_at(const Shapes& shapes, BufferId id) {
  return bytes_of(shapes.buffers[id.index()], *shapes.problem);
}

Bytes size_of_list(const Shapes& shapes, std::span<const BufferId> ids) {
  Bytes total{};
  for (const BufferId id : ids) {
    total += size_at(shapes, id);
  }
  return total;
}

/// Bytes of `tokens` of a buffer that holds more.
Bytes size_of_tile(const Shapes& shapes, BufferId id, std::int64_t tokens) {
  Buffer tile = shapes.buffers[id.index()];
  tile.tokens = tokens;
  return bytes_of(tile, *shapes.problem);
}

FlopCount matmul_flops(const TokenSet& q, const TokenSet& k, HeadRange heads, const Problem& p,
                       Phase phase) {
  const double per_pair = flops_per_pair(phase, p.head_dim, p.head_dim);
  const auto pairs = static_cast<double>(allowed_pairs(q, k, p.mask));
  return FlopCount(per_pair * pairs * heads.count() * static_cast<double>(p.batch));
}

}  // namespace

std::string_view to_string(CommKind kind) {
  constexpr std::array<std::string_view, comm_kinds> names{"send_recv", "all_to_all", "all_gather",
                                                           "reduce_scatter", "all_reduce"};
  return names.at(static_cast<std::size_t>(kind));
}

CommKind comm_kind_of(const Transfer& transfer) {
  const auto* collective = std::get_if<Collective>(&transfer);
  if (collective == nullptr) {
    return CommKind::send_recv;
  }
  switch (collective->kind) {
    case CollectiveKind::all_to_all:
      return CommKind::all_to_all;
    case CollectiveKind::all_gather:
      return CommKind::all_gather;
    case CollectiveKind::reduce_scatter:
      return CommKind::reduce_scatter;
    case CollectiveKind::all_reduce:
      return CommKind::all_reduce;
  }
  throw InternalError("unknown kind of collective");
}

Bytes sent_bytes_to(const Collective& op, int peer, const Shapes& shapes) {
  const int self = op.group.index_of(shapes.rank);
  if (peer == self) {
    return Bytes(0);
  }
  // The part of `to`-shaped data that goes to one peer: its heads of my tokens, or my heads of its
  // tokens.
  const HeadDeal& deal = std::get<HeadDeal>(op.deal);
  const int owner = deal.direction == HeadDirection::scatter_heads ? peer : self;
  Buffer part = shapes.buffers[op.from.index()];
  part.tokens = deal.tokens;
  part.heads = deal.heads(owner).count();
  return bytes_of(part, *shapes.problem);
}

Bytes sent_bytes(const Transfer& transfer, const Shapes& shapes) {
  const auto exchanged = [&](const Exchange& o) {
    return o.to.valid() && o.to != shapes.rank ? size_of_list(shapes, o.send.ids()) : Bytes(0);
  };
  const auto dealt = [&](const Collective& o) {
    const int others = o.group.size - 1;
    switch (o.kind) {
      case CollectiveKind::all_to_all: {
        Bytes total{};
        for (int peer = 0; peer < o.group.size; ++peer) {
          total += sent_bytes_to(o, peer, shapes);
        }
        return total;
      }
      case CollectiveKind::all_gather:
        return size_at(shapes, o.from) * others;
      case CollectiveKind::reduce_scatter:
        return size_at(shapes, o.to) * others;
      case CollectiveKind::all_reduce:  // every part but one is reduced, then gathered
        return Bytes(size_at(shapes, o.to).value() / o.group.size * 2 * others);
    }
    throw InternalError("unknown kind of collective");
  };
  return std::visit(Overloaded{exchanged, dealt}, transfer);
}

FlopCount attention_flops(const Kernel& kernel, const Problem& problem) {
  if (const auto* f = std::get_if<AttentionForward>(&kernel)) {
    return matmul_flops(f->q_tokens, f->k_tokens, f->heads, problem, Phase::forward);
  }
  if (const auto* b = std::get_if<AttentionBackward>(&kernel)) {
    return matmul_flops(b->q_tokens, b->k_tokens, b->heads, problem, Phase::backward);
  }
  return FlopCount(0);
}

Bytes touched_bytes(const Kernel& kernel, const Shapes& shapes) {
  const auto tile = [&](BufferId id, const TokenSet& tokens) {
    return size_of_tile(shapes, id, tokens.count());
  };
  const auto whole = [&](BufferId id) { return size_at(shapes, id); };
  return std::visit(
      Overloaded{[&](const RowDot& o) { return whole(o.out) + whole(o.d_out) + whole(o.delta); },
                 [&](const Merge& o) {
                   const Bytes part = tile(o.part_out, o.tokens) + tile(o.part_lse, o.tokens);
                   const Bytes sum = tile(o.out, o.tokens) + tile(o.lse, o.tokens);
                   return part + sum * (o.initial ? 1 : 2);
                 },
                 [&](const Rescale& o) {
                   return whole(o.out) + whole(o.lse) + whole(o.gathered_lse) + whole(o.scaled) +
                          whole(o.global_lse);
                 },
                 [&](const Accumulate& o) {
                   return tile(o.part, o.tokens) + tile(o.sum, o.tokens) * (o.initial ? 1 : 2);
                 },
                 [&](const Fill& o) { return tile(o.buffer, o.tokens); },
                 [&](const Copy& o) { return whole(o.from) + whole(o.to); },
                 [](const AttentionForward&) { return Bytes(0); },
                 [](const AttentionBackward&) { return Bytes(0); }},
      kernel);
}

Totals totals_of(const Program& program, const Problem& problem, Rank rank) {
  Totals totals;
  const Shapes shapes{.problem = &problem, .buffers = program.buffers, .rank = rank};
  ProgramCursor cursor(program);
  while (const Op* op = cursor.next()) {
    std::visit(
        Overloaded{[&](const Transfer& transfer) {
                     totals.sent.at(static_cast<std::size_t>(comm_kind_of(transfer))) +=
                         sent_bytes(transfer, shapes);
                   },
                   [&](const Kernel& kernel) { totals.flops += attention_flops(kernel, problem); }},
        op->body);
  }
  return totals;
}

}  // namespace spp
