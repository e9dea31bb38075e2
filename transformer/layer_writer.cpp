#include "transformer/layer_writer.hpp"

#include <utility>

namespace spp {

ListWriter::ListWriter(const Model& model, Dispatcher to_experts) : to_experts_(to_experts) {
  list_.text_tokens = model.cross_tokens;
  list_.experts_per_token = model.experts.per_token;
}

LayerTensorId ListWriter::tensor(LayerTensor tensor) {
  list_.tensors.push_back(tensor);
  return LayerTensorId(list_.tensors.size() - 1);
}

LayerTensorId ListWriter::like(std::string_view name, LayerTensorId other) {
  LayerTensor copy = list_.at(other);
  copy.name = name;
  return tensor(copy);
}

LayerTensorId ListWriter::linear(std::string_view name, LayerTensorId x, Linear to,
                                 ModuleSet modules, std::int64_t unit) {
  const LayerTensorId y =
      tensor({.name = name,
              .width = to.out,
              .rows = list_.at(x).rows,
              .cut = to.shard == Shard::columns || to.shard == Shard::heads ? Cut::width
                     : to.detached                                          ? Cut::whole
                                                                            : Cut::rows,
              .unit = unit});
  add({.name = name, .work = to, .reads = {x}, .writes = {y}, .keeps = {x}, .modules = modules});
  return y;
}

LayerTensorId ListWriter::norm(std::string_view name, LayerTensorId x, std::int64_t weights) {
  const LayerTensorId y = like(name, x);
  add({.name = name,
       .work = RowWise{.weights = weights},
       .reads = {x},
       .writes = {y},
       .keeps = {x},
       .statistics = 1,
       .modules = {RecomputeModule::norms}});
  return y;
}

LayerTensorId ListWriter::rms_norm(std::string_view name, LayerTensorId x) {
  const LayerTensorId y = norm(name, x, list_.at(x).width);
  std::get<RowWise>(list_.ops.back().work).function = LayerFunction::rms_norm;
  return y;
}

LayerTensorId ListWriter::norm(std::string_view name, LayerTensorId x, const Model& model) {
  const LayerTensorId y = norm(name, x, norm_weights(model));
  std::get<RowWise>(list_.ops.back().work).function = norm_function(model);
  return y;
}

LayerTensorId ListWriter::scaled(std::string_view name, LayerTensorId x, ModuleSet modules) {
  const LayerTensorId y = like(name, x);
  add({.name = name,
       .work = RowWise{},
       .reads = {x},
       .writes = {y},
       .keeps = {x},
       .modules = modules});
  return y;
}

LayerTensorId ListWriter::activation(std::string_view name, LayerTensors inner, ModuleSet modules,
                                     std::optional<LayerFunction> function) {
  const LayerTensorId y = like(name, inner[0]);
  modules.insert(RecomputeModule::activation);
  add({.name = name,
       .work = RowWise{.function = function},
       .reads = inner,
       .writes = {y},
       .keeps = inner,
       .modules = modules});
  return y;
}

LayerTensorId ListWriter::residual(std::string_view name, LayerTensorId x, LayerTensorId branch) {
  const LayerTensorId sum = like(name, x);
  add({.name = name,
       .work = RowWise{.function = LayerFunction::add, .gradient = RowGradient::passed_on},
       .reads = {x, branch},
       .writes = {sum}});
  return sum;
}

LayerTensorId ListWriter::joined(LayerTensor whole, LayerTensors parts) {
  const LayerTensorId y = tensor(whole);
  add({.name = whole.name, .work = RowWise{}, .reads = parts, .writes = {y}});
  return y;
}

LayerTensorId ListWriter::attention(std::string_view name, AttentionCall call, LayerTensors qkv) {
  const LayerTensorId out = tensor({.name = name,
                                    .width = std::int64_t{call.q_heads} * call.v_dim(),
                                    .cut = Cut::width,
                                    .unit = call.v_dim()});
  attention(name, call, qkv, {out});
  return out;
}

void ListWriter::attention(std::string_view name, AttentionCall call, LayerTensors qkv,
                           LayerTensors outputs) {
  TensorOp op{.name = name,
              .work = call,
              .reads = qkv,
              .writes = outputs,
              .keeps = qkv,
              .statistics = call.q_heads,
              .modules = {RecomputeModule::core_attention}};
  for (const LayerTensorId id : outputs) {
    op.keeps.push_back(id);
  }
  add(op);
}

TensorOps ListWriter::take(LayerTensors results, LayerTensors kept_behind) {
  list_.results = results;
  list_.kept_behind = kept_behind;
  return std::move(list_);
}

LayerFunction norm_function(const Model& model) {
  return model.norm_bias ? LayerFunction::layer_norm : LayerFunction::rms_norm;
}

std::int64_t norm_weights(const Model& model) { return model.hidden * (model.norm_bias ? 2 : 1); }

}  // namespace spp
