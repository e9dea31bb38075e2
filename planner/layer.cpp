#include "planner/layer.hpp"

#include "base/error.hpp"
#include "planner/evaluator.hpp"
#include "planner/layer_costs.hpp"
#include "sim/demand.hpp"
#include "sim/rank_window.hpp"
#include "step/stages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spp {
namespace {

/// Of a step's parameters, as large models are trained (Llama 3, arXiv:2407.21783, table 3).
constexpr double update_rate = 8e-5;

void expect_scheduled(const Request& request, const StepPlan& plan, std::string_view what,
                      const std::string& reason) {
  if (!reason.empty()) {
    throw InputError("--scope", fmt::format("{} of {} cannot be scheduled: {}", what,
                                            request.model->name, reason));
  }
  if (plan.tensor > 1 && !plan.tensor_sequence) {
    throw InputError("--scope",
                     "layers are scheduled with Megatron's sequence parallelism between "
                     "tensor ranks");
  }
}

/// What of a step's plan no schedule holds yet; "" if it holds all.
std::string why_not_scheduled(const StepPlan& plan) {
  if (plan.expert_tensor > 1) {
    return "tensor parallelism in experts";
  }
  if (plan.offload != Offload::none) {
    return "offload";
  }
  return "";
}

/// Units of the step's graph on each virtual stage: embedding, layers, loss head.
std::vector<int> units_of(const Model& model, const StepPlan& plan, const StepPractice& practice) {
  std::vector<int> units;
  for (const Stage& stage : stages_of(model, plan, practice.even_stages.value > 0, 0)) {
    units.push_back(static_cast<int>(stage.layers) + (stage.embeds ? 1 : 0) + (stage.ends ? 1 : 0));
  }
  return units;
}

/// As the graph's attentions are: by their masks, with sinks or without.
void attend_as(Problem& problem, const Graph& graph, const std::vector<LayerMask>& masks,
               const Request& request) {
  problem.sinks = GraphIndex(graph).sink_of(0) >= 0;
  for (std::size_t i = 0; i < masks.size(); ++i) {
    Mask& mask = i == 0 ? problem.mask : problem.other_masks.emplace_back();
    mask = mask_of(masks[i], request);
  }
}

}  // namespace

std::string LayerQuestion::subject() const {
  return step ? fmt::format("a step of {} layers", layers) : "one layer";
}

LayerQuestion step_question(const Request& request, const StepPlan& plan) {
  if (request.phase != StepPhase::train) {
    throw InputError("--scope", "a step is one of training: give --phase train");
  }
  const std::string left_out = why_not_scheduled(plan);
  if (!left_out.empty()) {
    throw InputError("--scope", fmt::format("no schedule of a step holds {} yet", left_out));
  }
  const std::vector<LayerRun> runs = layer_runs(*request.model);
  const StepPractice& practice = practice_of(request);
  const Pipeline& order = plan.pipeline_order();
  LayerQuestion question{
      .step = true,
      .phases = {Phase::step},
      .graph = step_graph(*request.model, plan.tensor, update_rate, plan.expert),
      .problem = request.problem,
      .plan = {.attention = plan.attention,
               .tensor = plan.tensor,
               .zero = plan.zero,
               .replicas = plan.data,
               .zero_group = plan.zero > 0 ? plan.zero_group : 0,
               .pipeline = plan.pipeline_shape(),
               .recompute = plan.recompute,
               .replay = replay_of(practice),
               .gathered_kept = practice.gathered_kept.value > 0,
               .expert = plan.expert,
               .to_experts = plan.to_experts,
               .order = std::string(order.name),
               .units = units_of(*request.model, plan, practice),
               .messages_overlap = order.overlaps && practice.messages_hidden.value > 0},
      .build = request.build,
      .notes = {},
      .layers = request.model->layers};
  const bool selective = plan.recompute.kind == Recompute::selective;
  if (selective && plan.recompute.modules.contains(RecomputeModule::mla_up)) {
    question.notes.emplace_back(
        "the schedule keeps what mla_up drops: q, k and v, where attention's backward reads them");
  }
  const ModuleSet policies{RecomputeModule::every_second_gemm, RecomputeModule::all_but_attention};
  if (selective && !plan.recompute.modules.common(policies).empty()) {
    question.notes.emplace_back(
        "the schedule keeps what every_second_gemm and all_but_attention drop: of a layer it "
        "computes modules again, not what a policy chooses");
  }
  if (request.model->predict_layers > 0) {
    question.notes.emplace_back(
        "the schedule leaves out the layers that predict further tokens, which plans count");
  }
  if (plan.format != GemmFormat::plain) {
    question.notes.push_back(
        fmt::format("the schedule multiplies in {}: --gemm-format {} is left out",
                    to_string(request.problem.dtype), to_string(plan.format)));
  }
  if (!question.graph.graph.routing.empty()) {
    question.notes.emplace_back("every expert gets as many tokens: imbalance is left out");
  }
  attend_as(question.problem, question.graph.graph, question.graph.masks, request);
  question.problem.batch = plan.micro_batch;
  expect_scheduled(request, plan, "a step",
                   why_not_step(question.graph, question.problem, question.plan, question.build));
  return question;
}

LayerQuestion layer_question(const Request& request, const StepPlan& plan) {
  const std::vector<LayerRun> runs = layer_runs(*request.model);
  const LayerRun& first = runs.front();
  const bool trains = request.phase == StepPhase::train;
  LayerQuestion question{
      .phases = trains ? std::vector{Phase::forward, Phase::backward} : std::vector{Phase::forward},
      .graph = layer_graph(first.ops, plan.tensor),
      .problem = request.problem,
      .plan = {.attention = plan.attention, .tensor = plan.tensor},
      .build = request.build,
      .notes = {}};
  if (runs.size() > 1) {
    question.notes.push_back(
        fmt::format("{} has {} kinds of layers: this is the first, of which it "
                    "has {} of {}",
                    request.model->name, runs.size(), first.layers, request.model->layers));
  }
  if (request.problem.cached > 0 && request.model->latent.kv_rank > 0) {
    question.notes.emplace_back(
        "the schedule is given heads of the cached tokens, which plans project up from latents");
  }
  attend_as(question.problem, question.graph.graph, {first.mask}, request);
  question.problem.batch = plan.micro_batch;
  if (!question.graph.graph.routing.empty()) {
    throw InputError("--scope",
                     "layers with experts are scheduled in whole steps only: give --scope step");
  }
  expect_scheduled(request, plan, "a layer",
                   why_not_layer(question.graph, question.problem, question.plan));
  return question;
}

AttentionQuestion layer_attention(const Request& request, const StepPlan& plan, const Mask& mask) {
  Request whole = request;
  whole.cluster = nullptr;
  whole.problem.mask = mask;
  AttentionQuestion question = attention_question(whole, plan, whole.problem);
  question.request.cluster = request.cluster;
  return question;
}

std::vector<LayerPhase> phases_of(const Request& request, const StepPlan& plan,
                                  const LayerQuestion& question, bool fold) {
  const AttentionQuestion attention = layer_attention(request, plan, question.problem.mask);
  const Evaluator evaluator(attention.request);
  constexpr double most_ops = std::numeric_limits<double>::infinity();
  std::vector<LayerPhase> phases;
  for (const Phase phase : question.phases) {
    Schedule schedule = question.schedule(phase);
    const Demand demand = demand_of(schedule);
    sim::Folding folding = evaluator.fold(schedule, demand, plan.attention, fold, most_ops);
    phases.push_back({std::move(schedule), demand, std::move(folding)});
  }
  return phases;
}

Effort effort_of(std::span<const LayerPhase> phases) {
  Effort effort;
  for (const LayerPhase& phase : phases) {
    const sim::SimulationDemand demand =
        sim::demand_of(phase.demand, sim::RankWindow::lookahead_of(phase.schedule), phase.folding);
    effort.ops += demand.ops + demand.flows;
    effort.memory = std::max(effort.memory, demand.memory);
  }
  return effort;
}

Evaluation evaluate_layer(const Request& request, const StepPlan& plan,
                          const LayerQuestion& question, std::span<const LayerPhase> phases,
                          const EvaluationOptions& options) {
  const AttentionQuestion attention = layer_attention(request, plan, question.problem.mask);
  const Evaluator evaluator(attention.request);
  Evaluation e;
  e.candidate.plan = plan;
  Prediction& p = e.candidate.predicted;
  const LayerCosts costs(request, plan, question, evaluator.kernels(), options.by_stack);
  InStep in_step{.kernel = [&](const Kernel& kernel, const Shapes& shapes, Seconds alone) {
    return costs.kernel(kernel, shapes, alone);
  }};
  if (question.step && options.by_stack) {
    in_step.call = costs.call();
    in_step.host = [&](const Op& op, const Shapes& shapes, Seconds of_attention) {
      return costs.host(op, shapes, of_attention);
    };
  }
  const auto run = [&](const LayerPhase& phase) {
    sim::Simulation s = evaluator.simulate(phase.schedule, phase.demand, phase.folding,
                                           plan.attention, in_step, options);
    const Breakdown& b = s.breakdown;
    ComponentSeconds parts{};
    parts[static_cast<std::size_t>(Component::attention)] = b.attention.count();
    parts[static_cast<std::size_t>(Component::gemm)] = b.gemm.count();
    parts[static_cast<std::size_t>(Component::elementwise)] = b.other_kernels.count();
    parts[static_cast<std::size_t>(Component::launch)] = b.launch_bound.count();
    parts[static_cast<std::size_t>(Component::bubble)] = b.imbalance.count();
    for (const sim::Bottleneck& bottleneck : s.bottlenecks) {
      parts[static_cast<std::size_t>(
          bottleneck.scope == sim::Scope::inter ? Component::inter_comm : Component::intra_comm)] +=
          bottleneck.exposed.count();
    }
    for (std::size_t i = 0; i < components; ++i) {
      p.parts[i] += parts[i];
    }
    p.step += s.makespan;
    p.attention += b.attention;
    p.compute += b.attention + b.gemm + b.other_kernels;
    p.exposed += b.exposed;
    p.hidden += b.hidden;
    return s;
  };
  for (const LayerPhase& phase : phases) {
    (phase.schedule.contract.phase == Phase::backward ? e.backward : e.forward) = run(phase);
  }
  double variance = 0;
  for (std::size_t i = 0; i < components; ++i) {
    variance += std::pow(p.parts[i] * evaluator.spreads()[i], 2);
  }
  p.low = std::max(Seconds(0), p.step - Seconds(std::sqrt(variance)));
  p.high = p.step + Seconds(std::sqrt(variance));
  return e;
}

}  // namespace spp
