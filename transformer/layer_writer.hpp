// Inside of layer.hpp: how its lists are written down, and the parts that layers are made of.
#pragma once

#include "transformer/layer.hpp"

#include <cstdint>
#include <string_view>

namespace spp {

/// Writes a list down, one operation after the other.
class ListWriter {
 public:
  ListWriter() = default;
  explicit ListWriter(const Model& model, Dispatcher to_experts);

  LayerTensorId tensor(LayerTensor tensor);
  /// [tokens, width], cut by rows.
  LayerTensorId tensor(std::string_view name, std::int64_t width) {
    return tensor({.name = name, .width = width});
  }
  /// As another one, by another name.
  LayerTensorId like(std::string_view name, LayerTensorId other);
  void add(TensorOp op) { list_.ops.push_back(op); }
  void cache(LayerTensors tensors) { list_.cached = tensors; }
  /// What so many tokens make has a row for all of them (Rows::entries).
  void make_entries(std::int64_t tokens) { list_.entry_tokens = tokens; }

  /// y = x W, y as wide as `to.out`, in units of `unit`.
  LayerTensorId linear(std::string_view name, LayerTensorId x, Linear to, ModuleSet modules = {},
                       std::int64_t unit = 1);
  /// y = norm(x): 1/rms of each row is kept.
  LayerTensorId norm(std::string_view name, LayerTensorId x, std::int64_t weights);
  /// An RMSNorm, with a gain for each of x's elements.
  LayerTensorId rms_norm(std::string_view name, LayerTensorId x);
  /// Of `hidden` gains, and as many biases if it has any.
  LayerTensorId norm(std::string_view name, LayerTensorId x, const Model& model);
  /// y = x * (1 + scale) + shift, or x * gate: the vectors are the same for all tokens of a
  /// sequence (modulation()).
  LayerTensorId scaled(std::string_view name, LayerTensorId x, ModuleSet modules);
  /// y = activation(inner...), as wide as one of them.
  LayerTensorId activation(std::string_view name, LayerTensors inner, ModuleSet modules,
                           std::optional<LayerFunction> function);
  /// Of gate and up, or of one alone.
  LayerTensorId activation(std::string_view name, LayerTensors inner, ModuleSet modules) {
    return activation(name, inner, modules,
                      inner.size() == 2 ? LayerFunction::swiglu : LayerFunction::gelu);
  }
  LayerTensorId residual(std::string_view name, LayerTensorId x, LayerTensorId branch);
  /// One tensor of the rows, or of the widths, of several: copied together.
  LayerTensorId joined(LayerTensor whole, LayerTensors parts);
  LayerTensorId attention(std::string_view name, AttentionCall call, LayerTensors qkv);
  /// Its output in parts of the rows.
  void attention(std::string_view name, AttentionCall call, LayerTensors qkv, LayerTensors outputs);

  [[nodiscard]] const LayerTensor& at(LayerTensorId id) const { return list_.at(id); }
  [[nodiscard]] Dispatcher to_experts() const { return to_experts_; }
  [[nodiscard]] TensorOps take(LayerTensors results, LayerTensors kept_behind = {});

 private:
  TensorOps list_;
  Dispatcher to_experts_ = {};
};

std::int64_t norm_weights(const Model& model);
LayerFunction norm_function(const Model& model);

/// A branch of the residual stream: what it reads is the stream, or made of several (layer.hpp).
struct BranchNames {
  std::string_view mix, read, merge;
};
inline constexpr BranchNames attention_branch{
    .mix = "streams mix 1", .read = "streams read 1", .merge = "residual 1"};
inline constexpr BranchNames mlp_branch{
    .mix = "streams mix 2", .read = "streams read 2", .merge = "residual 2"};
struct Branch {
  BranchNames names;
  LayerTensorId stream, x;  // x: what the branch reads
  LayerTensorId mixes;      // of several streams: how they mix, and take the result
};
Branch branch_from(const Model& model, ListWriter& list, const BranchNames& names,
                   LayerTensorId stream);
/// The stream, or all of them, with what the branch gave.
LayerTensorId merge(ListWriter& list, const Branch& branch, LayerTensorId result);
/// All streams from one, and one from all: at a model's ends.
LayerTensorId spread(const Model& model, ListWriter& list, LayerTensorId x);
LayerTensorId collapse(const Model& model, ListWriter& list, LayerTensorId streams);

/// Each takes the residual stream and gives it back, with its branch added.
LayerTensorId self_attention(const Model& model, ListWriter& list, LayerTensorId x,
                             const KvHeads& heads);
/// Among the tokens of one place in all frames.
LayerTensorId frame_attention(const Model& model, ListWriter& list, LayerTensorId x);
LayerTensorId latent_attention(const Model& model, ListWriter& list, LayerTensorId x);
/// The same to the keys that an indexer picks (Model::indexer).
LayerTensorId picked_attention(const Model& model, ListWriter& list, LayerTensorId x,
                               const MetKeys& met);
/// To a window and entries made of several tokens, on one residual stream or several.
LayerTensorId compressed_attention(const Model& model, ListWriter& list, LayerTensorId stream,
                                   const MetKeys& keys);
/// An indexer's queries, and with how much each head's scores count, to numbers of keys; its keys
/// are put in position.
LayerTensorId index_queries(const Model& model, ListWriter& list, LayerTensorId q_latent);
LayerTensorId picked_keys(const Model& model, ListWriter& list, LayerTensorId y, LayerTensorId q,
                          const MetKeys& keys, LayerTensorId& index_k);
/// What latent attention makes of a normed stream: what Q is made from; what K and V are, and the
/// part of K that is in position.
LayerTensorId query_latent(const Model& model, ListWriter& list, LayerTensorId y);
struct KeyLatents {
  LayerTensorId kv, position;
};
KeyLatents key_latents(const Model& model, ListWriter& list, LayerTensorId y);
LayerTensorId attention_output(const Model& model, ListWriter& list, LayerTensorId y);
/// Gated DeltaNet or Mamba2 (Model::linear).
LayerTensorId linear_attention(const Model& model, ListWriter& list, LayerTensorId x);
LayerTensorId cross_attention(const Model& model, ListWriter& list, LayerTensorId x);
LayerTensorId mlp(const Model& model, ListWriter& list, LayerTensorId stream);
/// `scored`: by the router; else a table picks them.
LayerTensorId experts(const Model& model, ListWriter& list, LayerTensorId stream, bool scored);
/// Whole layers of diffusion transformers (DiffusionBlocks): image and text with weights of their
/// own, both given back; attention and MLP side by side.
LayerTensors two_stream_layer(const Model& model, ListWriter& list);
LayerTensorId parallel_layer(const Model& model, ListWriter& list, LayerTensorId x);
/// x W + (what the mirrored layer gave) W', normed before.
LayerTensorId long_skip(const Model& model, ListWriter& list, LayerTensorId x);
/// The vectors that a layer's norms are modulated with, from its own matrix; nothing without one.
void modulation(const Model& model, ListWriter& list, std::string_view name, int vectors);
/// Of one stream's Q and K, then both in their places: where attention's parts are shared.
AttentionCall attention_over(const Model& model, Rows keys);
void norm_heads(const Model& model, ListWriter& list, std::string_view name, LayerTensorId& q,
                LayerTensorId& k);
void place(ListWriter& list, LayerTensorId& q, LayerTensorId& k);
/// Heads of `dim`.
LayerTensor heads_tensor(std::string_view name, int number, std::int64_t dim,
                         Rows rows = Rows::tokens);

}  // namespace spp
