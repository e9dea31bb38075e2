// What layers of diffusion transformers have besides (DiffusionBlocks): modulation from the step's
// embedding, two streams of tokens, attention and MLP side by side, skips over half of the model.
//
// Two streams (Esser et al., arXiv:2403.03206, figure 2; FLUX double blocks, black-forest-labs/flux
// 0130c27497 src/flux/modules/layers.py): each stream is normed, modulated and projected by itself;
// Q, K and V are copied together, attention runs over all tokens, and each stream takes its rows of
// what it gives.
#include "transformer/layer_writer.hpp"

namespace spp {
namespace {

struct StreamNames {
  Rows rows;
  std::string_view input, modulation, norm_1, modulate_1, q, k, v, qkv, qk_norm, attention, out,
      gate_1, residual_1, norm_2, modulate_2, gate, up, activation, down, gate_2, residual_2;
};
constexpr StreamNames image_stream{
    Rows::image,  "input",      "modulation", "norm 1",     "modulate 1", "q",
    "k",          "v",          "qkv",        "qk norm",    "attention",  "out",
    "gate 1",     "residual 1", "norm 2",     "modulate 2", "gate",       "up",
    "activation", "down",       "gate 2",     "residual 2"};
constexpr StreamNames text_stream{
    Rows::joint,       "text input",     "text modulation", "text norm 1",     "text modulate 1",
    "text q",          "text k",         "text v",          "text qkv",        "text qk norm",
    "text attention",  "text out",       "text gate 1",     "text residual 1", "text norm 2",
    "text modulate 2", "text gate",      "text up",         "text activation", "text down",
    "text gate 2",     "text residual 2"};

struct Stream {
  const StreamNames* names;
  LayerTensorId x, q, k, v, attended;
};

Stream projected(const Model& model, ListWriter& list, const StreamNames& names) {
  modulation(model, list, names.modulation, model.diffusion.modulation_vectors);
  Stream s{.names = &names,
           .x = list.tensor({.name = names.input, .width = model.hidden, .rows = names.rows}),
           .q = {},
           .k = {},
           .v = {},
           .attended = {}};
  const LayerTensorId y =
      list.scaled(names.modulate_1, list.norm(names.norm_1, s.x, model), {RecomputeModule::norms});
  s.q = list.tensor(heads_tensor(names.q, model.q_heads, model.head_dim, names.rows));
  s.k = list.tensor(heads_tensor(names.k, model.kv_heads, model.head_dim, names.rows));
  s.v = list.tensor(heads_tensor(names.v, model.kv_heads, model.head_dim, names.rows));
  list.add({.name = names.qkv,
            .work = Linear{.in = model.hidden,
                           .out = model.q_width() + 2 * model.kv_width(),
                           .shard = Shard::columns,
                           .bias = model.attention_bias,
                           .width = GemmWidth::as_attention},
            .reads = {y},
            .writes = {s.q, s.k, s.v},
            .keeps = {y}});
  norm_heads(model, list, names.qk_norm, s.q, s.k);
  s.attended =
      list.tensor(heads_tensor(names.attention, model.q_heads, model.head_dim, names.rows));
  return s;
}

/// Behind attention: its output, then the MLP.
LayerTensorId finished(const Model& model, ListWriter& list, const Stream& s) {
  const StreamNames& names = *s.names;
  LayerTensorId y = list.linear(names.out, s.attended,
                                {.in = model.q_width(),
                                 .out = model.hidden,
                                 .shard = Shard::rows,
                                 .bias = model.output_bias,
                                 .width = GemmWidth::as_attention});
  const LayerTensorId x = list.residual(names.residual_1, s.x, list.scaled(names.gate_1, y, {}));
  y = list.scaled(names.modulate_2, list.norm(names.norm_2, x, model), {RecomputeModule::norms});
  const Linear wide{
      .in = model.hidden, .out = model.ffn, .shard = Shard::columns, .bias = model.mlp_bias};
  LayerTensors inner;
  if (model.gated_mlp) {
    inner.push_back(list.linear(names.gate, y, wide, {RecomputeModule::mlp}));
  }
  inner.push_back(list.linear(names.up, y, wide, {RecomputeModule::mlp}));
  y = list.activation(names.activation, inner, {RecomputeModule::mlp});
  y = list.linear(
      names.down, y,
      {.in = model.ffn, .out = model.hidden, .shard = Shard::rows, .bias = model.mlp_bias},
      {RecomputeModule::mlp});
  return list.residual(names.residual_2, x, list.scaled(names.gate_2, y, {}));
}

}  // namespace

void modulation(const Model& model, ListWriter& list, std::string_view name, int vectors) {
  const std::int64_t from = model.diffusion.modulation_width;
  if (model.kind != ModelKind::dit || from == 0) {
    return;
  }
  const auto tensor = [&](std::string_view of, std::int64_t width, bool outside) {
    return list.tensor({.name = of,
                        .width = width,
                        .rows = Rows::sequence,
                        .cut = Cut::whole,
                        .outside = outside});
  };
  const LayerTensorId embedding = tensor("conditioning", from, true);
  const LayerTensorId made = tensor(name, vectors * model.hidden, false);
  list.add({.name = name,
            .work = Linear{.in = from, .out = vectors * model.hidden, .bias = true},
            .reads = {embedding},
            .writes = {made}});
}

LayerTensors two_stream_layer(const Model& model, ListWriter& list) {
  Stream image = projected(model, list, image_stream);
  Stream text = projected(model, list, text_stream);
  LayerTensorId q =
      list.joined(heads_tensor("join q", model.q_heads, model.head_dim), {text.q, image.q});
  LayerTensorId k =
      list.joined(heads_tensor("join k", model.kv_heads, model.head_dim), {text.k, image.k});
  const LayerTensorId v =
      list.joined(heads_tensor("join v", model.kv_heads, model.head_dim), {text.v, image.v});
  if (model.rope) {
    place(list, q, k);
  }
  list.attention("attention", attention_over(model, Rows::tokens), {q, k, v},
                 {image.attended, text.attended});
  return {finished(model, list, image), finished(model, list, text)};
}

LayerTensorId parallel_layer(const Model& model, ListWriter& list, LayerTensorId x) {
  constexpr int vectors = 3;  // shift, scale and gate of the one branch
  modulation(model, list, "modulation", vectors);
  LayerTensorId y =
      list.scaled("modulate 1", list.norm("norm 1", x, model), {RecomputeModule::norms});
  const std::int64_t matrices = model.gated_mlp ? 2 : 1;
  LayerTensorId q = list.tensor(heads_tensor("q", model.q_heads, model.head_dim));
  LayerTensorId k = list.tensor(heads_tensor("k", model.kv_heads, model.head_dim));
  const LayerTensorId v = list.tensor(heads_tensor("v", model.kv_heads, model.head_dim));
  LayerTensors written{q, k, v};
  LayerTensors inner;
  for (std::int64_t i = 0; i < matrices; ++i) {
    inner.push_back(list.tensor(
        {.name = i + 1 < matrices ? "gate" : "up", .width = model.ffn, .cut = Cut::width}));
    written.push_back(inner[inner.size() - 1]);
  }
  list.add({.name = "qkv, up",
            .work = Linear{.in = model.hidden,
                           .out = model.q_width() + 2 * model.kv_width() + matrices * model.ffn,
                           .shard = Shard::columns,
                           .bias = model.attention_bias},
            .reads = {y},
            .writes = written,
            .keeps = {y}});
  norm_heads(model, list, "qk norm", q, k);
  if (model.rope) {
    place(list, q, k);
  }
  const LayerTensorId attended =
      list.attention("attention", attention_over(model, Rows::tokens), {q, k, v});
  const LayerTensorId active = list.activation("activation", inner, {RecomputeModule::mlp});
  y = list.joined({.name = "join", .width = model.q_width() + model.ffn, .cut = Cut::width},
                  {attended, active});
  y = list.linear("out, down", y,
                  {.in = model.q_width() + model.ffn,
                   .out = model.hidden,
                   .shard = Shard::rows,
                   .bias = model.output_bias});
  return list.residual("residual 1", x, list.scaled("gate 1", y, {}));
}

LayerTensorId long_skip(const Model& model, ListWriter& list, LayerTensorId x) {
  const LayerTensorId from =
      list.tensor({.name = "skipped", .width = model.hidden, .outside = true});
  LayerTensorId y = list.joined({.name = "skip join", .width = 2 * model.hidden}, {x, from});
  y = list.norm("skip norm", y, 2 * norm_weights(model));
  return list.linear("skip", y,
                     {.in = 2 * model.hidden, .out = model.hidden, .bias = model.output_bias});
}

}  // namespace spp
