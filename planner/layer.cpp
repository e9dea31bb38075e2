#include "planner/layer.hpp"

#include "base/error.hpp"
#include "planner/evaluator.hpp"

#include <cmath>

namespace spp {

LayerQuestion layer_question(const Request& request, const StepPlan& plan) {
  const std::vector<LayerRun> runs = layer_runs(*request.model);
  const LayerRun& first = runs.front();
  LayerQuestion question{.graph = layer_graph(first.ops, plan.tensor),
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
  question.problem.mask.kind = first.mask.kind;
  question.problem.mask.window = first.mask.window;
  question.problem.batch = plan.micro_batch;
  const std::string reason = why_not_layer(question.graph, question.problem, question.plan);
  if (!reason.empty()) {
    throw InputError("--scope", fmt::format("a layer of {} cannot be scheduled: {}",
                                            request.model->name, reason));
  }
  if (plan.tensor > 1 && !plan.tensor_sequence) {
    throw InputError("--scope",
                     "layers are scheduled with Megatron's sequence parallelism between "
                     "tensor ranks");
  }
  return question;
}

AttentionQuestion layer_attention(const Request& request, const StepPlan& plan, const Mask& mask) {
  Request whole = request;
  whole.cluster = nullptr;
  AttentionQuestion question = attention_question(whole, plan, mask);
  question.request.cluster = request.cluster;
  return question;
}

Evaluation evaluate_layer(const Request& request, const StepPlan& plan,
                          const LayerQuestion& question, const EvaluationOptions& options) {
  // Its kernels are as attention's alone.
  const AttentionQuestion attention = layer_attention(request, plan, question.problem.mask);
  const Evaluator evaluator(attention.request);
  Evaluation e;
  e.candidate.plan = plan;
  Prediction& p = e.candidate.predicted;
  const StepPractice& practice = practice_of(request);
  const KernelCost& kernels = evaluator.kernels();
  const auto in_step = [&](const Kernel& kernel, const Shapes& shapes, Seconds alone) {
    if (std::holds_alternative<Gemm>(kernel)) {
      return alone * kernels.gemm_in_training();
    }
    const auto* row = std::get_if<RowKernel>(&kernel);
    if (row == nullptr) {
      return alone;
    }
    const LayerFunction function = question.graph.graph.definition(row->definition).function;
    const RowFunction timed{.function = function,
                            .backward = row->backward && function != LayerFunction::add};
    if (kernels.times(timed)) {  // its launch among it
      return kernels.row_kernel(timed, touched_bytes(kernel, shapes));
    }
    const bool position = function == LayerFunction::split_heads;
    const bool apart = position && practice.position.value > 0;
    return alone * (apart ? practice.position : practice.elementwise).value + kernels.launch();
  };
  const auto run = [&](Phase phase) {
    sim::Simulation s =
        evaluator.simulate(question.schedule(phase), plan.attention, in_step, options);
    const sim::Breakdown& b = s.breakdown;
    ComponentSeconds parts{};
    parts[static_cast<std::size_t>(Component::attention)] = b.attention.count();
    parts[static_cast<std::size_t>(Component::gemm)] = b.gemm.count();
    parts[static_cast<std::size_t>(Component::elementwise)] = b.other_kernels.count();
    parts[static_cast<std::size_t>(Component::launch)] = b.launch_bound.count();
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
  e.forward = run(Phase::forward);
  if (request.phase == StepPhase::train) {
    e.backward = run(Phase::backward);
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
