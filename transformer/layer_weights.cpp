// What a model weighs: all of it, what a token meets, kind by kind of its layers.
#include "schedule/problem.hpp"
#include "transformer/layer.hpp"

#include <algorithm>
#include <variant>

namespace spp {
namespace {

/// The kind of attention that a mask makes, in the words of published configurations.
std::string_view kind_word(const LayerRun& run) {
  return !run.attends                        ? "frame attention"
         : run.mask.kind == MaskKind::window ? "sliding attention"
         : !run.mask.document_ends.empty()   ? "chunked attention"
                                             : "full attention";
}

std::string_view attention_word(const Model& model, const LayerRun& run) {
  for (const TensorOp& op : run.ops.ops) {
    if (const auto* call = std::get_if<AttentionCall>(&op.work)) {
      return model.latent.kv_rank > 0 ? "MLA" : heads_word(call->q_heads, call->kv_heads);
    }
  }
  return "none";
}

std::int64_t experts_of(const TensorOp& op) {
  const auto* linear = std::get_if<Linear>(&op.work);
  return linear != nullptr ? linear->experts : 0;
}

bool has_experts(const TensorOps& ops) {
  return std::ranges::any_of(ops.ops, [](const TensorOp& op) { return experts_of(op) > 0; });
}

}  // namespace

std::string_view heads_word(int q_heads, int kv_heads) {
  return kv_heads == q_heads ? "MHA" : kv_heads == 1 ? "MQA" : "GQA";
}

std::int64_t active_weights_of(const TensorOps& ops) {
  std::int64_t active = weights_of(ops);
  for (const TensorOp& op : ops.ops) {
    if (const std::int64_t experts = experts_of(op); experts > 0) {
      active -= weights_of(op, ops) / experts * (experts - ops.experts_per_token);
    }
  }
  return active;
}

std::vector<LayerWeights> layer_weights(const Model& model) {
  if (!model.not_costed.empty()) {
    return model.counted;
  }
  std::vector<LayerWeights> kinds;
  for (const LayerRun& run : layer_runs(model)) {
    kinds.push_back({.layers = run.layers,
                     .kind = std::string(kind_word(run)),
                     .attention = std::string(attention_word(model, run)),
                     .mask = to_string(run.mask),
                     .mlp = has_experts(run.ops) ? "experts" : "dense",
                     .parameters = weights_of(run.ops),
                     .active = active_weights_of(run.ops)});
  }
  return kinds;
}

std::int64_t Model::parameters() const {
  const std::vector<LayerWeights> kinds = layer_weights(*this);
  if (kinds.empty()) {
    return 0;
  }
  std::int64_t sum = weights_of(ends_of(*this, StepKind::train)) + extra_parameters;
  for (const LayerWeights& alike : kinds) {
    sum += alike.layers * alike.parameters;
  }
  return sum;
}

std::int64_t Model::active_parameters() const {
  std::int64_t active = parameters();
  for (const LayerWeights& alike : layer_weights(*this)) {
    active -= alike.layers * (alike.parameters - alike.active);
  }
  return active;
}

}  // namespace spp
