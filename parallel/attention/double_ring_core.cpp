#include "parallel/attention/double_ring_core.hpp"

#include <array>

namespace spp::strategies {
namespace {

/// Where a rank sits in its window, and its four neighbours.
struct Windows {
  int w = 1, windows = 1, window = 0, place = 0, ring = 1;
  RankGroup group;
  Problem problem;
  Layout layout = Layout::contiguous;

  Windows(const ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c)
      : w(c.plan.own[parameters::window]),
        windows(c.plan.ring / c.plan.own[parameters::window]),
        ring(c.plan.ring),
        group(mesh.ring_group(b.rank())),
        problem(b.problem()),
        layout(c.plan.layout) {
    const int position = mesh.at(b.rank()).position;
    window = position / w;
    place = position % w;
  }
  /// The rank `dw` windows and `dx` places further on, both cyclic.
  [[nodiscard]] Rank peer(int dw, int dx) const {
    return group.rank((window + dw + windows) % windows * w + (place + dx + w) % w);
  }
  /// Tokens held at inner step i of the t-th window.
  [[nodiscard]] TokenSet block(std::int64_t t, std::int64_t i) const {
    const auto owner_window = static_cast<int>((window - t + windows) % windows);
    const auto owner_place = static_cast<int>((place - i + w) % w);
    return chunk_tokens(problem.seq, layout, owner_window * w + owner_place, ring);
  }
};

struct KeyValue {
  BufferId k, v;
};
using KeyValuePair = std::array<KeyValue, 2>;

KeyValuePair key_value_pair(ProgramBuilder& b, const CoreContext& c, std::string_view name,
                            Tensor k, Tensor v, DType dtype) {
  KeyValuePair pair;
  for (std::size_t i = 0; i < 2; ++i) {
    pair[i] = {b.scratch(fmt::format("{}{}{}", to_string(k), name, i), k, c.tokens.count(),
                         c.kv_heads.count(), dtype),
               b.scratch(fmt::format("{}{}{}", to_string(v), name, i), v, c.tokens.count(),
                         c.kv_heads.count(), dtype)};
  }
  return pair;
}

/// How k and v travel: the same in both phases.
struct KeyRoute {
  Windows at;
  KeyValue own;
  KeyValuePair inner, outer;

  [[nodiscard]] KeyValue entering(std::int64_t t) const {
    return t == 0 ? own : outer[static_cast<std::size_t>((t - 1) % 2)];
  }
  [[nodiscard]] KeyValue held(std::int64_t t, std::int64_t i) const {
    return i == 0 ? entering(t) : inner[static_cast<std::size_t>((i - 1) % 2)];
  }
  void emit_hops(std::int64_t t, std::int64_t i, OpList& ops) const {
    const KeyValue now = held(t, i);
    if (i == 0 && t + 1 < at.windows) {
      const KeyValue& to = outer[static_cast<std::size_t>(t % 2)];
      ops.push_back({outer_stream, Exchange{.to = at.peer(1, 0),
                                            .from = at.peer(-1, 0),
                                            .send = {now.k, now.v},
                                            .receive = {to.k, to.v}}});
    }
    if (i + 1 < at.w) {
      const KeyValue& to = inner[static_cast<std::size_t>(i % 2)];
      ops.push_back({ring_stream, Exchange{.to = at.peer(0, 1),
                                           .from = at.peer(0, -1),
                                           .send = {now.k, now.v},
                                           .receive = {to.k, to.v}}});
    }
  }
};

}  // namespace

BufferId double_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                        ForwardBuffers io) {
  const DType dtype = b.problem().dtype;
  const std::int64_t tokens = c.tokens.count();
  const KeyRoute route{.at = Windows(b, mesh, c),
                       .own = {io.k, io.v},
                       .inner = key_value_pair(b, c, "_inner", Tensor::k, Tensor::v, dtype),
                       .outer = key_value_pair(b, c, "_outer", Tensor::k, Tensor::v, dtype)};
  const BufferId lse = b.output("lse", Tensor::lse, c.tokens, c.heads);
  const BufferId sum = b.scratch("out_sum", Tensor::out, tokens, c.heads.count(), DType::fp32);
  const BufferId part = b.scratch("out_part", Tensor::out, tokens, c.heads.count());
  const BufferId part_lse = b.scratch("lse_part", Tensor::lse, tokens, c.heads.count());
  b.loop(route.at.ring, [=](std::int64_t step, OpList& ops) {
    const std::int64_t t = step / route.at.w;
    const std::int64_t i = step % route.at.w;
    route.emit_hops(t, i, ops);
    const Section section =
        needed_section(c.tokens, route.at.block(t, i), route.at.problem.mask, c.options);
    if (section.empty()) {
      return;
    }
    const KeyValue block = route.held(t, i);
    ops.push_back({compute, AttentionForward{.q = io.q,
                                             .k = block.k,
                                             .v = block.v,
                                             .out = part,
                                             .lse = part_lse,
                                             .q_tokens = section.q,
                                             .k_tokens = section.k,
                                             .heads = c.heads,
                                             .kv_heads = c.kv_heads}});
    ops.push_back({compute, Merge{.out = sum,
                                  .lse = lse,
                                  .part_out = part,
                                  .part_lse = part_lse,
                                  .tokens = section.q,
                                  .initial = step == 0}});
  });
  b.op(compute, Copy{.kind = CopyKind::cast, .from = sum, .to = io.out});
  return lse;
}

Statistics double_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                           BackwardBuffers io) {
  const DType dtype = b.problem().dtype;
  const DType wide = c.options.gradient;
  const std::int64_t tokens = c.tokens.count();
  const BufferId lse = b.input("lse", Tensor::lse, c.tokens, c.heads);
  const BufferId delta = b.scratch("delta", Tensor::delta, tokens, c.heads.count());
  b.op(compute, RowDot{.out = io.out, .d_out = io.d_out, .delta = delta});
  const KeyRoute route{.at = Windows(b, mesh, c),
                       .own = {io.k, io.v},
                       .inner = key_value_pair(b, c, "_inner", Tensor::k, Tensor::v, dtype),
                       .outer = key_value_pair(b, c, "_outer", Tensor::k, Tensor::v, dtype)};
  const KeyValuePair gradient = key_value_pair(b, c, "_sum", Tensor::d_k, Tensor::d_v, wide);
  const BufferId q_sum = b.scratch("d_q_sum", Tensor::d_q, tokens, c.heads.count(), wide);
  const BufferId q_part = b.scratch("d_q_part", Tensor::d_q, tokens, c.heads.count());
  const BufferId k_part = b.scratch("d_k_part", Tensor::d_k, tokens, c.kv_heads.count());
  const BufferId v_part = b.scratch("d_v_part", Tensor::d_v, tokens, c.kv_heads.count());
  // Before step s the gradients of step s-1 move on: along the inner ring, or with the outer hop.
  const auto pass_on = [=](std::int64_t step) {
    const KeyValue& from = gradient[static_cast<std::size_t>((step + 1) % 2)];
    const KeyValue& to = gradient[static_cast<std::size_t>(step % 2)];
    const bool inner = step % route.at.w != 0;
    const int dw = inner ? 0 : 1;
    return Op{inner ? gradient_stream : outer_stream, Exchange{.to = route.at.peer(dw, 1),
                                                               .from = route.at.peer(-dw, -1),
                                                               .send = {from.k, from.v},
                                                               .receive = {to.k, to.v}}};
  };
  b.loop(route.at.ring, [=](std::int64_t step, OpList& ops) {
    const std::int64_t t = step / route.at.w;
    const std::int64_t i = step % route.at.w;
    if (step > 0) {
      ops.push_back(pass_on(step));
    }
    route.emit_hops(t, i, ops);
    const Section section =
        needed_section(c.tokens, route.at.block(t, i), route.at.problem.mask, c.options);
    if (section.empty()) {
      return;
    }
    const KeyValue block = route.held(t, i);
    const KeyValue& sum = gradient[static_cast<std::size_t>(step % 2)];
    const bool initial = step == 0;
    ops.push_back({compute, AttentionBackward{.q = io.q,
                                              .k = block.k,
                                              .v = block.v,
                                              .d_out = io.d_out,
                                              .lse = lse,
                                              .delta = delta,
                                              .d_q = q_part,
                                              .d_k = k_part,
                                              .d_v = v_part,
                                              .q_tokens = section.q,
                                              .k_tokens = section.k,
                                              .heads = c.heads,
                                              .kv_heads = c.kv_heads}});
    ops.push_back(
        {compute,
         Accumulate{.sum = q_sum, .part = q_part, .tokens = section.q, .initial = initial}});
    ops.push_back(
        {compute,
         Accumulate{.sum = sum.k, .part = k_part, .tokens = section.k, .initial = initial}});
    ops.push_back(
        {compute,
         Accumulate{.sum = sum.v, .part = v_part, .tokens = section.k, .initial = initial}});
  });
  const KeyValue home = gradient[static_cast<std::size_t>(route.at.ring % 2)];
  b.once([=](OpList& ops) {
    ops.push_back(pass_on(route.at.ring));
    ops.push_back({compute, Copy{.kind = CopyKind::cast, .from = q_sum, .to = io.d_q}});
    ops.push_back({compute, Copy{.kind = CopyKind::cast, .from = home.k, .to = io.d_k}});
    ops.push_back({compute, Copy{.kind = CopyKind::cast, .from = home.v, .to = io.d_v}});
  });
  return {.lse = lse, .delta = delta};
}

}  // namespace spp::strategies
