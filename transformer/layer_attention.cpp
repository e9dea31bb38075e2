// Attention with its projections: over heads, over a latent (MLA), to a text, between frames.
#include "transformer/layer_writer.hpp"

namespace spp {

AttentionCall attention_over(const Model& model, Rows keys) {
  return {.q_heads = model.q_heads,
          .kv_heads = model.kv_heads,
          .head_dim = model.head_dim,
          .keys = keys,
          .sinks = model.attention_sinks && keys == Rows::tokens};
}

LayerTensor heads_tensor(std::string_view name, int number, std::int64_t dim, Rows rows) {
  return {.name = name, .width = number * dim, .rows = rows, .cut = Cut::width, .unit = dim};
}

namespace {

void of_both(ListWriter& list, TensorOp op, LayerTensorId& q, LayerTensorId& k, bool keeps) {
  const LayerTensorId q_after = list.like(op.name, q);
  const LayerTensorId k_after = list.like(op.name, k);
  op.reads = {q, k};
  op.writes = {q_after, k_after};
  if (keeps) {
    op.keeps = op.reads;
  }
  list.add(op);
  q = q_after;
  k = k_after;
}

}  // namespace

/// Norms of Q and K, head by head: their 1/rms is computed again in the backward, which reads whole
/// heads anyway.
void norm_heads(const Model& model, ListWriter& list, std::string_view name, LayerTensorId& q,
                LayerTensorId& k) {
  if (model.qk_norm) {
    of_both(list,
            {.name = name,
             .work = RowWise{.function = LayerFunction::rms_norm,
                             .weights = 2 * list.at(q).unit,
                             .in_place = true,
                             .in_position = InPosition::normed}},
            q, k, true);
  }
}

/// RoPE.
void place(ListWriter& list, LayerTensorId& q, LayerTensorId& k) {
  of_both(list,
          {.name = "rope",
           .work = RowWise{.function = LayerFunction::split_heads,
                           .in_place = true,
                           .in_position = InPosition::turned}},
          q, k, false);
}

LayerTensorId attention_output(const Model& model, ListWriter& list, LayerTensorId y) {
  return list.linear("out", y,
                     {.in = list.at(y).width,
                      .out = model.hidden,
                      .shard = Shard::rows,
                      .bias = model.output_bias,
                      .width = GemmWidth::as_attention});
}

namespace {

/// V in heads without gains.
LayerTensorId normed_values(ListWriter& list, LayerTensorId v) {
  const LayerTensorId normed = list.like("v norm", v);
  list.add({.name = "v norm", .work = RowWise{}, .reads = {v}, .writes = {normed}, .keeps = {v}});
  return normed;
}

/// x -> x + out(attention(qkv(norm(x)))), over the sequence or as `call` says.
LayerTensorId attention_by_heads(const Model& model, ListWriter& list, LayerTensorId x,
                                 AttentionCall call, bool v_is_k = false) {
  LayerTensorId y = list.norm("norm 1", x, model);
  if (model.kind == ModelKind::dit) {
    y = list.scaled("modulate 1", y, {RecomputeModule::norms});
  }
  LayerTensorId q = list.tensor(heads_tensor("q", call.q_heads, call.head_dim));
  LayerTensorId k = list.tensor(heads_tensor("k", call.kv_heads, call.head_dim));
  LayerTensorId v = v_is_k ? k : list.tensor(heads_tensor("v", call.kv_heads, call.head_dim));
  TensorOp qkv{.name = "qkv",
               .work = Linear{.in = model.hidden,
                              .out = list.at(q).width + (v_is_k ? 1 : 2) * list.at(k).width,
                              .shard = Shard::columns,
                              .bias = model.attention_bias,
                              .width = GemmWidth::as_attention},
               .reads = {y},
               .writes = {q, k},
               .keeps = {y}};
  if (!v_is_k) {
    qkv.writes.push_back(v);
  }
  LayerTensorId gate;
  if (model.attention_gate) {
    gate = list.tensor(heads_tensor("attention gate", call.q_heads, call.head_dim));
    std::get<Linear>(qkv.work).out += list.at(gate).width;
    qkv.writes.push_back(gate);
  }
  list.add(qkv);
  if (model.v_norm) {
    v = normed_values(list, v);
  }
  norm_heads(model, list, "qk norm", q, k);
  if (model.rope) {
    place(list, q, k);
  }
  if (model.kind == ModelKind::llm) {
    list.cache({k, v});
  }
  y = list.attention("attention", call, {q, k, v});
  if (model.attention_gate) {
    const LayerTensorId gated = list.like("gated attention", y);
    list.add({.name = "gated attention",
              .work = RowWise{},
              .reads = {y, gate},
              .writes = {gated},
              .keeps = {y, gate}});
    y = gated;
  }
  y = attention_output(model, list, y);
  if (model.branch_norms) {
    y = list.norm("branch norm 1", y, model);
  }
  if (model.kind == ModelKind::dit) {
    y = list.scaled("gate 1", y, {});
  }
  return list.residual("residual 1", x, y);
}

}  // namespace

LayerTensorId self_attention(const Model& model, ListWriter& list, LayerTensorId x,
                             const KvHeads& heads) {
  AttentionCall call = attention_over(model, Rows::tokens);
  call.kv_heads = heads.count;
  call.head_dim = heads.dim;
  return attention_by_heads(model, list, x, call, heads.v_is_k);
}

LayerTensorId frame_attention(const Model& model, ListWriter& list, LayerTensorId x) {
  AttentionCall call = attention_over(model, Rows::tokens);
  call.among = model.diffusion.frames;
  return attention_by_heads(model, list, x, call);
}

/// The projections down are whole on every rank, each does its own rows.
LayerTensorId query_latent(const Model& model, ListWriter& list, LayerTensorId y) {
  const Latent& latent = model.latent;
  if (latent.q_rank == 0) {
    return y;
  }
  const LayerTensorId q = list.linear("q down", y, {.in = model.hidden, .out = latent.q_rank});
  return list.rms_norm("q norm", q);
}

KeyLatents key_latents(const Model& model, ListWriter& list, LayerTensorId y) {
  const Latent& latent = model.latent;
  const LayerTensorId kv = list.tensor("kv down", latent.kv_rank);
  const LayerTensorId position = list.tensor("k rope", latent.rope_dim);
  list.add({.name = "kv down",
            .work = Linear{.in = model.hidden, .out = latent.kv_rank + latent.rope_dim},
            .reads = {y},
            .writes = {kv, position},
            .keeps = {y}});
  return {.kv = list.rms_norm("kv norm", kv), .position = position};
}

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1) as it is trained: the
/// latents are projected up to heads, nothing is absorbed (Megatron-LM d98e8a64dd,
/// megatron/core/transformer/multi_latent_attention.py).
LayerTensorId latent_attention(const Model& model, ListWriter& list, LayerTensorId x) {
  const Latent& latent = model.latent;
  const ModuleSet up{RecomputeModule::mla_up};
  const int n = model.q_heads;
  const LayerTensorId y = list.norm("norm 1", x, model);
  const LayerTensorId q_latent = query_latent(model, list, y);
  const LayerTensorId q =
      list.linear("q up", q_latent,
                  {.in = list.at(q_latent).width, .out = model.q_width(), .shard = Shard::columns},
                  up, model.head_dim);
  const KeyLatents from = key_latents(model, list, y);
  const LayerTensorId content = list.tensor(heads_tensor("k content", n, latent.nope_dim));
  const LayerTensorId v = list.tensor(heads_tensor("v", n, latent.value_dim));
  list.add({.name = "kv up",
            .work = Linear{.in = latent.kv_rank,
                           .out = n * std::int64_t{latent.nope_dim + latent.value_dim},
                           .shard = Shard::columns},
            .reads = {from.kv},
            .writes = {content, v},
            .keeps = {from.kv},
            .modules = up});
  // Every head of K has the same part in position.
  const LayerTensorId q_placed = list.like("rope", q);
  const LayerTensorId k = list.tensor(heads_tensor("rope", n, model.head_dim));
  list.add(
      {.name = "rope",
       .work = RowWise{.function = LayerFunction::split_heads, .in_position = InPosition::turned},
       .reads = {q, content, from.position},
       .writes = {q_placed, k},
       .modules = up});
  list.cache({from.kv, from.position});
  AttentionCall call = attention_over(model, Rows::tokens);
  call.value_dim = latent.value_dim;
  const LayerTensorId attended = list.attention("attention", call, {q_placed, k, v});
  return list.residual("residual 1", x, attention_output(model, list, attended));
}

/// x -> x + out(attention(q(norm(x)), kv(text))). Matrices only: its norm and biases are small and
/// differ between models.
LayerTensorId cross_attention(const Model& model, ListWriter& list, LayerTensorId x) {
  const LayerTensorId text = list.tensor({.name = "text",
                                          .width = model.hidden,
                                          .rows = Rows::text,
                                          .cut = Cut::whole,
                                          .outside = true});
  LayerTensorId y = model.diffusion.cross_norm ? list.norm("cross norm", x, 0) : x;
  const LayerTensorId q = list.linear(
      "cross q", y, {.in = model.hidden, .out = model.q_width(), .shard = Shard::columns}, {},
      model.head_dim);
  const LayerTensorId k =
      list.tensor(heads_tensor("cross k", model.kv_heads, model.head_dim, Rows::text));
  const LayerTensorId v =
      list.tensor(heads_tensor("cross v", model.kv_heads, model.head_dim, Rows::text));
  list.add(
      {.name = "cross kv",
       .work = Linear{.in = model.hidden, .out = 2 * model.kv_width(), .shard = Shard::columns},
       .reads = {text},
       .writes = {k, v},
       .keeps = {text}});
  y = list.attention("cross attention", attention_over(model, Rows::text), {q, k, v});
  y = list.linear("cross out", y,
                  {.in = model.q_width(), .out = model.hidden, .shard = Shard::rows});
  return list.residual("cross residual", x, y);
}

}  // namespace spp
