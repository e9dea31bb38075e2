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
                       double per_pair) {
  const auto pairs = static_cast<double>(allowed_pairs(q, k, p.mask));
  return FlopCount(per_pair * pairs * heads.count() * p.head_dim * static_cast<double>(p.batch));
}

}  // namespace

std::string_view to_string(CommKind kind) {
  constexpr std::array<std::string_view, comm_kinds> names{"send_recv", "all_to_all", "all_gather",
                                                           "reduce_scatter", "all_reduce"};
  return names.at(static_cast<std::size_t>(kind));
}

CommKind comm_kind_of(const OpBody& body) {
  if (std::holds_alternative<Exchange>(body)) {
    return CommKind::send_recv;
  }
  if (std::holds_alternative<AllToAll>(body)) {
    return CommKind::all_to_all;
  }
  if (std::holds_alternative<AllGather>(body)) {
    return CommKind::all_gather;
  }
  if (std::holds_alternative<ReduceScatter>(body)) {
    return CommKind::reduce_scatter;
  }
  ensure(std::holds_alternative<AllReduce>(body), "a kernel has no kind of communication");
  return CommKind::all_reduce;
}

Bytes sent_bytes_to(const AllToAll& op, int peer, const Shapes& shapes) {
  const int self = op.group.index_of(shapes.rank);
  if (peer == self) {
    return Bytes(0);
  }
  // The part of `to`-shaped data that goes to one peer: its heads of my tokens, or my heads of its
  // tokens.
  const int owner = op.kind == AllToAllKind::scatter_heads ? peer : self;
  Buffer part = shapes.buffers[op.from.index()];
  part.tokens = op.tokens;
  part.heads = op.kv ? op.split.kv(owner).count() : op.split.q(owner).count();
  return bytes_of(part, *shapes.problem);
}

Bytes sent_bytes(const OpBody& body, const Shapes& shapes) {
  return std::visit(
      Overloaded{
          [&](const Exchange& o) {
            return o.to.valid() && o.to != shapes.rank ? size_of_list(shapes, o.send.ids())
                                                       : Bytes(0);
          },
          [&](const AllToAll& o) {
            Bytes total{};
            for (int peer = 0; peer < o.group.size; ++peer) {
              total += sent_bytes_to(o, peer, shapes);
            }
            return total;
          },
          [&](const AllGather& o) { return size_at(shapes, o.from) * (o.group.size - 1); },
          [&](const ReduceScatter& o) { return size_at(shapes, o.to) * (o.group.size - 1); },
          [&](const AllReduce& o) {  // every part but one is reduced, then gathered
            return Bytes(size_at(shapes, o.to).value() / o.group.size * 2 * (o.group.size - 1));
          },
          [](const AttentionForward&) { return Bytes(0); },
          [](const AttentionBackward&) { return Bytes(0); }, [](const RowDot&) { return Bytes(0); },
          [](const Merge&) { return Bytes(0); }, [](const Rescale&) { return Bytes(0); },
          [](const Accumulate&) { return Bytes(0); }, [](const Fill&) { return Bytes(0); },
          [](const Copy&) { return Bytes(0); }},
      body);
}

FlopCount attention_flops(const OpBody& body, const Problem& problem) {
  if (const auto* f = std::get_if<AttentionForward>(&body)) {
    return matmul_flops(f->q_tokens, f->k_tokens, f->heads, problem, 4);
  }
  if (const auto* b = std::get_if<AttentionBackward>(&body)) {
    return matmul_flops(b->q_tokens, b->k_tokens, b->heads, problem, 10);
  }
  return FlopCount(0);
}

Bytes touched_bytes(const OpBody& body, const Shapes& shapes) {
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
                 [](const AttentionBackward&) { return Bytes(0); },
                 [](const Exchange&) { return Bytes(0); }, [](const AllToAll&) { return Bytes(0); },
                 [](const AllGather&) { return Bytes(0); },
                 [](const ReduceScatter&) { return Bytes(0); },
                 [](const AllReduce&) { return Bytes(0); }},
      body);
}

Totals totals_of(const Program& program, const Problem& problem, Rank rank) {
  Totals totals;
  const Shapes shapes{.problem = &problem, .buffers = program.buffers, .rank = rank};
  ProgramCursor cursor(program);
  while (const Op* op = cursor.next()) {
    if (is_communication(op->body)) {
      totals.sent.at(static_cast<std::size_t>(comm_kind_of(op->body))) +=
          sent_bytes(op->body, shapes);
    }
    totals.flops += attention_flops(op->body, problem);
  }
  return totals;
}

}  // namespace spp
