// One class in one file: a bound of time and one of memory are read off the same layers and stages.
#include "planner/step_bound.hpp"

#include "planner/evaluator.hpp"
#include "step/links.hpp"
#include "step/stages.hpp"

#include <algorithm>

namespace spp {
namespace {

std::size_t virtual_stage(const StepPoint& point, int rank, int chunk) {
  const int stage = chunk * point.pipeline + rank;
  return static_cast<std::size_t>(stage);
}

/// With weights cut, over as many ranks as is asked for.
StepPlan cut(StepPlan plan) {
  plan.zero = std::max(1, plan.zero);
  return plan;
}

}  // namespace

StepBounds::StepBounds(const Request& request, StepEvaluator& evaluator)
    : request_(request),
      model_(*request.model),
      evaluator_(evaluator),
      common_(evaluator.common()),
      train_(request.phase == StepPhase::train) {
  for (const LayerRun& run : common_.layers({}).runs) {
    own_mask_ += has_own_mask(run) ? run.layers : 0;
  }
}

StepBounds::Around StepBounds::around(const StepPoint& point, const StepPlan& plan) {
  const LayersCost& layers = layers_cost(point, plan);
  return {.layers = &layers, .end = end_of_step(point, plan, layers)};
}

void StepBounds::fill(StepPoint& point, const StepPlan& plan, const Around& around) {
  bound_time(point, plan, *around.layers, around.end);
  point.memory = bytes(point, plan, *around.layers);
}

bool StepBounds::has_own_mask(const LayerRun& run) const {
  return run.attends && run.mask == model_.mask;
}

StepBounds::EndOfStep StepBounds::end_of_step(const StepPoint& point, const StepPlan& plan,
                                              const LayersCost& cost) {
  if (!train_) {
    return {};
  }
  const StepPractice& practice = evaluator_.practice();
  const WeightRates& rates = weight_rates(plan);
  const std::vector<StageKinds>& stages = stage_kinds(plan);
  const std::vector<int> zeros = zero_stages(request_, point);
  const int shards = cut(plan).shards();
  EndOfStep end;
  for (int rank = 0; rank < point.pipeline; ++rank) {
    const HeldWeights held = held_by(point, cost, stages, rank);
    const std::int64_t part = held.dense / shards + held.experts / plan.expert_replicas();
    double reduction = std::numeric_limits<double>::infinity();
    double update = std::numeric_limits<double>::infinity();
    for (const int zero : zeros) {
      const bool sharded = zero >= 2 && point.pipeline == 1;
      const std::int64_t updated = zero >= 1 ? part : held.all();
      const Seconds takes = moves_optimizer(plan.offload)
                                ? time_on_host(*request_.cluster, plan.world(), real_of(updated),
                                               practice.host_update.value)
                                : update_time(evaluator_.kernels(), practice, updated,
                                              sharded ? updated : held.all());
      update = std::min(update, takes.count());
      const double gradients = practice.gradient_bytes.value;
      const ParameterBytes parameters =
          parameter_bytes(held, plan.format, StepKind::train, practice);
      const double gather = rates.gather.of(parameters.dense, parameters.experts);
      const double dense = real_of(held.dense) * gradients;
      const double experts = real_of(held.experts) * gradients;
      const double scatter = rates.scatter.of(dense, experts);
      const double copies = rates.copies.of(dense, 0);
      const double reduce = zero == 0   ? rates.all_reduce.of(dense, experts)
                            : zero == 1 ? scatter + copies
                                        : std::max(scatter, copies);
      if (sharded && zero == 3) {
        end.sharded = real_of(point.micro_batches) * (gather + reduce);
      } else {
        const double behind = zero >= 1 ? (1 - practice.parameters_hidden.value) * gather : 0;
        reduction = std::min(reduction, reduce + behind);
      }
    }
    end.reduction.push_back(reduction);
    end.update = std::max(end.update, update);
  }
  end.update += practice.host_step.value.count();
  return end;
}

const StepBounds::WeightRates& StepBounds::weight_rates(const StepPlan& plan) {
  const auto [at, fresh] = weight_rates_.try_emplace(
      {plan.tensor, plan.sequence(), plan.data, plan.pipeline, plan.expert, plan.expert_tensor});
  if (fresh) {
    const auto placed = [&](const StepPlan& of) {
      std::vector<StepLinks> all;
      for (const StepPlan& p : in_open_orders(of)) {
        all.push_back(common_.links(p));
      }
      return all;
    };
    const auto least = [](const std::vector<StepLinks>& all, StepAxis axis, CommKind kind) {
      constexpr std::int64_t large = std::int64_t{1} << 40;
      double rate = std::numeric_limits<double>::infinity();
      for (const StepLinks& links : all) {
        rate = std::min(rate, links.collective(axis, kind, Bytes(large)).count() / large);
      }
      return rate;
    };
    const auto rate = [&](const std::vector<StepLinks>& all, CommKind kind) {
      return MovedRate{.dense = least(all, StepAxis::weights, kind),
                       .experts = least(all, StepAxis::expert_weights, kind)};
    };
    const StepPlan in_shards = cut(plan);
    const std::vector<StepLinks> whole = placed(plan);
    const std::vector<StepLinks> parts = placed(in_shards);
    at->second = {.all_reduce = rate(whole, CommKind::all_reduce),
                  .scatter = rate(parts, CommKind::reduce_scatter),
                  .gather = rate(parts, CommKind::all_gather),
                  .copies = {.dense = least(parts, StepAxis::replicas, CommKind::all_reduce) /
                                      in_shards.shards()}};
  }
  return at->second;
}

std::vector<StepPlan> StepBounds::in_open_orders(const StepPlan& plan) const {
  std::vector<StepPlan> placed{plan};
  if (leaves_rank_order_open(request_, plan.sequence())) {
    placed.push_back(plan);
    placed.back().attention.rank_order = RankOrder::cyclic;
  }
  return placed;
}

void StepBounds::bound_time(StepPoint& point, const StepPlan& plan, const LayersCost& cost,
                            const EndOfStep& end) {
  const auto r = static_cast<std::size_t>(point.recompute);
  const double micro_batches = real_of(point.micro_batches);
  const double waits = pass_of_chunk(point, cost);
  // A layout by hand may leave its last two stages without a layer.
  const int without = model_.predict_layers > 0 ? 2 : 0;
  const double host = evaluator_.practice().host_micro_batch.value.count() * (train_ ? 1 : 0.5) *
                      micro_batches * point.virtual_stages;
  const double all = micro_batches / point.pipeline;
  point.mean = {.around = all * (cost.forward + (train_ ? cost.backward.at(r) : 0)) +
                          std::max(0, point.pipeline - 1 - without) * waits + host + end.update,
                .calls = all * real_of(own_mask_)};
  point.most = point.reduced = {};
  point.issued = 0;
  point.sharded = end.sharded;
  const std::vector<StageKinds>& stages = stage_kinds(plan);
  const double hidden = train_ ? evaluator_.practice().gradients_hidden.value : 0;
  double longest = -1, last = -1;
  for (int rank = 0; rank < point.pipeline; ++rank) {
    const PassesOfRank once = passes_of(point, cost, stages, rank);
    const double before = std::max(0, rank - without) * waits + host + end.update;
    RankWork work{.around = before + micro_batches * (once.forward + once.backward),
                  .calls = micro_batches * once.calls};
    point.issued = std::max(point.issued, before + micro_batches * once.issued);
    if (const double takes = point.seconds_of(work, point.attention); takes > longest) {
      longest = takes;
      point.most = work;
    }
    if (!train_) {
      continue;
    }
    // Gradients move beside the last micro-batch's backward, in orders that put others there
    // beside all of them.
    const double beside = hidden * (point.order->ends_with_backward ? 1 : micro_batches);
    work.around += end.reduction[static_cast<std::size_t>(rank)] - beside * once.backward;
    work.calls -= beside * once.calls;
    work.forwards += beside * once.calls;
    if (const double takes = point.seconds_of(work, point.attention); takes > last) {
      last = takes;
      point.reduced = work;
    }
  }
}

StepBounds::PassesOfRank StepBounds::passes_of(const StepPoint& point, const LayersCost& cost,
                                               const std::vector<StageKinds>& stages,
                                               int rank) const {
  const auto r = static_cast<std::size_t>(point.recompute);
  PassesOfRank all;
  const auto add = [&](double n, const LayerCost& kind) {
    all.forward += n * kind.forward;
    all.backward += train_ ? n * kind.backward.at(r) : 0;
    all.issued += n * (kind.forward_issued + (train_ ? kind.backward_issued.at(r) : 0));
  };
  for (int chunk = 0; chunk < point.virtual_stages; ++chunk) {
    const StageKinds& stage = stages[virtual_stage(point, rank, chunk)];
    for (std::size_t k = 0; k < stage.layers.size(); ++k) {
      add(real_of(stage.layers[k]), cost.kinds[k]);
    }
    all.calls += real_of(stage.own_mask);
    add(stage.embeds ? 1 : 0, cost.first);
    add(stage.ends ? 1 : 0, cost.last);
  }
  return all;
}

double StepBounds::pass_of_chunk(const StepPoint& point, const LayersCost& cost) const {
  const double layers = std::max<double>(
      0, real_of((model_.layers - 1) / (std::int64_t{point.pipeline} * point.virtual_stages)));
  return layers * (point.order->cuts_backward || !train_
                       ? cost.layer_forward
                       : cost.layer_both.at(static_cast<std::size_t>(point.recompute)));
}

Bytes StepBounds::bytes(const StepPoint& point, const StepPlan& plan, const LayersCost& cost) {
  const std::vector<StageKinds>& stages = stage_kinds(plan);
  const int zero = zero_stages(request_, point).back();
  double most = 0;
  for (int rank = 0; rank < point.pipeline; ++rank) {
    const RankBytes bytes = bytes_of_rank(point, cost, stages, rank);
    most = std::max(most, states_of(point, plan, zero, bytes.held) + bytes.rest);
  }
  constexpr double believed = 1e18;
  return Bytes(static_cast<std::int64_t>(std::min(believed, most)));
}

HeldWeights StepBounds::held_by(const StepPoint& point, const LayersCost& cost,
                                const std::vector<StageKinds>& stages, int rank) {
  HeldWeights held;
  for (int chunk = 0; chunk < point.virtual_stages; ++chunk) {
    const StageKinds& stage = stages[virtual_stage(point, rank, chunk)];
    for (std::size_t k = 0; k < stage.layers.size(); ++k) {
      held += stage.layers[k] * cost.kinds[k].weights;
    }
    held += stage.embeds ? cost.first.weights : HeldWeights{};
    held += stage.ends ? cost.last.weights : HeldWeights{};
  }
  return held;
}

StepBounds::RankBytes StepBounds::bytes_of_rank(const StepPoint& point, const LayersCost& cost,
                                                const std::vector<StageKinds>& stages,
                                                int rank) const {
  const auto r = static_cast<std::size_t>(point.recompute);
  const HeldWeights held = held_by(point, cost, stages, rank);
  double kept = std::numeric_limits<double>::infinity();  // of the chunk that keeps least
  double working = 0, cached = 0;
  bool ends = false;
  for (int chunk = 0; chunk < point.virtual_stages; ++chunk) {
    const StageKinds& stage = stages[virtual_stage(point, rank, chunk)];
    double own = 0;
    for (std::size_t k = 0; k < stage.layers.size(); ++k) {
      const double n = real_of(stage.layers[k]);
      const LayerCost& kind = cost.kinds[k];
      own += n * kind.kept.at(r);
      cached += n * kind.cached;
      working = n > 0 ? std::max(working, kind.working.at(r)) : working;
    }
    kept = std::min(kept, own);
    ends = ends || stage.ends;
  }
  if (!train_) {
    return {.held = held, .rest = real_of(point.micro_batches) * cached};
  }
  const StepPractice& practice = evaluator_.practice();
  const double rows = real_of(request_.problem.seq / point.sequence * point.micro_batch);
  const double logits = ends ? rows * real_of(model_.vocab) / point.tensor *
                                   practice.logit_bytes.value * practice.logit_part.value
                             : 0;
  const double on_their_way = moves_activations(request_.step.offload.value_or(Offload::none))
                                  ? 0
                                  : point.virtual_stages * kept * in_flight(point, rank, ends);
  return {.held = held, .rest = on_their_way + working + logits};
}

double StepBounds::in_flight(const StepPoint& point, int rank, bool ends) const {
  if (const double room = evaluator_.practice().stage_buffers.value;
      room > 0 && point.pipeline > 1 && !ends) {
    return room * point.pipeline;
  }
  const PipelineShape shape{.stages = point.pipeline,
                            .chunks = point.virtual_stages,
                            .micro_batches = static_cast<int>(point.micro_batches)};
  return point.order->in_flight(shape, rank);
}

double StepBounds::states_of(const StepPoint& point, const StepPlan& plan, int zero,
                             const HeldWeights& held) const {
  const StepPractice& practice = evaluator_.practice();
  const double part =
      real_of(held.dense) / plan.shards() + real_of(held.experts) / plan.expert_replicas();
  const double whole = real_of(held.all());
  const bool cut = zero >= 2 && point.pipeline == 1;
  const ParameterBytes parameters =
      parameter_bytes(held, plan.format, kind_of(request_.phase), practice);
  double all = zero == 3 && point.pipeline == 1
                   ? parameters.dense / plan.shards() + parameters.experts / plan.expert_replicas()
                   : parameters.all();
  if (train_) {
    const bool on_host = moves_optimizer(plan.offload);
    all += cut && on_host ? 0 : (cut ? part : whole) * practice.state_gradient.value;
    all += on_host ? 0 : (zero >= 1 ? part : whole) * practice.state_optimizer.value;
  }
  return all;
}

const std::vector<StepBounds::StageKinds>& StepBounds::stage_kinds(const StepPlan& plan) {
  const auto [at, fresh] = stage_kinds_.try_emplace({plan.pipeline, plan.virtual_stages});
  if (fresh) {
    const ModelLayers& layers = common_.layers(plan.to_experts);
    for (const Stage& stage : common_.stages(plan)) {
      StageKinds kinds{.layers = std::vector<std::int64_t>(layers.runs.size()),
                       .embeds = stage.embeds,
                       .ends = stage.ends};
      for (std::int64_t i = stage.first; i < stage.first + stage.layers; ++i) {
        const std::size_t kind = layers.kind_of[static_cast<std::size_t>(i)];
        ++kinds.layers[kind];
        kinds.own_mask += has_own_mask(layers.runs[kind]) ? 1 : 0;
      }
      at->second.push_back(std::move(kinds));
    }
  }
  return at->second;
}

const StepBounds::LayersCost& StepBounds::layers_cost(const StepPoint& point,
                                                      const StepPlan& plan) {
  const auto [at, fresh] =
      layers_.try_emplace({point.tensor, point.sequence, point.expert, point.expert_tensor,
                           point.to_experts, point.micro_batch});
  if (fresh) {
    at->second = worked_out(plan);
  }
  return at->second;
}

StepBounds::LayersCost StepBounds::worked_out(StepPlan plan) {
  plan.data = plan.pipeline = plan.virtual_stages = 1;  // a layer does not know of them
  const LocalTokens local = local_tokens(common_.request(), plan, request_.problem.seq);
  const ModelLayers& layers = common_.layers(plan.to_experts);
  const ByLayer<HeldWeights>& weights = common_.weights(plan);
  LayersCost all;
  all.kinds.assign(layers.runs.size(), unbounded());
  all.first = all.last = unbounded();
  for (StepPlan p : in_open_orders(plan)) {
    const StepLinks links = common_.links(p);
    for (std::size_t r = 0; r < (train_ ? recomputations.size() : 1); ++r) {
      p.recompute = recomputation_of(request_, recomputations.at(r));
      const ByLayer<LayerPasses>& passes = common_.passes(p, local, links);
      const ByLayer<LayerBytes>& bytes = common_.bytes(p, local);
      for (std::size_t k = 0; k < all.kinds.size(); ++k) {
        add_passes(all.kinds[k], r, passes.kinds[k], bytes.kinds[k]);
        all.kinds[k].weights = weights.kinds[k];
      }
      add_passes(all.first, r, passes.first, bytes.first);
      add_passes(all.last, r, passes.last, bytes.last);
    }
  }
  all.first.weights = weights.first;
  all.last.weights = weights.last;
  all.layer_forward = std::numeric_limits<double>::infinity();
  all.layer_both.fill(std::numeric_limits<double>::infinity());
  const auto add = [&](const LayerCost& cost, std::int64_t layers_of_it) {
    const double n = real_of(layers_of_it);
    all.forward += n * cost.forward;
    all.standing += n * cost.standing;
    all.host += n * cost.host;
    for (std::size_t r = 0; r < recomputations.size(); ++r) {
      all.backward.at(r) += n * cost.backward.at(r);
    }
  };
  for (std::size_t k = 0; k < all.kinds.size(); ++k) {
    const LayerCost& kind = all.kinds[k];
    add(kind, layers.runs[k].layers);
    all.layer_forward = std::min(all.layer_forward, kind.forward);
    for (std::size_t r = 0; r < recomputations.size(); ++r) {
      all.layer_both.at(r) = std::min(all.layer_both.at(r), kind.forward + kind.backward.at(r));
    }
  }
  add(all.first, 1);
  add(all.last, 1);
  return all;
}

StepBounds::LayerCost StepBounds::unbounded() const {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  LayerCost cost{.forward = infinite, .forward_issued = infinite};
  if (train_) {
    cost.backward.fill(infinite);
    cost.backward_issued.fill(infinite);
  }
  return cost;
}

void StepBounds::add_passes(LayerCost& cost, std::size_t r, const LayerPasses& passes,
                            const LayerBytes& bytes) const {
  const auto seconds = [](const PassAround& pass) {  // the host's may hide behind attention
    return pass.time.total() - pass.time.parts[StepPart::launch];
  };
  const auto issued = [&](const PassAround& pass) { return std::max(seconds(pass), pass.host); };
  const auto lower = [](double& bound, double to) { bound = std::min(bound, to); };
  lower(cost.forward, seconds(passes.forward));
  lower(cost.forward_issued, issued(passes.forward));
  double standing = passes.forward.time.total();
  double host = passes.forward.host;
  if (train_) {
    lower(cost.backward.at(r), seconds(passes.again) + seconds(passes.backward));
    lower(cost.backward_issued.at(r), issued(passes.again) + issued(passes.backward));
    standing += passes.backward.time.total();
    host += passes.backward.host;
  }
  cost.standing = std::max(cost.standing, standing);
  cost.host = std::max(cost.host, host);
  cost.kept.at(r) = bytes.kept;
  cost.working.at(r) = bytes.working;
  cost.cached = bytes.cached;
}

}  // namespace spp
