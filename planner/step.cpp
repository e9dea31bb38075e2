#include "planner/step.hpp"

#include "planner/evaluator.hpp"
#include "sim/thinned.hpp"

#include <algorithm>
#include <cmath>

namespace spp {
namespace {

const AttentionKernelSpec& kernel_of(const Request& request) {
  const GenerationSpec& generation = request.cluster->machine().gpu.generation;
  return request.stack != nullptr ? attention_of(*request.stack, generation, request.year)
                                  : generation.attention;
}

AttentionCost::Pass pass_of(const std::optional<sim::Simulation>& simulation) {
  if (!simulation) {
    return {};
  }
  const sim::Breakdown& b = simulation->breakdown;
  return {.kernels = b.attention,
          .small = b.other_kernels,
          .exposed = b.exposed,
          .launch = b.launch_bound,
          .hidden = b.hidden};
}

/// All that an attention call depends on.
std::string key_of(const StepPlan& plan, const Mask& mask) {
  return fmt::format("{}|{}|{}|{}|{}", short_name(plan.attention), to_string(plan.attention.order),
                     plan.tensor, plan.micro_batch, to_string(mask));
}

}  // namespace

Problem attention_problem(const Request& request, const StepPlan& plan, const Mask& mask) {
  Problem problem = request.problem;
  problem.batch = plan.micro_batch;
  problem.q_heads = std::max(1, problem.q_heads / plan.tensor);
  problem.kv_heads = std::max(1, problem.kv_heads / plan.tensor);
  problem.mask = mask;
  if (const Latent& latent = request.model->latent; latent.kv_rank > 0) {
    // Keys are wider than values: a head as wide as both on average computes and moves as much.
    problem.head_dim = (latent.nope_dim + latent.rope_dim + latent.value_dim) / 2;
  }
  return problem;
}

StepEvaluator::StepEvaluator(const Request& request)
    : request_(request),
      practice_(request.stack != nullptr ? request.stack->step : default_practice()),
      kernels_(request.cluster->machine().gpu, kernel_of(request)) {}

StepEvaluator::Call StepEvaluator::simulate(const StepPlan& plan, const Mask& mask) const {
  const sim::Cluster cluster = sim::thinned(*request_.cluster, plan.tensor, plan.sequence());
  Request call = request_;
  call.problem = attention_problem(request_, plan, mask);
  call.model.reset();
  call.phase = request_.phase == StepPhase::train ? StepPhase::forward_backward : StepPhase::forward;
  call.cluster = &cluster;
  call.gpus = plan.sequence();
  call.framework = nullptr;
  const Evaluation e = spp::evaluate(call, plan.attention);
  const Candidate& c = e.candidate;
  // Q, K, V (backward: the output and its gradient, too) are counted as activations.
  const Problem whole = padded(call.problem, plan.attention);
  const std::int64_t heads =
      (call.phase == StepPhase::forward ? 1 : 3) * std::int64_t{whole.q_heads} +
      2 * std::int64_t{whole.kv_heads};
  const Bytes kept(whole.seq / plan.sequence() * whole.batch * whole.head_dim *
                   size_of(whole.dtype) * heads);
  return {.cost = {.forward = pass_of(e.forward),
                   .backward = pass_of(e.backward),
                   .buffers =
                       std::max(Bytes(0), c.predicted.memory.attention_buffers - kept)},
          .spread = (c.predicted.high - c.predicted.low).count() / 2 / c.predicted.step.count(),
          .lowering = c.lowering};
}

const StepEvaluator::Call& StepEvaluator::attention(const StepPlan& plan, const Mask& mask) {
  const std::string key = key_of(plan, mask);
  const auto at = calls_.find(key);
  return at != calls_.end() ? at->second : calls_.emplace(key, simulate(plan, mask)).first->second;
}

StepEvaluation StepEvaluator::evaluate(const StepPlan& plan) {
  const Model& model = *request_.model;
  if (const StepRule rule = why_not(model, plan, request_.problem.seq); !rule.legal()) {
    throw InputError("plan", fmt::format("{} (rule: {})", rule.detail, rule.rule));
  }
  if (plan.world() > request_.cluster->gpus()) {
    throw InputError("plan", fmt::format("{} ranks on {} GPUs", plan.world(),
                                         request_.cluster->gpus()));
  }
  StepEvaluation e{.plan = plan};
  std::vector<AttentionCost> costs;
  double spread = 0;
  for (const LayerRun& run : layer_runs(model)) {
    // What the request masks, unless the layer has a window of its own.
    const Call& call = attention(
        plan, run.mask.kind == MaskKind::window ? run.mask : request_.problem.mask);
    costs.push_back(call.cost);
    spread = std::max(spread, call.spread);
    for (const std::string& word : call.lowering) {
      if (std::ranges::find(e.lowering, word) == e.lowering.end()) {
        e.lowering.push_back(word);
      }
    }
  }
  const StepRequest step{
      .model = &model,
      .cluster = request_.cluster,
      .kernels = &kernels_,
      .practice = &practice_,
      .seq = padded(attention_problem(request_, plan, request_.problem.mask), plan.attention).seq,
      .dtype = request_.problem.dtype,
      .kind = request_.phase == StepPhase::train ? StepKind::train : StepKind::prefill};
  e.cost = step_cost(step, plan, costs);
  e.memory = step_memory(step, plan, costs);
  e.fits = fullest(e.memory).tensors() <= request_.memory;

  const GenerationSpec& generation = kernels_.gpu().generation;
  const StepSeconds& parts = e.cost.parts;
  const auto part = [&](StepPart p, double relative) { return std::pow(parts[p] * relative, 2); };
  constexpr double transfers = 0.2;  // of collectives among others
  double variance = part(StepPart::attention, spread) +
                    part(StepPart::gemm, generation.gemm_efficiency.spread) +
                    part(StepPart::elementwise, practice_.elementwise.spread) +
                    part(StepPart::optimizer, practice_.optimizer.spread) +
                    part(StepPart::launch, practice_.host_kernel.spread);
  for (const StepPart p : {StepPart::cp, StepPart::tp, StepPart::ep, StepPart::dp, StepPart::pp}) {
    variance += part(p, transfers);
  }
  if (request_.stack != nullptr && request_.stack->unexplained) {
    variance += std::pow(parts.total() * request_.stack->unexplained->value, 2);
  }
  const Seconds off(std::sqrt(variance));
  e.low = std::max(Seconds(0), e.step() - off);
  e.high = e.step() + off;
  return e;
}

}  // namespace spp
