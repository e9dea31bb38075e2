#include "step/common.hpp"

#include "base/error.hpp"
#include "step/memory.hpp"
#include "transformer/activations.hpp"

#include <algorithm>

namespace spp {
namespace {

/// Bytes of a number in that format, with its part of the scales of a block of 32 or 16, over the
/// two of 16 bits; those of 128 are too few to count.
double stored(GemmFormat format) {
  switch (format) {
    case GemmFormat::plain:
      return 1;
    case GemmFormat::fp8:
    case GemmFormat::fp8_block:
      return 1.0 / 2;
    case GemmFormat::mxfp8:
      return (1 + 1.0 / 32) / 2;
    case GemmFormat::nvfp4:
      return (0.5 + 1.0 / 16) / 2;
  }
  throw InternalError("no such GemmFormat");
}

/// Tokens in front that a ring deals out to one of its ranks; Ulysses ranks have heads of all.
std::int64_t cached_of_ring(const StepRequest& request, const StepPlan& plan) {
  const std::int64_t ring = plan.attention.ring;
  return (request.cached + ring - 1) / ring;
}

/// The same, counted with all heads of a tensor rank.
std::int64_t cached_by_heads(const StepRequest& request, const StepPlan& plan) {
  const std::int64_t heads = std::max(1, request.model->kv_heads / plan.tensor);
  const std::int64_t ulysses = plan.attention.ulysses;
  const std::int64_t own = (heads + ulysses - 1) / ulysses;
  return (cached_of_ring(request, plan) * own + heads - 1) / heads;
}

}  // namespace

double most_imbalance(const Experts& experts, int ranks) {
  // A token goes to each expert once, at most.
  const double of_rank = static_cast<double>(experts.count) / ranks;
  return std::max(1.0, ranks * std::min(1.0, of_rank / std::max(1, experts.per_token)));
}

LocalTokens local_tokens(const StepRequest& request, const StepPlan& plan, std::int64_t seq) {
  const std::int64_t tokens = seq / plan.sequence();
  const std::int64_t text = request.model->diffusion.joint_tokens;
  return {.tokens = tokens,
          .batch = plan.micro_batch,
          .dtype = request.dtype,
          .split = plan.split(),
          .joint = std::min(tokens, (text + plan.sequence() - 1) / plan.sequence()),
          .cached = cached_by_heads(request, plan),
          .routed_excess =
              std::min(request.imbalance, most_imbalance(request.model->experts, plan.expert)),
          .stored = request.practice->narrow_kept.value > 0 ? stored(plan.format) : 1,
          .wide_attention = plan.wide_attention,
          .gathered_kept = request.practice->gathered_kept.value > 0};
}

StepCommon::StepCommon(const StepRequest& request)
    : request_(request),
      layers_{ModelLayers(*request.model, request.kind, Dispatcher::all_to_all),
              ModelLayers(*request.model, request.kind, Dispatcher::all_gather)},
      groups_(*request.cluster) {}

const std::vector<Stage>& StepCommon::stages(const StepPlan& plan) {
  const auto [at, fresh] = stages_.try_emplace({plan.pipeline, plan.virtual_stages});
  if (fresh) {
    at->second = stages_of(*request_.model, plan, request_.practice->even_stages.value > 0,
                           layers(plan.to_experts).predictions);
  }
  return at->second;
}

namespace {

/// What a backward computes once more.
PassAround again(const TensorOps& ops, const LocalTokens& local, const Recomputation& recompute,
                 const PassCosts& costs) {
  PassAround pass =
      pass_around(recomputed_ops(ops, local, recompute, replay_of(*costs.practice)), costs);
  pass.time.weight_gradients = 0;
  return pass;
}

}  // namespace

PassCosts StepCommon::pass_costs(const StepPlan& plan, const StepLinks& links,
                                 Seconds tensor_host) const {
  const StepPractice& practice = *request_.practice;
  const bool trains = request_.kind == StepKind::train;
  return {.kernels = request_.kernels,
          .practice = &practice,
          .links = &links,
          .dtype = request_.dtype,
          .format = plan.format,
          .tensor_host = tensor_host,
          .experts_per_token = std::max(1, request_.model->experts.per_token),
          .exchange = (trains ? practice.host_exchange : practice.served_exchange).value,
          .counts = trains ? counts_host(practice, *request_.cluster) : Seconds(0),
          // Once, with or without ranks that have other experts (preprocess of Megatron-Core's
          // MoEAlltoAllTokenDispatcher: ep_size > 1 or tp_size > 1).
          .counted = plan.expert > 1 ? StepAxis::expert : StepAxis::expert_tensor,
          .crowd = request_.cluster->ranks_per_core()};
}

/// `measure`: of a list, and whether it is a layer.
template <class T, class Measure>
ByLayer<T> StepCommon::by_layer(Dispatcher to_experts, const Measure& measure) const {
  ByLayer<T> all;
  const ModelLayers& layers = layers_[static_cast<std::size_t>(to_experts)];
  for (const LayerRun& run : layers.runs) {
    all.kinds.push_back(measure(run.ops, true));
  }
  all.first = measure(layers.first, false);
  all.last = measure(layers.last, false);
  if (layers.predictions > 0) {
    all.predict = measure(layers.predict, true);
  }
  return all;
}

const ByLayer<LayerPasses>& StepCommon::passes(const StepPlan& plan, const LocalTokens& local,
                                               const StepLinks& links) {
  const Seconds host = tensor_host(*request_.practice, links, plan.tensor);
  const auto [at, fresh] = passes_.try_emplace({.local = local,
                                                .order = plan.attention.rank_order,
                                                .to_experts = plan.to_experts,
                                                .recompute = plan.recompute,
                                                .format = plan.format,
                                                .tensor_host = host.count()});
  if (!fresh) {
    return at->second;
  }
  const PassCosts costs = pass_costs(plan, links, host);
  const bool trains = request_.kind == StepKind::train;
  if (plan.recompute == Recomputation{}) {
    at->second = by_layer<LayerPasses>(plan.to_experts, [&](const TensorOps& ops, bool /*layer*/) {
      LayerPasses passes{.forward = pass_around(forward_ops(ops, local), costs)};
      if (trains) {
        passes.again = again(ops, local, {}, costs);
        passes.backward = pass_around(backward_ops(ops, local), costs);
      }
      return passes;
    });
    return at->second;
  }
  StepPlan plain = plan;
  plain.recompute = {};
  at->second = passes(plain, local, links);
  if (trains) {  // layers differ in what they compute once more, the ends compute nothing
    const ModelLayers& layers = layers_[static_cast<std::size_t>(plan.to_experts)];
    for (std::size_t k = 0; k < layers.runs.size(); ++k) {
      at->second.kinds[k].again = again(layers.runs[k].ops, local, plan.recompute, costs);
    }
    if (layers.predictions > 0) {
      at->second.predict.again = again(layers.predict, local, plan.recompute, costs);
    }
  }
  return at->second;
}

const ByLayer<LayerBytes>& StepCommon::bytes(const StepPlan& plan, const LocalTokens& local) {
  const std::int64_t cached = cached_of_ring(request_, plan);
  const auto [at, fresh] = bytes_.try_emplace({.local = local,
                                               .to_experts = plan.to_experts,
                                               .recompute = plan.recompute,
                                               .cached = cached});
  if (fresh) {
    const StepPractice& practice = *request_.practice;
    at->second = by_layer<LayerBytes>(plan.to_experts, [&](const TensorOps& ops, bool layer) {
      const ActivationBytes bytes =
          activation_bytes(ops, local, layer ? plan.recompute : Recomputation{}, practice);
      return LayerBytes{.kept = bytes.kept,
                        .cut = cut_bytes(ops, local).as_double(),
                        .working = bytes.working,
                        .forward = (forward_bytes(ops, local, practice.position_working.value) +
                                    projected_bytes(ops, local))
                                       .as_double(),
                        .cached = cached_bytes(ops, local, cached).as_double(),
                        .sums = scattered_sums(ops, local).as_double()};
    });
  }
  return at->second;
}

const ByLayer<HeldWeights>& StepCommon::weights(const StepPlan& plan) {
  const auto [at, fresh] = weights_.try_emplace(plan.split());
  if (fresh) {
    at->second = by_layer<HeldWeights>(plan.to_experts, [&](const TensorOps& ops, bool /*layer*/) {
      return held_weights(ops, plan.split());
    });
  }
  return at->second;
}

}  // namespace spp
