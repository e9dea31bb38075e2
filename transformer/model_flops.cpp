#include "transformer/model_flops.hpp"

#include "schedule/measure.hpp"
#include "transformer/layer_kernels.hpp"
#include "transformer/met_pairs.hpp"

#include <algorithm>

namespace spp {
namespace {

/// Forward FLOPs of a pair of tokens in all heads of a layer's attention over the sequence.
double pair_flops(const TensorOps& layer) {
  double flops = 0;
  for (const TensorOp& op : layer.ops) {
    const auto* call = std::get_if<AttentionCall>(&op.work);
    if (call != nullptr && call->over_sequence()) {
      flops += call->q_heads * flops_per_pair(Phase::forward, call->head_dim, call->v_dim());
    }
  }
  return flops;
}

/// Pairs that a mask allows; of a causal one half of the sequence's own.
double allowed(const ModelWork& work) {
  const auto seq = static_cast<double>(work.seq);
  return seq * static_cast<double>(work.cached) +
         (work.mask.kind == MaskKind::causal ? seq * seq / 2 : seq * seq);
}

double exact_pairs(const Mask& mask, const ModelWork& work) {
  const TokenRange queries{.begin = work.cached, .count = work.seq};
  const TokenRange keys{.begin = 0, .count = work.cached + work.seq};
  return static_cast<double>(allowed_pairs(queries, keys, mask));
}

/// What layers see that do not see all that the work's mask allows.
Mask own_part(const LayerMask& mask, const ModelWork& work) {
  return mask.over(work.cached + work.seq, work.mask.document_ends);
}

/// Of a layer of sparse attention, of one sequence in all passes: each query's scores of what it
/// may see, of the `pairs` of tokens one for all of an entry, and attention to what is picked by
/// them, to a window, or to all entries. Backward both meet picked ones alone.
double sparse_flops(const TensorOps& layer, const ModelWork& work, double pairs, double passes) {
  const TokenSet queries({.begin = work.cached, .count = work.seq});
  const auto seen = [&](const MetKeys& keys) { return pairs / static_cast<double>(keys.entry); };
  double flops = 0;
  for (const TensorOp& op : layer.ops) {
    if (const auto* call = std::get_if<AttentionCall>(&op.work);
        call != nullptr && call->meets.any()) {
      const MetKeys& keys = call->meets;
      const MetPairs exact = met_pairs(keys, queries);
      const bool all = keys.entry > 0 && keys.picked == 0;
      const double met = static_cast<double>(exact.window) +
                         (all ? seen(keys) : static_cast<double>(exact.entries));
      flops += passes * call->q_heads *
               flops_per_pair(Phase::forward, call->head_dim, call->v_dim()) * met;
    } else if (const auto* pick = std::get_if<PickCall>(&op.work)) {
      const Indexer& indexer = pick->indexer;
      const auto picked = static_cast<double>(met_pairs(pick->meets, queries).entries);
      flops += 2.0 * indexer.heads * indexer.dim * (seen(pick->meets) + (passes - 1) * picked);
    }
  }
  return flops;
}

}  // namespace

ModelFlops model_flops(const Model& model, const ModelWork& work) {
  const double passes = work.step == StepKind::train ? 3 : 1;
  const auto batch = static_cast<double>(work.batch);
  const auto seq = static_cast<double>(work.seq);
  const double all_pairs = seq * static_cast<double>(work.cached + work.seq);
  const LocalTokens all{.tokens = work.seq,
                        .batch = work.batch,
                        .joint = std::min(work.seq, model.diffusion.joint_tokens)};
  const bool exact = work.mask.kind == MaskKind::window || !work.mask.document_ends.empty();
  const double pairs = exact ? exact_pairs(work.mask, work) : allowed(work);
  double around = 0;
  double masked = 0;
  double unmasked = 0;
  double sparse = 0;  // of all passes
  double sparse_unmasked = 0;
  const auto add_sparse = [&](const TensorOps& layer, double layers) {
    sparse += layers * batch * sparse_flops(layer, work, pairs, passes);
    sparse_unmasked += layers * batch * sparse_flops(layer, work, all_pairs, passes);
  };
  for (const LayerRun& run : layer_runs(model)) {
    const auto layers = static_cast<double>(run.layers);
    // Within frames: a frame's part of all pairs.
    const auto frames = static_cast<double>(std::max<std::int64_t>(1, model.diffusion.frames));
    const double of_pair = pair_flops(run.ops) * batch * layers / frames;
    around += layers * flops_of(forward_ops(run.ops, all)).value();
    masked +=
        of_pair * (run.mask == model.mask ? pairs : exact_pairs(own_part(run.mask, work), work));
    unmasked += of_pair * all_pairs;
    add_sparse(run.ops, layers);
  }
  around += flops_of(forward_ops(ends_of(model, work.step), all)).value();
  if (const auto further = static_cast<double>(further_predictions(model, work.step));
      further > 0) {
    const TensorOps predict = predict_of(model);
    const double of_pair = further * pair_flops(predict) * batch;
    around += further * flops_of(forward_ops(predict, all)).value();
    masked += of_pair * pairs;
    unmasked += of_pair * all_pairs;
    add_sparse(predict, further);
  }
  return {.causal_halved = FlopCount(passes * (around + masked) + sparse),
          .full = FlopCount(passes * (around + unmasked) + sparse_unmasked),
          .model_6n =
              FlopCount(passes * 2 * static_cast<double>(model.active_parameters()) * seq * batch)};
}

}  // namespace spp
