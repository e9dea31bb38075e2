#include "schedule/op.hpp"

namespace spp {
namespace {

class AccessList {
 public:
  explicit AccessList(Access& access) : access_(access) {}
  AccessList& read(std::span<const BufferId> ids) {
    for (const BufferId id : ids) {
      access_.reads_storage.at(access_.read_count++) = id;
    }
    return *this;
  }
  AccessList& write(std::span<const BufferId> ids) {
    for (const BufferId id : ids) {
      access_.writes_storage.at(access_.write_count++) = id;
    }
    return *this;
  }
  AccessList& read(std::initializer_list<BufferId> ids) { return read(std::span(ids)); }
  AccessList& write(std::initializer_list<BufferId> ids) { return write(std::span(ids)); }
  /// What an accumulating op does to its target: reads it unless it is the first contribution.
  AccessList& update(std::initializer_list<BufferId> ids, bool initial) {
    return initial ? write(ids) : read(ids).write(ids);
  }

 private:
  Access& access_;
};

}  // namespace

std::string_view to_string(Tensor t) {
  constexpr std::array<std::string_view, tensor_count> names{
      "q",         "k",        "v",      "out",          "lse",          "d_out",
      "d_q",       "d_k",      "d_v",    "delta",        "scores",       "weights",
      "d_weights", "d_scores", "state",  "d_state",      "value",        "d_value",
      "param",     "d_param",  "master", "first_moment", "second_moment"};
  return names.at(static_cast<std::size_t>(t));
}

std::string_view to_string(BufferRole r) {
  constexpr std::array<std::string_view, 4> names{"input", "output", "scratch", "state"};
  return names.at(static_cast<std::size_t>(r));
}

std::string_view to_string(CopyKind k) {
  constexpr std::array<std::string_view, 10> names{"pack", "unpack", "cast", "reorder",  "deal",
                                                   "take", "add",    "fold", "dispatch", "combine"};
  return names.at(static_cast<std::size_t>(k));
}

std::string_view to_string(HeadDirection d) {
  return d == HeadDirection::scatter_heads ? "scatter_heads" : "gather_heads";
}

std::string_view to_string(OpKind kind) {
  constexpr std::array<std::string_view, op_kinds> names{
      "attention_fwd", "attention_bwd",  "scores",     "softmax",    "softmax_bwd", "weigh",
      "weigh_back",    "linear_fwd",     "linear_bwd", "make_state", "sum_states",  "apply_state",
      "row_dot",       "sink",           "sink_bwd",   "merge",      "rescale",     "accumulate",
      "fill",          "copy",           "gemm",       "row_kernel", "exchange",    "all_to_all",
      "all_gather",    "reduce_scatter", "all_reduce"};
  return names.at(static_cast<std::size_t>(kind));
}

OpKind kind_of(const OpBody& body) {
  return visit_op(Overloaded{[](const AttentionForward&) { return OpKind::attention_fwd; },
                             [](const AttentionBackward&) { return OpKind::attention_bwd; },
                             [](const Scores&) { return OpKind::scores; },
                             [](const Softmax&) { return OpKind::softmax; },
                             [](const SoftmaxBackward&) { return OpKind::softmax_bwd; },
                             [](const Weigh&) { return OpKind::weigh; },
                             [](const WeighBack&) { return OpKind::weigh_back; },
                             [](const LinearForward&) { return OpKind::linear_fwd; },
                             [](const LinearBackward&) { return OpKind::linear_bwd; },
                             [](const MakeState&) { return OpKind::make_state; },
                             [](const SumStates&) { return OpKind::sum_states; },
                             [](const ApplyState&) { return OpKind::apply_state; },
                             [](const RowDot&) { return OpKind::row_dot; },
                             [](const Sink&) { return OpKind::sink; },
                             [](const SinkBackward&) { return OpKind::sink_bwd; },
                             [](const Merge&) { return OpKind::merge; },
                             [](const Rescale&) { return OpKind::rescale; },
                             [](const Accumulate&) { return OpKind::accumulate; },
                             [](const Fill&) { return OpKind::fill; },
                             [](const Copy&) { return OpKind::copy; },
                             [](const Gemm&) { return OpKind::gemm; },
                             [](const RowKernel&) { return OpKind::row_kernel; },
                             [](const Exchange&) { return OpKind::exchange; },
                             [](const Collective& o) {
                               constexpr auto first = static_cast<int>(OpKind::all_to_all);
                               return static_cast<OpKind>(first + static_cast<int>(o.kind));
                             }},
                  body);
}

OpBody blank_op(OpKind kind) {
  const auto collective = [](CollectiveKind of) { return Collective{.kind = of}; };
  switch (kind) {
    case OpKind::attention_fwd:
      return AttentionForward{};
    case OpKind::attention_bwd:
      return AttentionBackward{};
    case OpKind::scores:
      return Scores{};
    case OpKind::softmax:
      return Softmax{};
    case OpKind::softmax_bwd:
      return SoftmaxBackward{};
    case OpKind::weigh:
      return Weigh{};
    case OpKind::weigh_back:
      return WeighBack{};
    case OpKind::linear_fwd:
      return LinearForward{};
    case OpKind::linear_bwd:
      return LinearBackward{};
    case OpKind::make_state:
      return MakeState{};
    case OpKind::sum_states:
      return SumStates{};
    case OpKind::apply_state:
      return ApplyState{};
    case OpKind::row_dot:
      return RowDot{};
    case OpKind::sink:
      return Sink{};
    case OpKind::sink_bwd:
      return SinkBackward{};
    case OpKind::merge:
      return Merge{};
    case OpKind::rescale:
      return Rescale{};
    case OpKind::accumulate:
      return Accumulate{};
    case OpKind::fill:
      return Fill{};
    case OpKind::copy:
      return Copy{};
    case OpKind::gemm:
      return Gemm{};
    case OpKind::row_kernel:
      return RowKernel{};
    case OpKind::exchange:
      return Exchange{};
    case OpKind::all_to_all:
      return Collective{.kind = CollectiveKind::all_to_all, .deal = HeadDeal{}};
    case OpKind::all_gather:
      return collective(CollectiveKind::all_gather);
    case OpKind::reduce_scatter:
      return collective(CollectiveKind::reduce_scatter);
    case OpKind::all_reduce:
      return collective(CollectiveKind::all_reduce);
  }
  throw InternalError("unknown kind of op");
}

Access access_of(const OpBody& body) {
  Access access;
  AccessList list(access);
  visit_op(
      Overloaded{
          [&](const AttentionForward& o) { list.read({o.q, o.k, o.v}).write({o.out, o.lse}); },
          [&](const AttentionBackward& o) {
            list.read({o.q, o.k, o.v, o.d_out, o.lse, o.delta}).write({o.d_q, o.d_k, o.d_v});
          },
          [&](const Scores& o) { list.read({o.rows, o.columns}).update({o.to}, o.initial); },
          [&](const Softmax& o) { list.read({o.scores}).write({o.weights}); },
          [&](const SoftmaxBackward& o) {
            list.read({o.weights, o.d_weights}).write({o.d_scores});
          },
          [&](const Weigh& o) { list.read({o.weights, o.values}).update({o.to}, o.initial); },
          [&](const WeighBack& o) { list.read({o.weights, o.rows}).write({o.to}); },
          [&](const LinearForward& o) { list.read({o.q, o.k, o.v}).write({o.out}); },
          [&](const LinearBackward& o) {
            list.read({o.q, o.k, o.v, o.d_out}).write({o.d_q, o.d_k, o.d_v});
          },
          [&](const MakeState& o) { list.read({o.rows, o.values}).write({o.to}); },
          [&](const SumStates& o) { list.read({o.from}).write({o.to}); },
          [&](const ApplyState& o) { list.read({o.rows, o.state}).update({o.to}, o.initial); },
          [&](const RowDot& o) { list.read({o.out, o.d_out}).write({o.delta}); },
          [&](const Sink& o) { list.read({o.out, o.lse, o.sinks}).write({o.out, o.lse}); },
          [&](const SinkBackward& o) { list.read({o.lse, o.delta, o.sinks}).write({o.d_sinks}); },
          [&](const Merge& o) {
            list.read({o.part_out, o.part_lse}).update({o.out, o.lse}, o.initial);
          },
          [&](const Rescale& o) {
            list.read({o.out, o.lse, o.gathered_lse}).write({o.scaled, o.global_lse});
          },
          [&](const Accumulate& o) { list.read({o.part}).update({o.sum}, o.initial); },
          [&](const Fill& o) { list.write({o.buffer}); },
          [&](const Copy& o) { list.read({o.from}).write({o.to}); },
          [&](const Gemm& o) {
            list.read({o.a, o.b}).update({o.c}, o.initial);
            if (o.kind == GemmKind::weight_gradient) {
              list.write(o.bias.ids());
            } else {
              list.read(o.bias.ids());
            }
            if (o.kind == GemmKind::input_gradient) {
              list.write(o.bias_weights.ids());
            } else {
              list.read(o.bias_weights.ids());
            }
          },
          [&](const RowKernel& o) { list.read(o.reads.ids()).write(o.writes.ids()); },
          [&](const Exchange& o) { list.read(o.send.ids()).write(o.receive.ids()); },
          [&](const Collective& o) { list.read({o.from}).write({o.to}); },
      },
      body);
  return access;
}

}  // namespace spp
