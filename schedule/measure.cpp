#include "schedule/measure.hpp"

#include <algorithm>

namespace spp {
namespace {

Bytes size_at(const Shapes& shapes, BufferId id) { return bytes_of(shapes.buffers[id.index()]); }

Bytes size_of_list(const Shapes& shapes, std::span<const BufferId> ids) {
  Bytes total{};
  for (const BufferId id : ids) {
    total += size_at(shapes, id);
  }
  return total;
}

/// Bytes of `tokens` of a buffer that holds more.
Bytes size_of_tile(const Shapes& shapes, BufferId id, std::int64_t tokens) {
  const Buffer& buffer = shapes.buffers[id.index()];
  return bytes_of(buffer, tokens, buffer.heads);
}

/// A product of every pair of a block with a row of `operand`.
template <class Block>
FlopCount dense_flops(const Block& o, BufferId operand, const Shapes& shapes) {
  const Buffer& rows = shapes.buffers[operand.index()];
  return FlopCount(2.0 * static_cast<double>(o.q_tokens.count()) *
                   static_cast<double>(o.k_tokens.count()) * static_cast<double>(rows.width) *
                   o.heads.count() * static_cast<double>(rows.batch));
}

/// A state made of rows, or rows of a state.
template <class Rows>
FlopCount state_flops(const Rows& o, const Problem& p) {
  return FlopCount(2.0 * static_cast<double>(o.tokens.count()) * p.head_dim * p.head_dim *
                   o.heads.count() * static_cast<double>(p.batch));
}

template <class Attention>
FlopCount matmul_flops(const Attention& o, const Problem& p, Phase phase) {
  const double per_pair = flops_per_pair(phase, p.head_dim, p.v_dim());
  const auto pairs = static_cast<double>(
      allowed_pairs(p.local(o.q_tokens), p.local(o.k_tokens), p.mask_of(o.mask)));
  return FlopCount(per_pair * pairs * o.heads.count() * static_cast<double>(p.batch));
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
  if (const auto* experts = std::get_if<ExpertDeal>(&op.deal)) {
    return bytes_of(shapes.buffers[op.from.index()], experts->cells, 1);
  }
  // The part of `to`-shaped data that goes to one peer: its heads of my tokens, or my heads of its
  // tokens.
  const HeadDeal& deal = std::get<HeadDeal>(op.deal);
  const int owner = deal.direction == HeadDirection::scatter_heads ? peer : self;
  return bytes_of(shapes.buffers[op.from.index()], deal.tokens, deal.heads(owner).count());
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

double linear_flops(std::int64_t tokens, int head_dim, Phase phase) {
  const double rows = 2.0 * static_cast<double>(tokens) * head_dim;
  const double of_chunk = static_cast<double>(std::min(tokens, linear_chunk)) / 2;
  return phase == Phase::forward ? rows * (2.0 * head_dim + 2 * of_chunk)
                                 : rows * (5.0 * head_dim + 5 * of_chunk);
}

FlopCount attention_flops(const Kernel& kernel, const Shapes& shapes) {
  const Problem& problem = *shapes.problem;
  const auto linear = [&](const auto& o, Phase phase) {
    return FlopCount(linear_flops(o.tokens.count(), problem.head_dim, phase) * o.heads.count() *
                     static_cast<double>(problem.batch));
  };
  const FlopCount none(0);
  return std::visit(
      Overloaded{
          [&](const AttentionForward& o) { return matmul_flops(o, problem, Phase::forward); },
          [&](const AttentionBackward& o) { return matmul_flops(o, problem, Phase::backward); },
          [&](const Scores& o) { return dense_flops(o, o.columns, shapes); },
          [&](const Weigh& o) { return dense_flops(o, o.values, shapes); },
          [&](const WeighBack& o) { return dense_flops(o, o.rows, shapes); },
          [&](const LinearForward& o) { return linear(o, Phase::forward); },
          [&](const LinearBackward& o) { return linear(o, Phase::backward); },
          [&](const MakeState& o) { return state_flops(o, problem); },
          [&](const ApplyState& o) { return state_flops(o, problem); },
          [&](const Softmax&) { return none; },
          [&](const SoftmaxBackward&) { return none; },
          [&](const SumStates&) { return none; },
          [&](const RowDot&) { return none; },
          [&](const Sink&) { return none; },
          [&](const SinkBackward&) { return none; },
          [&](const Merge&) { return none; },
          [&](const Rescale&) { return none; },
          [&](const Accumulate&) { return none; },
          [&](const Fill&) { return none; },
          [&](const Copy&) { return none; },
          [&](const Gemm&) { return none; },
          [&](const RowKernel&) { return none; }},
      kernel);
}

GemmShape gemm_shape(const Gemm& op, const Shapes& shapes) {
  const auto columns = [&](BufferId id) {
    const Buffer& buffer = shapes.buffers[id.index()];
    return buffer.heads * buffer.width;
  };
  const Buffer& of_rows = shapes.buffers[op.a.index()];
  const std::int64_t rows = (op.experts > 0 ? of_rows.tokens : op.tokens.count()) * of_rows.batch;
  if (op.kind == GemmKind::weight_gradient) {
    return {.m = columns(op.a), .n = columns(op.b), .k = rows};
  }
  return {.m = rows, .n = columns(op.c), .k = columns(op.a)};
}

FlopCount kernel_flops(const Kernel& kernel, const Shapes& shapes) {
  const auto* gemm = std::get_if<Gemm>(&kernel);
  return gemm != nullptr ? gemm_shape(*gemm, shapes).flops() : attention_flops(kernel, shapes);
}

namespace {

/// Of what has a row for each token these, of its slots all, and of a table as many; a norm's
/// parameter whole. The gradient of a table is cleared, then added to. An update names rows of its
/// parameter. The backward of norms of heads reads of the packed row what was normed: q and k, not
/// v.
Bytes row_kernel_bytes(const RowKernel& op, const Shapes& shapes) {
  if (op.reads.empty()) {
    return Bytes(0);  // no function does: not proven
  }
  const auto buffer = [&](BufferId id) -> const Buffer& { return shapes.buffers[id.index()]; };
  const Buffer& first = buffer(op.reads.ids()[0]);
  const bool is_update = is_param(first.tensor);
  const auto rows = [&](BufferId id) {
    return op.slots ? size_at(shapes, id)
                    : size_of_tile(shapes, id, op.tokens.count() * first.batch) / buffer(id).batch;
  };
  const auto is_norms = [&](BufferId id) {
    return is_param(buffer(id).tensor) && buffer(id).heads * buffer(id).width == 1;
  };
  Bytes total{};
  for (const BufferId id : op.reads) {
    total += !is_update && is_norms(id) ? size_at(shapes, id) : rows(id);
    if (first.tensor == Tensor::d_q && buffer(id).tensor == Tensor::value) {
      total -= rows(op.reads.ids()[2]);
    }
  }
  for (const BufferId id : op.writes) {
    const bool is_table = is_param(buffer(id).tensor) && !is_update;
    total += !is_table ? rows(id) : size_at(shapes, id) + rows(id) * (is_norms(id) ? 0 : 2);
  }
  return total;
}

}  // namespace

Bytes touched_bytes(const Kernel& kernel, const Shapes& shapes) {
  const auto tile = [&](BufferId id, const TokenSet& tokens) {
    return size_of_tile(shapes, id, tokens.count());
  };
  const auto whole = [&](BufferId id) { return size_at(shapes, id); };
  // Of what has a row for each token, these; a parameter whole.
  const auto rows_of = [&](BufferId id, const TokenSet& tokens) {
    return is_param(shapes.buffers[id.index()].tensor) ? whole(id) : tile(id, tokens);
  };
  // Kernels of linear attention write the state before each chunk, and read it in a second pass.
  const auto chunk_states = [&](const auto& o) {
    const Problem& p = *shapes.problem;
    const std::int64_t dim = p.head_dim;
    return Bytes(p.batch * ((o.tokens.count() + linear_chunk - 1) / linear_chunk) *
                 o.heads.count() * dim * dim * size_of(p.dtype));
  };
  // Of a tensor of pairs, some rows' part of the columns.
  const auto columns = [&](BufferId id, const TokenSet& rows, const TokenSet& keys) {
    return tile(id, rows) / shapes.problem->seq * keys.count();
  };
  return std::visit(
      Overloaded{[&](const Softmax& o) { return whole(o.scores) + whole(o.weights); },
                 [&](const SoftmaxBackward& o) {
                   return whole(o.weights) + whole(o.d_weights) + whole(o.d_scores);
                 },
                 [&](const Scores& o) {
                   return tile(o.rows, o.q_tokens) + tile(o.columns, o.k_tokens) +
                          columns(o.to, o.q_tokens, o.k_tokens);
                 },
                 [&](const Weigh& o) {
                   return columns(o.weights, o.q_tokens, o.k_tokens) + tile(o.values, o.k_tokens) +
                          tile(o.to, o.q_tokens) * (o.initial ? 1 : 2);
                 },
                 [&](const WeighBack& o) {
                   return columns(o.weights, o.q_tokens, o.k_tokens) + tile(o.rows, o.q_tokens) +
                          tile(o.to, o.k_tokens);
                 },
                 [&](const LinearForward& o) {
                   return tile(o.q, o.tokens) + tile(o.k, o.tokens) + tile(o.v, o.tokens) +
                          tile(o.out, o.tokens) + chunk_states(o) * 2;
                 },
                 [&](const LinearBackward& o) {
                   return tile(o.q, o.tokens) + tile(o.d_out, o.tokens) + tile(o.d_q, o.tokens) +
                          tile(o.k, o.tokens) + tile(o.v, o.tokens) + tile(o.d_k, o.tokens) +
                          tile(o.d_v, o.tokens) + chunk_states(o) * 4;
                 },
                 [&](const MakeState& o) {
                   return tile(o.rows, o.tokens) + tile(o.values, o.tokens) + whole(o.to);
                 },
                 [&](const SumStates& o) { return tile(o.from, o.slots) + whole(o.to); },
                 [&](const ApplyState& o) {
                   return tile(o.rows, o.tokens) + whole(o.state) +
                          tile(o.to, o.tokens) * (o.initial ? 1 : 2);
                 },
                 [&](const RowDot& o) { return whole(o.out) + whole(o.d_out) + whole(o.delta); },
                 [&](const Sink& o) { return (whole(o.out) + whole(o.lse)) * 2 + whole(o.sinks); },
                 [&](const SinkBackward& o) {
                   const std::int64_t tokens = shapes.buffers[o.delta.index()].tokens;
                   return size_of_tile(shapes, o.lse, tokens) + whole(o.delta) + whole(o.sinks) +
                          whole(o.d_sinks);
                 },
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
                 [&](const Copy& o) {
                   return o.of_some() ? tile(o.from, o.tokens) +
                                            tile(o.to, o.tokens) * (o.kind == CopyKind::add ? 2 : 1)
                                      : whole(o.from) + whole(o.to);
                 },
                 [&](const Gemm& o) {
                   if (o.experts > 0) {  // buffers of slots hold nothing else
                     return whole(o.a) + whole(o.b) + whole(o.c) * (o.initial ? 1 : 2);
                   }
                   return rows_of(o.a, o.tokens) + rows_of(o.b, o.tokens) +
                          rows_of(o.c, o.tokens) * (o.initial ? 1 : 2);
                 },
                 [&](const RowKernel& o) { return row_kernel_bytes(o, shapes); },
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
                   [&](const Kernel& kernel) { totals.flops += kernel_flops(kernel, shapes); }},
        op->body);
  }
  return totals;
}

}  // namespace spp
