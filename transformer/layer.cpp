#include "transformer/layer.hpp"

#include "base/error.hpp"

#include <utility>

namespace spp {
namespace {

/// Writes a list down, one operation after the other.
class ListWriter {
 public:
  explicit ListWriter(std::int64_t text_tokens = 0) { list_.text_tokens = text_tokens; }

  LayerTensorId tensor(LayerTensor tensor) {
    list_.tensors.push_back(tensor);
    return LayerTensorId(list_.tensors.size() - 1);
  }
  /// [tokens, width].
  LayerTensorId tensor(std::string_view name, std::int64_t width) {
    return tensor({.name = name, .width = width});
  }
  void add(TensorOp op) { list_.ops.push_back(op); }

  /// y = x W, y as wide as `to.out`, in units of `unit`.
  LayerTensorId linear(std::string_view name, LayerTensorId x, Linear to, ModuleSet modules = {},
                       std::int64_t unit = 1) {
    const LayerTensorId y = tensor({.name = name,
                                    .width = to.out,
                                    .rows = list_.at(x).rows,
                                    .cut = to.shard == Shard::columns ? Cut::width : Cut::rows,
                                    .unit = unit});
    add({.name = name, .work = to, .reads = {x}, .writes = {y}, .keeps = {x}, .modules = modules});
    return y;
  }
  /// y = norm(x): 1/rms of each row is kept.
  LayerTensorId norm(std::string_view name, LayerTensorId x, std::int64_t weights) {
    const LayerTensorId y = tensor(name, list_.at(x).width);
    add({.name = name,
         .work = RowWise{.weights = weights},
         .reads = {x},
         .writes = {y},
         .keeps = {x},
         .statistics = 1,
         .modules = {RecomputeModule::norms}});
    return y;
  }
  /// y = x * (1 + scale) + shift, or x * gate: the vectors are the same for all tokens, their
  /// weights Model::extra_parameters.
  LayerTensorId scaled(std::string_view name, LayerTensorId x, ModuleSet modules) {
    const LayerTensorId y = tensor(name, list_.at(x).width);
    add({.name = name,
         .work = RowWise{},
         .reads = {x},
         .writes = {y},
         .keeps = {x},
         .modules = modules});
    return y;
  }
  LayerTensorId residual(std::string_view name, LayerTensorId x, LayerTensorId branch) {
    const LayerTensorId sum = tensor(name, list_.at(x).width);
    add({.name = name,
         .work = RowWise{.gradient = RowGradient::passed_on},
         .reads = {x, branch},
         .writes = {sum}});
    return sum;
  }
  LayerTensorId attention(std::string_view name, AttentionCall call, LayerTensors qkv) {
    const LayerTensorId out = tensor({.name = name,
                                      .width = std::int64_t{call.q_heads} * call.v_dim(),
                                      .cut = Cut::width,
                                      .unit = call.v_dim()});
    add({.name = name,
         .work = call,
         .reads = qkv,
         .writes = {out},
         .keeps = {qkv[0], qkv[1], qkv[2], out},
         .statistics = call.q_heads,
         .modules = {RecomputeModule::core_attention}});
    return out;
  }
  [[nodiscard]] const LayerTensor& at(LayerTensorId id) const { return list_.at(id); }
  [[nodiscard]] TensorOps take(LayerTensors results, LayerTensors kept_behind = {}) {
    list_.results = results;
    list_.kept_behind = kept_behind;
    return std::move(list_);
  }

 private:
  TensorOps list_;
};

std::int64_t norm_weights(const Model& model) { return model.hidden * (model.norm_bias ? 2 : 1); }

AttentionCall heads_of(const Model& model, Rows keys) {
  return {.q_heads = model.q_heads,
          .kv_heads = model.kv_heads,
          .head_dim = model.head_dim,
          .keys = keys};
}

/// Norms of Q and K, head by head: their 1/rms is computed again in the backward, which reads whole
/// heads anyway. Then RoPE.
void place_in_position(const Model& model, ListWriter& list, LayerTensorId& q, LayerTensorId& k) {
  const auto both = [&](TensorOp op, bool keeps) {
    const auto after = [&](LayerTensorId before) {
      LayerTensor tensor = list.at(before);
      tensor.name = op.name;
      return list.tensor(tensor);
    };
    const LayerTensorId q_after = after(q);
    const LayerTensorId k_after = after(k);
    op.reads = {q, k};
    op.writes = {q_after, k_after};
    if (keeps) {
      op.keeps = op.reads;
    }
    list.add(op);
    q = q_after;
    k = k_after;
  };
  if (model.qk_norm) {
    both({.name = "qk norm",
          .work = RowWise{.weights = 2 * std::int64_t{model.head_dim}, .in_place = true}},
         true);
  }
  both({.name = "rope", .work = RowWise{.in_place = true}}, false);
}

/// Heads `width` wide in all.
LayerTensor heads(const Model& model, std::string_view name, std::int64_t width,
                  Rows rows = Rows::tokens) {
  return {.name = name, .width = width, .rows = rows, .cut = Cut::width, .unit = model.head_dim};
}

/// x -> x + out(attention(qkv(norm(x)))).
LayerTensorId self_attention(const Model& model, ListWriter& list, LayerTensorId x) {
  const std::int64_t kv_width = model.kv_width();
  LayerTensorId y = list.norm("norm 1", x, norm_weights(model));
  if (model.kind == ModelKind::dit) {
    y = list.scaled("modulate 1", y, {RecomputeModule::norms});
  }
  LayerTensorId q = list.tensor(heads(model, "q", model.q_width()));
  LayerTensorId k = list.tensor(heads(model, "k", kv_width));
  const LayerTensorId v = list.tensor(heads(model, "v", kv_width));
  list.add({.name = "qkv",
            .work = Linear{.in = model.hidden,
                           .out = model.q_width() + 2 * kv_width,
                           .shard = Shard::columns,
                           .bias = model.attention_bias},
            .reads = {y},
            .writes = {q, k, v},
            .keeps = {y}});
  place_in_position(model, list, q, k);
  y = list.attention("attention", heads_of(model, Rows::tokens), {q, k, v});
  y = list.linear("out", y,
                  {.in = model.q_width(),
                   .out = model.hidden,
                   .shard = Shard::rows,
                   .bias = model.output_bias});
  if (model.kind == ModelKind::dit) {
    y = list.scaled("gate 1", y, {});
  }
  return list.residual("residual 1", x, y);
}

/// x -> x + out(attention(q(norm(x)), kv(text))). Matrices only: its norm and biases are small and
/// differ between models.
LayerTensorId cross_attention(const Model& model, ListWriter& list, LayerTensorId x) {
  const std::int64_t kv_width = model.kv_width();
  const LayerTensorId text = list.tensor({.name = "text",
                                          .width = model.hidden,
                                          .rows = Rows::text,
                                          .cut = Cut::whole,
                                          .outside = true});
  LayerTensorId y = list.norm("cross norm", x, 0);
  const LayerTensorId q = list.linear(
      "cross q", y, {.in = model.hidden, .out = model.q_width(), .shard = Shard::columns}, {},
      model.head_dim);
  const LayerTensorId k = list.tensor(heads(model, "cross k", kv_width, Rows::text));
  const LayerTensorId v = list.tensor(heads(model, "cross v", kv_width, Rows::text));
  list.add({.name = "cross kv",
            .work = Linear{.in = model.hidden, .out = 2 * kv_width, .shard = Shard::columns},
            .reads = {text},
            .writes = {k, v},
            .keeps = {text}});
  y = list.attention("cross attention", heads_of(model, Rows::text), {q, k, v});
  y = list.linear("cross out", y,
                  {.in = model.q_width(), .out = model.hidden, .shard = Shard::rows});
  return list.residual("cross residual", x, y);
}

/// x -> x + down(activation(gate(norm(x)), up(norm(x)))), or without a gate.
LayerTensorId mlp(const Model& model, ListWriter& list, LayerTensorId x) {
  const ModuleSet module{RecomputeModule::mlp};
  const Linear wide{
      .in = model.hidden, .out = model.ffn, .shard = Shard::columns, .bias = model.mlp_bias};
  LayerTensorId y = list.norm("norm 2", x, norm_weights(model));
  if (model.kind == ModelKind::dit) {
    y = list.scaled("modulate 2", y, {RecomputeModule::norms});
  }
  LayerTensors inner;
  if (model.gated_mlp) {
    inner.push_back(list.linear("gate", y, wide, module));
  }
  inner.push_back(list.linear("up", y, wide, module));
  const LayerTensorId product =
      list.tensor({.name = "activation", .width = model.ffn, .cut = Cut::width});
  list.add({.name = "activation",
            .work = RowWise{},
            .reads = inner,
            .writes = {product},
            .keeps = inner,
            .modules = {RecomputeModule::activation, RecomputeModule::mlp}});
  y = list.linear(
      "down", product,
      {.in = model.ffn, .out = model.hidden, .shard = Shard::rows, .bias = model.mlp_bias}, module);
  if (model.kind == ModelKind::dit) {
    y = list.scaled("gate 2", y, {});
  }
  return list.residual("residual 2", x, y);
}

/// Logits, and in training their softmax against the next token in fp32: the gradient of the loss
/// follows from the probabilities alone. Over a vocabulary in parts three numbers a token are
/// reduced: the maximum, the target's logit, the sum (Megatron-LM d98e8a64dd,
/// megatron/core/tensor_parallel/cross_entropy.py).
void loss_head(const Model& model, ListWriter& list, LayerTensorId x, StepKind step) {
  const Linear head{.in = model.hidden,
                    .out = model.vocab,
                    .shard = Shard::columns,
                    .tied = model.tied_embeddings};
  if (step == StepKind::prefill) {
    const LayerTensorId last = list.tensor(
        {.name = "logits", .width = model.vocab, .rows = Rows::last, .cut = Cut::width});
    list.add({.name = "logits", .work = head, .reads = {x}, .writes = {last}, .keeps = {x}});
    return;
  }
  const LayerTensorId logits = list.linear("logits", x, head);
  const auto wide = [&](std::string_view name) {
    return list.tensor({.name = name, .width = model.vocab, .cut = Cut::width, .fp32 = true});
  };
  const LayerTensorId exact = wide("logits to fp32");
  const LayerTensorId probabilities = wide("softmax");
  list.add({.name = "logits to fp32", .work = RowWise{}, .reads = {logits}, .writes = {exact}});
  list.add({.name = "logits max",
            .work = RowWise{.gradient = RowGradient::none, .reduced = 1},
            .reads = {exact}});  // writes one number a row
  list.add({.name = "softmax",
            .work = RowWise{.in_place = true, .reduced = 2},
            .reads = {exact},
            .writes = {probabilities},
            .keeps = {probabilities}});
}

/// Invalid without words.
LayerTensorId embedding(const Model& model, ListWriter& list) {
  if (model.vocab == 0) {
    return {};
  }
  const LayerTensorId table =
      list.tensor({.name = "table", .width = model.hidden, .cut = Cut::whole, .outside = true});
  const LayerTensorId embedded = list.tensor("embedding", model.hidden);
  list.add({.name = "embedding",
            .work = Lookup{.words = model.vocab},
            .reads = {table},
            .writes = {embedded}});
  return embedded;
}

/// What the way back to pixels reads; invalid with words.
LayerTensorId head(const Model& model, ListWriter& list, StepKind step) {
  const LayerTensorId x = list.tensor("last layer", model.hidden);
  const LayerTensorId y = list.tensor("final norm", model.hidden);
  list.add({.name = "final norm",  // once in a model: its 1/rms is not worth counting
            .work = RowWise{.weights = norm_weights(model)},
            .reads = {x},
            .writes = {y},
            .keeps = {x}});
  if (model.vocab == 0) {
    return y;
  }
  loss_head(model, list, y, step);
  return {};
}

LayerTensors these(LayerTensorId id) { return id.valid() ? LayerTensors{id} : LayerTensors{}; }

}  // namespace

TensorOps layer_of(const Model& model) {
  ListWriter list(model.cross_tokens);
  LayerTensorId x = list.tensor("input", model.hidden);
  x = self_attention(model, list, x);
  if (model.cross_tokens > 0) {
    x = cross_attention(model, list, x);
  }
  return list.take({mlp(model, list, x)});
}

TensorOps first_of(const Model& model) {
  ListWriter list;
  return list.take(these(embedding(model, list)));
}

TensorOps last_of(const Model& model, StepKind step) {
  ListWriter list;
  const LayerTensorId y = head(model, list, step);
  return list.take(these(y), these(y));
}

TensorOps ends_of(const Model& model, StepKind step) {
  ListWriter list;
  const LayerTensorId embedded = embedding(model, list);
  const LayerTensorId y = head(model, list, step);
  return list.take(these(embedded.valid() ? embedded : y), these(y));
}

std::int64_t Model::layer_parameters() const { return weights_of(layer_of(*this)); }

std::int64_t Model::parameters() const {
  if (!not_costed.empty()) {
    return 0;
  }
  return layers * layer_parameters() + weights_of(ends_of(*this, StepKind::train)) +
         extra_parameters;
}

std::vector<LayerRun> layer_runs(const Model& model) {
  return {{.ops = layer_of(model), .layers = model.layers, .mask = model.mask}};
}
std::size_t kind_of_layer(const Model&, std::int64_t) { return 0; }

}  // namespace spp
