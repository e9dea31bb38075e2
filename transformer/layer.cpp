#include "transformer/layer.hpp"

#include "base/error.hpp"
#include "transformer/layer_split.hpp"
#include "transformer/layer_writer.hpp"

#include <algorithm>
#include <vector>

namespace spp {
namespace {

/// What layers of a model differ in.
struct LayerKind {
  LayerBlocks blocks;
  bool narrow = false;  // its attention sees a window or a chunk
  bool two_streams = false, between_frames = false, skips = false;
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

LayerKind kind_at(const Model& model, std::int64_t layer) {
  const auto i = static_cast<std::size_t>(layer);
  const DiffusionBlocks& d = model.diffusion;
  const LayerBlocks usual{
      .mixer = model.indexer ? Mixer::picked : Mixer::attention,
      .feed = model.experts.routes(layer) ? Feed::experts : Feed::mlp,
      .keys = model.indexer ? MetKeys{.entry = 1, .picked = model.indexer->keys} : MetKeys{}};
  return {.blocks = model.blocks.empty() ? usual : model.blocks[i],
          .narrow = i < model.narrow_layers.size() && model.narrow_layers[i],
          .two_streams = layer < d.two_streams,
          .between_frames = d.frames > 0 && layer % 2 == 1,
          .skips = d.long_skips && layer > model.layers / 2};
}

std::vector<LayerKind> kinds_of(const Model& model) {
  std::vector<LayerKind> kinds;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const LayerKind kind = kind_at(model, i);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
      kinds.push_back(kind);
    }
  }
  return kinds;
}

/// Tokens among each other.
LayerTensorId mixed(const Model& model, const LayerKind& kind, ListWriter& list, LayerTensorId x) {
  if (kind.blocks.mixer == Mixer::linear) {
    return linear_attention(model, list, x);
  }
  if (kind.blocks.mixer == Mixer::compressed) {
    return compressed_attention(model, list, x, kind.blocks.keys);
  }
  ensure(model.streams == 1, "several residual streams around compressed attention alone");
  if (kind.blocks.mixer == Mixer::picked) {
    return picked_attention(model, list, x, kind.blocks.keys);
  }
  x = model.latent.kv_rank > 0 ? latent_attention(model, list, x)
      : kind.between_frames    ? frame_attention(model, list, x)
                               : self_attention(model, list, x, model.heads(kind.narrow));
  return model.cross_tokens > 0 && !kind.between_frames ? cross_attention(model, list, x) : x;
}

/// What the layer gives, times a number.
LayerTensorId scaled_layer(const Model& model, ListWriter& list, LayerTensorId x) {
  if (!model.layer_scale) {
    return x;
  }
  const LayerTensorId y = list.like("layer scale", x);
  list.add({.name = "layer scale",
            .work = RowWise{.weights = 1, .in_place = true},
            .reads = {x},
            .writes = {y},
            .keeps = {x}});
  return y;
}

LayerTensorId layer(const Model& model, const LayerKind& kind, ListWriter& list, LayerTensorId x) {
  if (kind.skips) {
    x = long_skip(model, list, x);
  }
  if (model.diffusion.parallel_mlp) {
    return parallel_layer(model, list, x);
  }
  modulation(model, list, "modulation", model.diffusion.modulation_vectors);
  if (kind.blocks.mixer != Mixer::none) {
    x = mixed(model, kind, list, x);
  }
  switch (kind.blocks.feed) {
    case Feed::mlp:
      return scaled_layer(model, list, mlp(model, list, x));
    case Feed::experts:
    case Feed::tabled:
      return scaled_layer(model, list, experts(model, list, x, kind.blocks.feed == Feed::experts));
    case Feed::none:
      return scaled_layer(model, list, x);
  }
  throw InternalError("no such Feed");
}

TensorOps ops_of(const Model& model, const LayerKind& kind, Dispatcher to_experts) {
  ListWriter list(model, to_experts);
  if (kind.two_streams) {
    return list.take(two_stream_layer(model, list));
  }
  return list.take({layer(model, kind, list, list.tensor("input", model.stream_width()))});
}

/// Logits, and in training their softmax against the next token in fp32: the gradient of the loss
/// follows from the probabilities alone. Over a vocabulary in parts three numbers a token are
/// reduced: the maximum, the target's logit, the sum (Megatron-LM d98e8a64dd,
/// megatron/core/tensor_parallel/cross_entropy.py).
void loss_head(const Model& model, ListWriter& list, LayerTensorId x, StepKind step, bool tied) {
  const Linear head{.in = model.hidden,
                    .out = model.vocab,
                    .shard = Shard::columns,
                    .tied = tied,
                    .width = GemmWidth::wide};
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
  constexpr LayerFunction sums = LayerFunction::word_sums;
  list.add({.name = "logits to fp32",
            .work = RowWise{.function = sums, .in_kernel = InKernel::reads},
            .reads = {logits},
            .writes = {exact}});
  list.add({.name = "logits max",
            .work = RowWise{.function = sums,
                            .gradient = RowGradient::none,
                            .reduced = 1,
                            .in_kernel = InKernel::inside},
            .reads = {exact}});  // writes one number a row
  list.add(
      {.name = "softmax",
       .work =
           RowWise{.function = sums, .in_place = true, .reduced = 2, .in_kernel = InKernel::inside},
       .reads = {exact},
       .writes = {probabilities},
       .keeps = {probabilities}});
}

/// Invalid without words.
LayerTensorId embedding(const Model& model, ListWriter& list, bool tied = false) {
  if (model.vocab == 0) {
    return {};
  }
  const LayerTensorId table =
      list.tensor({.name = "table", .width = model.hidden, .cut = Cut::whole, .outside = true});
  const LayerTensorId embedded = list.tensor("embedding", model.hidden);
  list.add({.name = "embedding",
            .work = Lookup{.words = model.vocab, .tied = tied},
            .reads = {table},
            .writes = {embedded}});
  return embedded;
}

/// What the first layer reads; invalid without words.
LayerTensorId before_layers(const Model& model, ListWriter& list) {
  const LayerTensorId embedded = embedding(model, list);
  return embedded.valid() ? spread(model, list, embedded) : embedded;
}

/// What the way back to pixels reads; invalid with words.
LayerTensorId head(const Model& model, ListWriter& list, LayerTensorId x, StepKind step,
                   bool tied) {
  x = collapse(model, list, x);
  const LayerTensorId y = list.tensor("final norm", model.hidden);
  list.add({.name = "final norm",  // once in a model: its 1/rms is not worth counting
            .work = RowWise{.function = norm_function(model), .weights = norm_weights(model)},
            .reads = {x},
            .writes = {y},
            .keeps = {x}});
  if (model.vocab == 0) {
    return y;
  }
  loss_head(model, list, y, step, tied);
  return {};
}

/// Where each layer's kind stands among `kinds`.
std::vector<std::size_t> places_of(const Model& model, const std::vector<LayerKind>& kinds) {
  std::vector<std::size_t> places;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const auto at = std::ranges::find(kinds, kind_at(model, i));
    places.push_back(static_cast<std::size_t>(at - kinds.begin()));
  }
  return places;
}

LayerTensors these(LayerTensorId id) { return id.valid() ? LayerTensors{id} : LayerTensors{}; }

/// The layer of whose kind those are that predict further tokens.
std::int64_t predict_as(const Model& model) {
  return model.predict_like.value_or(model.layers - 1);
}

/// What a layer that predicts reads, from the normed stream and embedding: one matrix joins them;
/// over several streams the streams' own, the same for each, and the embedding's, added to all
/// (DeepSeek-V4's inference/model.py, MTPBlock).
LayerTensorId predict_input(const Model& model, ListWriter& list, LayerTensors halves) {
  const std::int64_t h = model.hidden;
  if (model.streams == 1) {
    const LayerTensorId both = list.joined({.name = "predict both", .width = 2 * h}, halves);
    return list.linear("predict", both, {.in = 2 * h, .out = h});
  }
  const std::int64_t all = model.stream_width();
  const LayerTensorId streams = list.linear(
      "predict", halves[0], {.in = all, .out = all, .heads = model.streams, .alike = true});
  const LayerTensorId embedded = list.linear("predict embedding", halves[1], {.in = h, .out = h});
  const LayerTensorId sum = list.like("predict sum", streams);
  list.add(
      {.name = "predict sum", .work = RowWise{}, .reads = {streams, embedded}, .writes = {sum}});
  return sum;
}

}  // namespace

std::vector<LayerRun> layer_runs(const Model& model, Dispatcher to_experts) {
  std::vector<LayerRun> runs;
  const std::vector<LayerKind> kinds = kinds_of(model);
  for (const LayerKind& kind : kinds) {
    runs.push_back({.ops = ops_of(model, kind, to_experts),
                    .mask = kind.narrow ? model.narrow_mask : model.mask,
                    .heads = model.heads(kind.narrow),
                    .attends = kind.blocks.mixer == Mixer::attention && !kind.between_frames,
                    .blocks = kind.blocks});
  }
  for (const std::size_t kind : places_of(model, kinds)) {
    ++runs[kind].layers;
  }
  return runs;
}

std::vector<std::size_t> kinds_of_layers(const Model& model) {
  return places_of(model, kinds_of(model));
}

TensorOps layer_of(const Model& model, Dispatcher to_experts) {
  const std::vector<LayerKind> kinds = kinds_of(model);
  if (kinds.size() > 1) {
    throw InputError(fmt::format("model '{}'", model.name),
                     fmt::format("has layers of {} kinds, not of one", kinds.size()));
  }
  return ops_of(model, kinds.empty() ? LayerKind{} : kinds.front(), to_experts);
}

TensorOps first_of(const Model& model) {
  ListWriter list;
  return list.take(these(before_layers(model, list)));
}

TensorOps last_of(const Model& model, StepKind step) {
  ListWriter list;
  const LayerTensorId y = head(model, list, list.tensor("last layer", model.stream_width()), step,
                               model.tied_embeddings);
  return list.take(these(y), these(y));
}

TensorOps predict_of(const Model& model, Dispatcher to_experts) {
  ensure(model.vocab > 0, "a model of words");
  ListWriter list(model, to_experts);
  const LayerTensorId stream = list.tensor("last layer", model.stream_width());
  const LayerTensorId next = embedding(model, list, true);
  const LayerTensors halves{list.norm("predict norm", stream, model),
                            list.norm("predict embedding norm", next, model)};
  const LayerTensorId x = predict_input(model, list, halves);
  head(model, list, layer(model, kind_at(model, predict_as(model)), list, x), StepKind::train,
       true);
  return list.take({});
}

std::size_t further_predictions(const Model& model, StepKind step) {
  return step == StepKind::train ? static_cast<std::size_t>(model.predict_layers) : 0;
}

ModelLayers::ModelLayers(const Model& model, StepKind step, Dispatcher to_experts)
    : runs(layer_runs(model, to_experts)),
      kind_of(kinds_of_layers(model)),
      first(first_of(model)),
      last(last_of(model, step)),
      predictions(further_predictions(model, step)) {
  if (predictions > 0) {
    predict = predict_of(model, to_experts);
    predict_kind = kind_of[static_cast<std::size_t>(predict_as(model))];
  }
}

TensorOps ends_of(const Model& model, StepKind step) {
  ListWriter list;
  const LayerTensorId embedded = before_layers(model, list);
  const LayerTensorId y = head(model, list, list.tensor("last layer", model.stream_width()), step,
                               model.tied_embeddings);
  return list.take(these(embedded.valid() ? embedded : y), these(y));
}

std::int64_t Model::layer_parameters() const {
  const std::vector<LayerKind> kinds = kinds_of(*this);
  return weights_of(ops_of(*this, kinds.empty() ? LayerKind{} : kinds.back(), {}));
}

}  // namespace spp
