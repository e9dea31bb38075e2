#include "transformer/model_flops.hpp"

#include "schedule/measure.hpp"
#include "transformer/layer_kernels.hpp"

namespace spp {
namespace {

/// Forward FLOPs of a pair of tokens in all heads of a layer's attention over the sequence.
double pair_flops(const TensorOps& layer) {
  double flops = 0;
  for (const TensorOp& op : layer.ops) {
    const auto* call = std::get_if<AttentionCall>(&op.work);
    if (call != nullptr && call->keys == Rows::tokens) {
      flops += call->q_heads * flops_per_pair(Phase::forward, call->head_dim, call->v_dim());
    }
  }
  return flops;
}

}  // namespace

ModelFlops model_flops(const Model& model, const ModelWork& work) {
  const double passes = work.step == StepKind::train ? 3 : 1;
  const auto layers = static_cast<double>(model.layers);
  const auto batch = static_cast<double>(work.batch);
  const auto seq = static_cast<double>(work.seq);
  const TensorOps layer = layer_of(model);
  const LocalTokens all{.tokens = work.seq, .batch = work.batch};
  const double around = layers * flops_of(forward_ops(layer, all)).value() +
                        flops_of(forward_ops(ends_of(model, work.step), all)).value();

  double pairs = seq * seq;
  if (work.mask.kind == MaskKind::causal) {
    pairs /= 2;
  } else if (work.mask.kind == MaskKind::window) {
    const TokenRange every{.begin = 0, .count = work.seq};
    pairs = static_cast<double>(allowed_pairs(every, every, work.mask));
  }
  const double of_pair = pair_flops(layer) * batch * layers;
  return {
      .causal_halved = FlopCount(passes * (around + of_pair * pairs)),
      .full = FlopCount(passes * (around + of_pair * seq * seq)),
      .model_6n = FlopCount(passes * 2 * static_cast<double>(model.parameters()) * seq * batch)};
}

}  // namespace spp
