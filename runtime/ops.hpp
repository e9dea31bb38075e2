// One op of a stored program, in terms of memory: what all executors have in common, wherever the
// memory and the kernels are. They differ in what `target` does:
//
//   run_kernel         target has forward, backward (runtime/kernels/attention.hpp), scores,
//                      softmax, softmax_backward, weigh, weigh_back, linear_forward,
//                      linear_backward, make_state, sum_states, apply_state
//                      (runtime/kernels/products.hpp) and row_dot, sink, sink_backward, merge,
//                      rescale, accumulate, fill, move (runtime/kernels/elementwise.hpp), gemm and
//                      the functions of runtime/kernels/layer.hpp, experts.hpp and words.hpp, with
//                      the arguments that these have there, polls left out
//   run_transfer       target has exchange(parts), all_to_all(group, parts), all_gather(group,
//                      parts), reduce_scatter(group, parts), all_reduce(group, parts)
#pragma once

#include "runtime/comm/collectives.hpp"
#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/experts.hpp"
#include "runtime/kernels/head_moves.hpp"
#include "runtime/kernels/latent.hpp"
#include "runtime/kernels/layer.hpp"
#include "runtime/kernels/products.hpp"
#include "runtime/kernels/words.hpp"
#include "runtime/memory.hpp"
#include "schedule/measure.hpp"
#include "schedule/timeline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

namespace spp::runtime {

/// The event of op `index`, with its bytes and FLOPs. Times as measured by the executor. What it
/// waited for is told when all have ended (tell_waits).
TimelineEvent event_of(const Schedule& schedule, const StoredProgram& program, std::int32_t index,
                       Seconds begin, Seconds end);
/// Of the events of all ops of a rank: which op's end let each begin.
void tell_waits(const StoredProgram& program, std::vector<TimelineEvent>& events);

/// BackendError if a transfer has sent other bytes than the schedule says.
void expect_sent(const Transfer& transfer, const Shapes& shapes, Bytes sent);

/// The others that take part in an op of rank `self`; nobody in a kernel.
std::vector<Rank> peers_of(const OpBody& body, Rank self);

inline Shapes shapes_of(const Schedule& schedule, const StoredProgram& program) {
  return {
      .problem = &schedule.contract.attention, .buffers = program.buffers, .rank = program.rank};
}

/// `parts` by group index: where each member's part goes; `own` lies elsewhere and is copied there.
struct AllGatherParts {
  std::span<const std::byte> own;
  std::vector<std::span<std::byte>> parts;
};
/// `parts` by group index, elements of `from_type`; `result` gets the sum of all members' own part.
struct ReduceScatterParts {
  std::vector<std::span<const std::byte>> parts;
  DType from_type = DType::fp32;
  std::span<std::byte> result;
  DType to_type = DType::fp32;
};
/// By group index, all of one size, elements of `type`; `results` get the sums over all members.
struct AllReduceParts {
  std::vector<std::span<const std::byte>> parts;
  std::vector<std::span<std::byte>> results;
  DType type = DType::fp32;
};

/// A stored op and what it works on.
struct OpPlace {
  const Schedule& schedule;
  const ProgramMemory& memory;
  const StoredOp& stored;

  [[nodiscard]] Rows rows(BufferId id) const { return memory.rows(stored.rows_of(id)); }
  template <class Attention>
  [[nodiscard]] Visibility visible(const Attention& op) const {
    return {.q_tokens = schedule.contract.attention.local(op.q_tokens),
            .k_tokens = schedule.contract.attention.local(op.k_tokens),
            .mask = schedule.contract.attention.mask_of(op.mask),
            .seq = schedule.contract.requested.end()};
  }
  /// Of whole rows.
  [[nodiscard]] Visibility visible(const Softmax& op) const {
    return {.q_tokens = schedule.contract.attention.local(op.tokens),
            .k_tokens = TokenSet({.begin = 0, .count = schedule.contract.attention.end()}),
            .mask = schedule.contract.attention.mask_of(op.mask),
            .seq = schedule.contract.requested.end()};
  }
  /// Of softmax: 1 / sqrt(head_dim).
  [[nodiscard]] float scale() const {
    return 1 / std::sqrt(static_cast<float>(schedule.contract.attention.head_dim));
  }
  [[nodiscard]] Box box(BufferId id, const CellBox& cells) const {
    return {.data = memory.cells(id, {.begin = cells.begin, .count = 0}).data(),
            .dtype = memory.buffer(id).dtype,
            .row_heads = cells.row_heads,
            .row_step = cells.row_step};
  }
  /// Parts of a buffer, by group index.
  template <class Byte>
  [[nodiscard]] std::vector<std::span<Byte>> parts(BufferId id,
                                                   const std::vector<CellSpan>& spans) const {
    std::vector<std::span<Byte>> result;
    for (const CellSpan& span : spans) {
      result.emplace_back(memory.cells(id, span));
    }
    return result;
  }
  /// Whole buffers.
  template <class Byte>
  [[nodiscard]] std::vector<std::span<Byte>> whole(const BufferList& ids) const {
    std::vector<std::span<Byte>> result;
    for (const BufferId id : ids) {
      result.emplace_back(memory.bytes(id));
    }
    return result;
  }
};

inline AttentionForwardArgs arguments_of(const OpPlace& at, const AttentionForward& op) {
  return {.q = at.rows(op.q),
          .k = at.rows(op.k),
          .v = at.rows(op.v),
          .out = at.rows(op.out),
          .lse = at.rows(op.lse),
          .visible = at.visible(op)};
}
inline AttentionBackwardArgs arguments_of(const OpPlace& at, const AttentionBackward& op) {
  return {.q = at.rows(op.q),
          .k = at.rows(op.k),
          .v = at.rows(op.v),
          .d_out = at.rows(op.d_out),
          .lse = at.rows(op.lse),
          .delta = at.rows(op.delta),
          .d_q = at.rows(op.d_q),
          .d_k = at.rows(op.d_k),
          .d_v = at.rows(op.d_v),
          .visible = at.visible(op)};
}

/// Of a transposed layer y = x w^T is the product that its kind is of y' = x' w for another one:
/// y of x is d_x' of d_y', d_x of d_y is y' of x', and d_w = d_y^T x is d_w of x' = d_y.
inline GemmArgs arguments_of(const OpPlace& at, const Gemm& op) {
  GemmArgs args{.a = at.rows(op.a),
                .b = at.rows(op.b),
                .c = at.rows(op.c),
                .kind = op.kind,
                .add = !op.initial};
  if (at.schedule.contract.graph.definition(op.definition).transposed) {
    if (op.kind == GemmKind::weight_gradient) {
      std::swap(args.a, args.b);
    } else {
      args.kind = op.kind == GemmKind::forward ? GemmKind::input_gradient : GemmKind::forward;
    }
  }
  return args;
}

/// Rows [first, first + count).
inline Rows rows_of(Rows all, std::int64_t first, std::int64_t count) {
  all.data += all.bytes() / std::max<std::int64_t>(all.count, 1) * first;
  all.count = count;
  return all;
}

/// f(args) of the op's product; of experts for each run of rows that one of them gets, by its
/// matrix. No two runs give the same rows, and gradients of a matrix are added up.
template <class F>
void for_each_product(const OpPlace& at, const Gemm& op, F f) {
  const GemmArgs all = arguments_of(at, op);
  if (op.experts == 0) {
    return f(all);
  }
  const bool of_weight = op.kind == GemmKind::weight_gradient;
  const std::int64_t rows = (of_weight ? all.c : all.b).count / op.experts;
  std::vector<bool> begun(static_cast<std::size_t>(op.experts), !op.initial);
  for (const ExpertRun& run : at.stored.runs) {
    GemmArgs args = all;
    args.a = rows_of(all.a, run.begin, run.count);
    if (of_weight) {
      args.b = rows_of(all.b, run.begin, run.count);
      args.c = rows_of(all.c, run.expert * rows, rows);
      args.add = begun[static_cast<std::size_t>(run.expert)];
      begun[static_cast<std::size_t>(run.expert)] = true;
    } else {
      args.b = rows_of(all.b, run.expert * rows, rows);
      args.c = rows_of(all.c, run.begin, run.count);
    }
    f(args);
  }
}

/// f(args) of the op's bias, if it has one: y and bias, or their gradients, with the weights or
/// theirs; of experts for each run of rows that one of them gets.
template <class F>
void for_each_bias(const OpPlace& at, const Gemm& op, F f) {
  if (op.bias.empty()) {
    return;
  }
  const BufferId y = op.kind == GemmKind::forward          ? op.c
                     : op.kind == GemmKind::input_gradient ? op.a
                                                           : op.b;
  const BiasGradientArgs all{.d_y = at.rows(y), .d_bias = at.rows(op.bias.ids()[0])};
  if (op.experts == 0) {
    return f(all);
  }
  const std::int64_t numbers = all.d_bias.count / op.experts;
  std::vector<bool> begun(static_cast<std::size_t>(op.experts));
  for (const ExpertRun& run : at.stored.runs) {
    BiasGradientArgs args{.d_y = rows_of(all.d_y, run.begin, run.count),
                          .d_bias = rows_of(all.d_bias, run.expert * numbers, numbers),
                          .add = begun[static_cast<std::size_t>(run.expert)]};
    for (const BufferId weights : op.bias_weights) {
      args.weights = rows_of(at.rows(weights), run.begin, run.count);
    }
    begun[static_cast<std::size_t>(run.expert)] = true;
    f(args);
  }
}

/// The column of the first of these keys in a row of pairs.
inline std::int64_t first_of(const TokenSet& keys, const Problem& problem) {
  const TokenSet local = problem.local(keys);
  return local.ranges()[0].begin;
}

/// Gains, and biases, of a norm over rows of `width`: a row each.
inline Rows norm_weights(Rows column, std::int64_t width) {
  column.count = column.count * column.width / width;
  column.width = static_cast<int>(width);
  return column;
}

/// A row-wise function on rows in memory, in the order that the op has them.
struct RowCall {
  const Definition& definition;
  bool backward = false;
  TokenSet tokens;  // as positions; of what a step has beside its layers: none
  Routing routing;
  std::int64_t first = 0;  // of an embedding: the word that its table begins with
  int part = 0;            // of word_sums, as the op has it
  float scale = 1;         // of the loss, whose gradient word_sums gives
  std::span<const Rows> reads, writes;
};

/// What a step has beside its layers.
constexpr bool is_beside_layers(LayerFunction function) {
  return function >= LayerFunction::embedding && function <= LayerFunction::adam;
}

template <class Target>
void run_words(const RowCall& op, Target&& target) {
  const Definition& d = op.definition;
  const auto in = [&](std::size_t i) { return op.reads[i]; };
  const auto out = [&](std::size_t i) { return op.writes[i]; };
  if (d.function == LayerFunction::embedding) {
    return op.backward ? target.embedding_backward(EmbeddingBackwardArgs{
                             .words = in(0), .d_x = in(2), .d_table = out(0), .first = op.first})
                       : target.embedding(EmbeddingArgs{
                             .words = in(0), .table = in(1), .x = out(0), .first = op.first});
  }
  if (d.function == LayerFunction::word_sums) {
    return op.backward ? target.word_sums_backward(WordSumsBackwardArgs{.logits = in(0),
                                                                        .targets = in(1),
                                                                        .log_sum = in(2),
                                                                        .d_logits = out(0),
                                                                        .part = op.part,
                                                                        .scale = op.scale})
                       : target.word_sums(WordSumsArgs{
                             .logits = in(0), .targets = in(1), .sums = out(0), .part = op.part});
  }
  if (d.function == LayerFunction::word_loss) {
    return target.word_loss(
        WordLossArgs{.sums = in(0), .targets = in(1), .loss = out(0), .log_sum = out(1)});
  }
  target.adam(AdamArgs{.gradient = in(0),
                       .master = in(1),
                       .first = in(2),
                       .second = in(3),
                       .param = out(3),
                       .rate = static_cast<float>(d.constant)});
}

template <class Target>
void run_row_call(const RowCall& op, Target&& target) {
  const Definition& d = op.definition;
  if (is_beside_layers(d.function)) {
    return run_words(op, target);
  }
  const auto in = [&](std::size_t i) { return op.reads[i]; };
  const auto out = [&](std::size_t i) { return op.writes[i]; };
  const auto norm = [&] {
    const Rows x = in(0);
    return NormArgs{
        .x = x, .weight = norm_weights(in(1), x.width), .y = out(0), .statistics = out(1)};
  };
  const auto norm_backward = [&] {
    const Rows x = in(0);
    return NormBackwardArgs{.x = x,
                            .weight = norm_weights(in(1), x.width),
                            .statistics = in(2),
                            .d_y = in(3),
                            .d_x = out(0),
                            .d_weight = norm_weights(out(1), x.width)};
  };
  const bool norms_heads = d.function == LayerFunction::split_heads && d.param >= 0;
  const auto split_heads = [&] {
    SplitHeadsArgs args{.qkv = in(0),
                        .q = out(0),
                        .k = out(1),
                        .v = out(2),
                        .positions = op.tokens,
                        .theta = d.constant,
                        .epsilon = static_cast<float>(d.epsilon)};
    if (norms_heads) {
      args.gain = norm_weights(in(1), args.q.width);
    }
    return args;
  };
  const auto joined_heads = [&] {
    JoinHeadsArgs args{.heads = {.qkv = out(0),
                                 .q = in(0),
                                 .k = in(1),
                                 .v = in(2),
                                 .positions = op.tokens,
                                 .theta = d.constant,
                                 .epsilon = static_cast<float>(d.epsilon)}};
    if (norms_heads) {
      args.x = in(3);
      args.heads.gain = norm_weights(in(4), args.heads.q.width);
      args.d_gain = norm_weights(out(1), args.heads.q.width);
    }
    return args;
  };
  const auto latents = [&](std::span<const Rows> rows, std::span<const Rows> heads) {
    return LatentHeadsArgs{.q_row = rows[0],
                           .kv_row = rows[1],
                           .position = rows[2],
                           .q = heads[0],
                           .k = heads[1],
                           .v = heads[2],
                           .positions = op.tokens,
                           .theta = d.constant};
  };
  const auto epsilon = static_cast<float>(d.constant);
  switch (d.function) {
    case LayerFunction::rms_norm:
      return op.backward ? target.rms_norm_backward(norm_backward())
                         : target.rms_norm(norm(), epsilon);
    case LayerFunction::layer_norm:
      return op.backward ? target.layer_norm_backward(norm_backward())
                         : target.layer_norm(norm(), epsilon);
    case LayerFunction::split_heads:
      if (d.joins_latents()) {
        return op.backward ? target.join_latent_heads(latents(op.writes, op.reads))
                           : target.latent_heads(latents(op.reads, op.writes));
      }
      return op.backward ? target.join_heads(joined_heads()) : target.split_heads(split_heads());
    case LayerFunction::swiglu:
      return op.backward
                 ? target.swiglu_backward(SwigluBackwardArgs{
                       .gate = in(0), .up = in(1), .d_a = in(2), .d_gate = out(0), .d_up = out(1)})
                 : target.swiglu(in(0), in(1), out(0));
    case LayerFunction::gelu:
      return op.backward ? target.gelu_backward(in(0), in(1), out(0)) : target.gelu(in(0), out(0));
    case LayerFunction::add:
      return target.add(in(0), in(1), out(0));
    case LayerFunction::split: {
      const auto moves = op.backward ? moves_of_columns(out(0), in(0), in(1))
                                     : moves_of_columns(in(0), out(0), out(1));
      for (const ColumnMove& column : moves) {
        const auto& [part, in_row, alone] = column;
        target.move(op.backward ? alone : in_row, op.backward ? in_row : alone, part.count,
                    part.batch, part.heads, part.width, false);
      }
      return;
    }
    case LayerFunction::route:
      return op.backward ? target.route_backward(RouteBackwardArgs{.weights = in(0),
                                                                   .d_weights = in(1),
                                                                   .d_scores = out(0),
                                                                   .tokens = op.tokens,
                                                                   .routing = op.routing})
                         : target.route(RouteArgs{.scores = in(0),
                                                  .weights = out(0),
                                                  .tokens = op.tokens,
                                                  .routing = op.routing});
    case LayerFunction::expert_swiglu:
      return op.backward ? target.expert_swiglu_backward(
                               ExpertSwigluBackwardArgs{.gate_up = in(0),
                                                        .weights = in(1),
                                                        .d_a = in(2),
                                                        .d_gate_up = out(0),
                                                        .d_weights = out(1),
                                                        .add = op.reads.size() > 3})
                         : target.expert_swiglu(
                               ExpertSwigluArgs{.gate_up = in(0), .weights = in(1), .a = out(0)});
    case LayerFunction::embedding:
    case LayerFunction::word_sums:
    case LayerFunction::word_loss:
    case LayerFunction::adam:
    case LayerFunction::linear:
    case LayerFunction::dispatch:
    case LayerFunction::combine:
      break;
  }
  throw InternalError("no row-wise function of a layer");
}

template <class Target>
void run_row_kernel(const OpPlace& at, const RowKernel& op, Target&& target) {
  const Graph& graph = at.schedule.contract.graph;
  const Definition& d = graph.definition(op.definition);
  const Problem& whole = at.schedule.contract.requested;
  std::array<Rows, 8> reads;
  std::array<Rows, 8> writes;
  const auto rows = [&](const BufferList& ids, std::array<Rows, 8>& into) {
    std::ranges::transform(ids, into.begin(), [&](BufferId id) { return at.rows(id); });
    return std::span<const Rows>(into).first(ids.ids().size());
  };
  run_row_call(
      {.definition = d,
       .backward = op.backward,
       .tokens = is_beside_layers(d.function) ? TokenSet()
                                              : at.schedule.contract.attention.local(op.tokens),
       .routing = graph.routing,
       .first =
           d.function == LayerFunction::embedding ? op.part * graph.param(d.param).part_rows() : 0,
       .part = op.part,
       .scale = 1 / static_cast<float>(whole.all_tokens() * whole.batch),  // the loss is the mean
       .reads = rows(op.reads, reads),
       .writes = rows(op.writes, writes)},
      target);
}

/// `kernel` is at.stored.op.
template <class Target>
void run_kernel(const OpPlace& at, const Kernel& kernel, Target&& target) {
  const auto rows = [&](BufferId id) { return at.rows(id); };
  std::visit(
      Overloaded{
          [&](const AttentionForward& op) { target.forward(arguments_of(at, op)); },
          [&](const AttentionBackward& op) { target.backward(arguments_of(at, op)); },
          [&](const Scores& op) {
            target.scores(rows(op.rows), rows(op.columns), rows(op.to),
                          first_of(op.k_tokens, at.schedule.contract.attention));
          },
          [&](const Softmax& op) {
            target.softmax(rows(op.scores), rows(op.weights), at.visible(op), at.scale());
          },
          [&](const SoftmaxBackward& op) {
            target.softmax_backward(rows(op.weights), rows(op.d_weights), rows(op.d_scores),
                                    at.scale());
          },
          [&](const Weigh& op) {
            target.weigh(rows(op.weights), rows(op.values), rows(op.to),
                         first_of(op.k_tokens, at.schedule.contract.attention), op.initial);
          },
          [&](const WeighBack& op) {
            target.weigh_back(rows(op.weights), rows(op.rows), rows(op.to),
                              first_of(op.k_tokens, at.schedule.contract.attention));
          },
          [&](const LinearForward& op) {
            target.linear_forward(rows(op.q), rows(op.k), rows(op.v), rows(op.out));
          },
          [&](const LinearBackward& op) {
            target.linear_backward(LinearBackwardArgs{.q = rows(op.q),
                                                      .k = rows(op.k),
                                                      .v = rows(op.v),
                                                      .d_out = rows(op.d_out),
                                                      .d_q = rows(op.d_q),
                                                      .d_k = rows(op.d_k),
                                                      .d_v = rows(op.d_v)});
          },
          [&](const MakeState& op) {
            target.make_state(rows(op.rows), rows(op.values), rows(op.to));
          },
          [&](const SumStates& op) { target.sum_states(rows(op.from), rows(op.to)); },
          [&](const ApplyState& op) {
            const Tensor to = at.memory.buffer(op.to).tensor;
            target.apply_state(
                rows(op.rows), rows(op.state), rows(op.to),
                StateUse{.transposed = to == Tensor::d_q || to == Tensor::d_k, .add = !op.initial});
          },
          [&](const RowDot& op) { target.row_dot(rows(op.out), rows(op.d_out), rows(op.delta)); },
          [&](const Sink& op) {
            target.sink(SinkArgs{.out = rows(op.out),
                                 .lse = at.memory.rows(at.stored.rows.back()),
                                 .sinks = rows(op.sinks),
                                 .first = at.stored.rows_of(op.lse).begin});
          },
          [&](const SinkBackward& op) {
            target.sink_backward(SinkBackwardArgs{.lse = rows(op.lse),
                                                  .delta = rows(op.delta),
                                                  .sinks = rows(op.sinks),
                                                  .d_sinks = rows(op.d_sinks)});
          },
          [&](const Merge& op) {
            target.merge(rows(op.out), rows(op.lse), rows(op.part_out), rows(op.part_lse),
                         op.initial);
          },
          [&](const Rescale& op) {
            target.rescale(rows(op.out), rows(op.lse), rows(op.gathered_lse), rows(op.scaled),
                           rows(op.global_lse));
          },
          [&](const Accumulate& op) { target.accumulate(rows(op.sum), rows(op.part), op.initial); },
          [&](const Fill& op) {
            const bool lse = at.memory.buffer(op.buffer).tensor == Tensor::lse;
            target.fill(rows(op.buffer), lse ? -std::numeric_limits<float>::infinity() : 0.0F);
          },
          [&](const Gemm& op) {
            for_each_product(at, op, [&](const GemmArgs& args) { target.gemm(args); });
            for_each_bias(at, op, [&](const BiasGradientArgs& all) {
              const auto& [y, bias, weights, add] = all;
              switch (op.kind) {
                case GemmKind::forward:
                  return target.add_bias({.y = y, .bias = bias, .weights = weights});
                case GemmKind::input_gradient:
                  return target.bias_weights_gradient(
                      {.d_y = y, .bias = bias, .d_weights = weights});
                case GemmKind::weight_gradient:
                  return target.bias_gradient(all);
              }
            });
          },
          [&](const RowKernel& op) { run_row_kernel(at, op, target); },
          [&](const Copy& op) {
            for (const CellMove& m : at.stored.moves) {
              target.move(at.box(op.from, m.from), at.box(op.to, m.to), m.rows,
                          at.memory.buffer(op.from).batch, m.heads, at.memory.width(op.from),
                          m.add);
            }
          }},
      kernel);
}

template <class Target>
auto run_collective(const OpPlace& at, const Collective& op, Target&& target) {
  const auto sends = [&] { return at.parts<const std::byte>(op.from, at.stored.sends); };
  const auto receives = [&] { return at.parts<std::byte>(op.to, at.stored.receives); };
  const DType from_type = at.memory.buffer(op.from).dtype;
  const DType to_type = at.memory.buffer(op.to).dtype;
  switch (op.kind) {
    case CollectiveKind::all_to_all:
      return target.all_to_all(op.group, AllToAllParts{.send = sends(), .receive = receives()});
    case CollectiveKind::all_gather:
      return target.all_gather(
          op.group, AllGatherParts{.own = at.memory.cells(op.from, at.stored.sends.front()),
                                   .parts = receives()});
    case CollectiveKind::reduce_scatter:
      return target.reduce_scatter(
          op.group, ReduceScatterParts{.parts = sends(),
                                       .from_type = from_type,
                                       .result = at.memory.cells(op.to, at.stored.receives.front()),
                                       .to_type = to_type});
    case CollectiveKind::all_reduce:
      return target.all_reduce(
          op.group, AllReduceParts{.parts = sends(), .results = receives(), .type = to_type});
  }
  throw InternalError("unknown kind of collective");
}

/// `transfer` is at.stored.op.
template <class Target>
auto run_transfer(const OpPlace& at, const Transfer& transfer, Target&& target) {
  return std::visit(
      Overloaded{[&](const Exchange& op) {
                   return target.exchange(
                       ExchangeParts{.to = op.to,
                                     .from = op.from,
                                     .send = at.whole<const std::byte>(op.send),
                                     .receive = at.whole<std::byte>(op.receive)});
                 },
                 [&](const Collective& op) { return run_collective(at, op, target); }},
      transfer);
}

}  // namespace spp::runtime
