// What a model weighs: all of it, what a token meets, kind by kind of its layers.
#include "base/error.hpp"
#include "schedule/problem.hpp"
#include "transformer/layer.hpp"

#include <variant>

namespace spp {
namespace {

std::int64_t experts_of(const TensorOp& op) {
  const auto* linear = std::get_if<Linear>(&op.work);
  return linear != nullptr ? linear->experts : 0;
}

/// What a layer is called, in the words of published configurations; of attention by its mask.
std::string_view kind_word(const Model& model, const LayerRun& run) {
  switch (run.blocks.mixer) {
    case Mixer::linear:
      return model.linear->scan.rule == StateRule::mamba2 ? "Mamba2" : "linear attention";
    case Mixer::picked:
      return "sparse attention";
    case Mixer::compressed:
      return run.blocks.keys.entry == 0   ? "sliding attention"
             : run.blocks.keys.picked > 0 ? "compressed sparse attention"
                                          : "heavily compressed attention";
    case Mixer::none:
      return run.blocks.feed == Feed::mlp ? "MLP" : "experts";
    case Mixer::attention:
      return !run.attends                        ? "frame attention"
             : run.mask.kind == MaskKind::window ? "sliding attention"
             : run.mask.chunk > 0                ? "chunked attention"
                                                 : "full attention";
  }
  throw InternalError("no such Mixer");
}

std::string mask_word(const LayerRun& run) {
  const MetKeys& keys = run.blocks.keys;
  if (run.blocks.mixer == Mixer::compressed) {
    std::string sees = to_string(Mask{.kind = MaskKind::window, .window = keys.window});
    if (keys.entry > 0) {
      sees += fmt::format(" and {} entries of {} tokens",
                          keys.picked > 0 ? fmt::format("{}", keys.picked) : "all", keys.entry);
    }
    return sees;
  }
  return run.blocks.mixer == Mixer::attention ? to_string(run.mask)
         : run.blocks.mixer == Mixer::picked
             ? fmt::format("{}, {} keys", to_string(run.mask), keys.picked)
             : "none";
}

std::string_view mlp_word(Feed feed) {
  return feed == Feed::none ? "none" : feed == Feed::mlp ? "dense" : "experts";
}

std::string_view attention_word(const Model& model, const LayerRun& run) {
  for (const TensorOp& op : run.ops.ops) {
    if (const auto* call = std::get_if<AttentionCall>(&op.work)) {
      return model.latent.kv_rank > 0 ? "MLA" : heads_word(call->q_heads, call->kv_heads);
    }
  }
  return "none";
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
                     .kind = std::string(kind_word(model, run)),
                     .attention = std::string(attention_word(model, run)),
                     .mask = mask_word(run),
                     .mlp = std::string(mlp_word(run.blocks.feed)),
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
