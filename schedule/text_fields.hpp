// The fields of every line of the text form, in the order in which they are written. One list
// serves writer (text.cpp) and reader (text_parse.cpp), so that they cannot disagree: an archive is
// called as archive("key", member). A new op is one more `fields`.
//
// Invalid ranks, empty buffer lists, false flags and what is `unless_zero` are left out of the
// text; all else is mandatory.
#pragma once

#include "schedule/schedule.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace spp::text {

/// `T` is Body or const Body: reading wants it mutable, writing const.
template <class T, class Body>
concept Is = std::same_as<std::remove_const_t<T>, Body>;

// Limits of what is read: far above any real plan, low enough that sizes cannot overflow.
constexpr std::int64_t most_tokens = std::int64_t{1} << 31;
constexpr std::int64_t most_ranks = 1'000'000;
constexpr std::int64_t most_micro_batches = 1'000'000;  // of all replicas
constexpr std::int64_t most_buffers = 1'000'000;        // of one rank
constexpr std::int64_t most_heads = 1 << 16;
constexpr std::int64_t most_head_dim = 1 << 16;
constexpr std::int64_t most_streams = 64;
constexpr std::int64_t most_experts = 1 << 16;
constexpr std::int64_t most_words = std::int64_t{1} << 24;
constexpr std::int64_t most_masks = 16;                     // of a problem
constexpr std::int64_t most_definitions = 4096;             // of a graph
constexpr std::int64_t most_width = std::int64_t{1} << 29;  // batch * heads * dim

/// A name must survive as one word of the text.
inline bool is_name(std::string_view name) {
  constexpr std::string_view structure = ",=:#";
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    return c > ' ' && c <= '~' && structure.find(c) == std::string_view::npos;
  });
}

// ---- header -------------------------------------------------------------------------------------

void fields(auto& a, Is<Problem> auto& p) {
  a("seq", p.seq, 1, most_tokens);
  a.unless_zero("cached", p.cached, most_tokens);
  a("batch", p.batch, 1, std::int64_t{1} << 20);
  a("q_heads", p.q_heads, 1, most_heads);
  a("kv_heads", p.kv_heads, 1, most_heads);
  a("head_dim", p.head_dim, 1, most_head_dim);
  int value_dim = p.v_dim() == p.head_dim ? 0 : p.v_dim();
  a.unless_zero("value_dim", value_dim, most_head_dim);
  a("mask", p.mask);
  a.unless_none("other_masks", p.other_masks);
  a("dtype", p.dtype);
  bool linear = p.function == AttentionFunction::linear;
  a("linear", linear);
  a("sinks", p.sinks);
  int micro_batches = p.micro_batches == 1 ? 0 : p.micro_batches;
  a.unless_zero("micro_batches", micro_batches, most_micro_batches);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(p)>>) {
    p.function = linear ? AttentionFunction::linear : AttentionFunction::softmax;
    p.micro_batches = micro_batches == 0 ? 1 : micro_batches;
    p.value_dim = value_dim == p.head_dim ? 0 : value_dim;
  }
}

void fields(auto& a, Is<Grain> auto& g) {
  a("tokens", g.tokens, 0, most_tokens);
  a.unless_empty("cuts", g.cuts);
  int parts = g.heads.parts();
  a("parts", parts, 1, most_ranks);
  a("heads", g.heads, parts);
  a.unless_zero("slots", g.slots, most_ranks);
}

void fields(auto& a, Is<Value> auto& v) {
  a("width", v.width, 1, most_width);
  a("parts", v.parts, 1, most_ranks);
  a("fp32", v.fp32);
  a.unless_zero("words", v.words, most_words);
}

void fields(auto& a, Is<Param> auto& p) {
  a("rows", p.rows, 1, most_width);
  a("columns", p.columns, 1, most_width);
  a("row_parts", p.row_parts, 1, most_ranks);
  a("column_parts", p.column_parts, 1, most_ranks);
  a.unless_zero("experts", p.experts, most_experts);
}

void fields(auto& a, Is<Routing> auto& r) {
  a("experts", r.experts, 1, most_experts);
  a("chosen", r.chosen, 1, most_experts);
  a("groups", r.groups, 1, most_ranks);
  a("period", r.period, 1, most_tokens);
}

// ---- kernels ------------------------------------------------------------------------------------

/// Of a block of queries and keys.
void block_fields(auto& a, auto& o) {
  a("q_tokens", o.q_tokens);
  a("k_tokens", o.k_tokens);
  a("heads", o.heads);
  a("kv_heads", o.kv_heads);
}

void fields(auto& a, Is<AttentionForward> auto& o) {
  a("q", o.q);
  a("k", o.k);
  a("v", o.v);
  a("out", o.out);
  a("lse", o.lse);
  block_fields(a, o);
  a.unless_zero("mask", o.mask, most_masks);
}

void fields(auto& a, Is<AttentionBackward> auto& o) {
  a("q", o.q);
  a("k", o.k);
  a("v", o.v);
  a("d_out", o.d_out);
  a("lse", o.lse);
  a("delta", o.delta);
  a("d_q", o.d_q);
  a("d_k", o.d_k);
  a("d_v", o.d_v);
  block_fields(a, o);
  a.unless_zero("mask", o.mask, most_masks);
}

void fields(auto& a, Is<Scores> auto& o) {
  a("rows", o.rows);
  a("columns", o.columns);
  a("to", o.to);
  block_fields(a, o);
  a("initial", o.initial);
}

void fields(auto& a, Is<Softmax> auto& o) {
  a("scores", o.scores);
  a("weights", o.weights);
  a("tokens", o.tokens);
  a.unless_zero("mask", o.mask, most_masks);
}

void fields(auto& a, Is<SoftmaxBackward> auto& o) {
  a("weights", o.weights);
  a("d_weights", o.d_weights);
  a("d_scores", o.d_scores);
}

void fields(auto& a, Is<Weigh> auto& o) {
  a("weights", o.weights);
  a("values", o.values);
  a("to", o.to);
  block_fields(a, o);
  a("initial", o.initial);
}

void fields(auto& a, Is<WeighBack> auto& o) {
  a("weights", o.weights);
  a("rows", o.rows);
  a("to", o.to);
  block_fields(a, o);
}

void fields(auto& a, Is<LinearForward> auto& o) {
  a("q", o.q);
  a("k", o.k);
  a("v", o.v);
  a("out", o.out);
  a("tokens", o.tokens);
  a("heads", o.heads);
  a("kv_heads", o.kv_heads);
}

void fields(auto& a, Is<LinearBackward> auto& o) {
  a("q", o.q);
  a("k", o.k);
  a("v", o.v);
  a("d_out", o.d_out);
  a("d_q", o.d_q);
  a("d_k", o.d_k);
  a("d_v", o.d_v);
  a("tokens", o.tokens);
  a("heads", o.heads);
  a("kv_heads", o.kv_heads);
}

void fields(auto& a, Is<MakeState> auto& o) {
  a("rows", o.rows);
  a("values", o.values);
  a("to", o.to);
  a("tokens", o.tokens);
  a("heads", o.heads);
  a("kv_heads", o.kv_heads);
  a("slot", o.slot, 0, most_ranks);
}

void fields(auto& a, Is<SumStates> auto& o) {
  a("from", o.from);
  a("to", o.to);
  a("slots", o.slots);
  a("slot", o.slot, 0, most_ranks);
}

void fields(auto& a, Is<ApplyState> auto& o) {
  a("rows", o.rows);
  a("state", o.state);
  a("to", o.to);
  a("tokens", o.tokens);
  a("heads", o.heads);
  a("kv_heads", o.kv_heads);
  a("initial", o.initial);
}

void fields(auto& a, Is<RowDot> auto& o) {
  a("out", o.out);
  a("d_out", o.d_out);
  a("delta", o.delta);
}

void fields(auto& a, Is<Sink> auto& o) {
  a("out", o.out);
  a("lse", o.lse);
  a("sinks", o.sinks);
}

void fields(auto& a, Is<SinkBackward> auto& o) {
  a("lse", o.lse);
  a("delta", o.delta);
  a("sinks", o.sinks);
  a("d_sinks", o.d_sinks);
}

void fields(auto& a, Is<Merge> auto& o) {
  a("out", o.out);
  a("lse", o.lse);
  a("part_out", o.part_out);
  a("part_lse", o.part_lse);
  a("tokens", o.tokens);
  a("initial", o.initial);
}

void fields(auto& a, Is<Rescale> auto& o) {
  a("out", o.out);
  a("lse", o.lse);
  a("gathered_lse", o.gathered_lse);
  a("scaled", o.scaled);
  a("global_lse", o.global_lse);
}

void fields(auto& a, Is<Accumulate> auto& o) {
  a("sum", o.sum);
  a("part", o.part);
  a("tokens", o.tokens);
  a("initial", o.initial);
}

void fields(auto& a, Is<Fill> auto& o) {
  a("buffer", o.buffer);
  a("tokens", o.tokens);
  a("heads", o.heads);
}

void fields(auto& a, Is<Copy> auto& o) {
  a("kind", o.kind);
  a("from", o.from);
  a("to", o.to);
  if (o.kind == CopyKind::deal) {
    a("layout", o.layout);
    a("chunks", o.chunks, 1, most_ranks);
  }
  if (o.of_some() || o.of_slots()) {
    a("tokens", o.tokens);
  }
  if (o.of_slots()) {
    a("of_group", o.of_group);
  }
  if (o.of_group) {
    a("expert_group", o.expert_group, 0, most_ranks);
  }
}

void fields(auto& a, Is<Gemm> auto& o) {
  a("kind", o.kind);
  a("definition", o.definition, 0, most_definitions);
  a("a", o.a);
  a("b", o.b);
  a("c", o.c);
  a("bias", o.bias);
  a("bias_weights", o.bias_weights);
  a("tokens", o.tokens);
  a("initial", o.initial);
  a.unless_zero("experts", o.experts, most_experts);
}

void fields(auto& a, Is<RowKernel> auto& o) {
  a("definition", o.definition, 0, most_definitions);
  a("backward", o.backward);
  a("reads", o.reads);
  a("writes", o.writes);
  a("tokens", o.tokens);
  a.unless_zero("part", o.part, most_ranks);
  a("slots", o.slots);
}

// ---- transfers ----------------------------------------------------------------------------------

void fields(auto& a, Is<Exchange> auto& o) {
  a("to", o.to);
  a("send", o.send);
  a("from", o.from);
  a("receive", o.receive);
}

void fields(auto& a, Is<Collective> auto& o) {
  a("group", o.group);
  bool to_experts = std::holds_alternative<ExpertDeal>(o.deal);
  a("experts", to_experts);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(o)>>) {
    if (to_experts && !std::holds_alternative<ExpertDeal>(o.deal)) {
      o.deal = ExpertDeal{};
    }
  }
  if (auto* experts = std::get_if<ExpertDeal>(&o.deal)) {
    a("back", experts->back);
    a("cells", experts->cells, 0, most_tokens);
  }
  auto* heads = std::get_if<HeadDeal>(&o.deal);
  if (heads != nullptr) {
    a("kind", heads->direction);
  }
  a("from", o.from);
  a("to", o.to);
  if (heads != nullptr) {
    int parts = heads->split.parts() == o.group.size ? 0 : heads->split.parts();
    a.unless_zero("parts", parts, most_ranks);
    a("split", heads->split, parts == 0 ? o.group.size : parts);
    a.unless_zero("first", heads->first, most_ranks);
    a("kv", heads->kv);
    a("tokens", heads->tokens, 0, most_tokens);
  }
  a("to_tokens", o.to_tokens);
  a("to_heads", o.to_heads);
}

}  // namespace spp::text
