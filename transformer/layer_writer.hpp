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
  explicit ListWriter(const Model& model);

  LayerTensorId tensor(LayerTensor tensor);
  /// [tokens, width], cut by rows.
  LayerTensorId tensor(std::string_view name, std::int64_t width) {
    return tensor({.name = name, .width = width});
  }
  /// As another one, by another name.
  LayerTensorId like(std::string_view name, LayerTensorId other);
  void add(TensorOp op) { list_.ops.push_back(op); }
  void cache(LayerTensors tensors) { list_.cached = tensors; }

  /// y = x W, y as wide as `to.out`, in units of `unit`.
  LayerTensorId linear(std::string_view name, LayerTensorId x, Linear to, ModuleSet modules = {},
                       std::int64_t unit = 1);
  /// y = norm(x): 1/rms of each row is kept.
  LayerTensorId norm(std::string_view name, LayerTensorId x, std::int64_t weights);
  /// y = x * (1 + scale) + shift, or x * gate: the vectors are the same for all tokens, their
  /// weights Model::extra_parameters.
  LayerTensorId scaled(std::string_view name, LayerTensorId x, ModuleSet modules);
  /// y = activation(inner...), as wide as one of them.
  LayerTensorId activation(std::string_view name, LayerTensors inner, ModuleSet modules);
  LayerTensorId residual(std::string_view name, LayerTensorId x, LayerTensorId branch);
  LayerTensorId attention(std::string_view name, AttentionCall call, LayerTensors qkv);

  [[nodiscard]] const LayerTensor& at(LayerTensorId id) const { return list_.at(id); }
  [[nodiscard]] TensorOps take(LayerTensors results, LayerTensors kept_behind = {});

 private:
  TensorOps list_;
};

std::int64_t norm_weights(const Model& model);

/// Each takes the residual stream and gives it back, with its branch added.
LayerTensorId self_attention(const Model& model, ListWriter& list, LayerTensorId x);
LayerTensorId latent_attention(const Model& model, ListWriter& list, LayerTensorId x);
LayerTensorId cross_attention(const Model& model, ListWriter& list, LayerTensorId x);
LayerTensorId mlp(const Model& model, ListWriter& list, LayerTensorId x);
LayerTensorId experts(const Model& model, ListWriter& list, LayerTensorId x);

}  // namespace spp
