// A whole model's step: of training, with its memory; a prefill, a denoising step.
#include "base/error.hpp"
#include "planner/step.hpp"
#include "regress/inference.hpp"
#include "regress/point_answer.hpp"
#include "regress/predict.hpp"
#include "regress/training.hpp"

#include <algorithm>
#include <cmath>

namespace spp::regress {
namespace {

/// What a figure of memory counts: all of the process, what the allocator has taken, what tensors
/// take of that.
enum class PrintedMemory : std::uint8_t { process, allocator, tensors };

/// What a source's notes say of it, else what its software prints.
PrintedMemory printed_memory(const CorpusFile& file, const StepPractice& practice) {
  if (contains(file.notes, "nvidia-smi")) {
    return PrintedMemory::process;
  }
  for (const std::string_view words :
       {"max-allocated", "maximum allocated", "peak allocated", "is allocated memory"}) {
    if (contains(file.notes, words)) {
      return PrintedMemory::tensors;
    }
  }
  return practice.process_reported.value > 0 ? PrintedMemory::process : PrintedMemory::allocator;
}

double printed(PrintedMemory what, const MemoryBytes& bytes) {
  switch (what) {
    case PrintedMemory::process:
      return bytes.total().as_double();
    case PrintedMemory::allocator:
      return (bytes.tensors() + bytes.allocator).as_double();
    case PrintedMemory::tensors:
      return bytes.tensors().as_double();
  }
  throw InternalError("no such PrintedMemory");
}

/// The step in the metric of the point, with its 80 % interval.
PointPrediction training_answer(const Point& p, const Request& request,
                                const StackSpec::Counting& counting, PrintedMemory said,
                                const StepEvaluation& e) {
  PointPrediction result;
  result.oom = !e.fits;
  if (p.metric == Metric::memory) {
    const StepPractice& practice = request.stack->step;
    const MemoryBytes bytes =
        practice.first_stage_reported.value > 0 ? e.memory.front() : fullest(e.memory);
    result.predicted = printed(said, bytes);
    return result;
  }
  const bool again = counting.recomputed && e.plan.recompute.kind != Recompute::none;
  const double flops = counted_flops(request).value() * (again ? 4.0 / 3 : 1);
  const auto value = [&](double step) {
    return p.metric == Metric::tokens_per_s ? static_cast<double>(*p.seq * request.problem.batch) /
                                                  step / (p.per_gpu ? p.world : 1)
           : p.metric == Metric::tflops_per_gpu ? flops / step / p.world / 1e12
                                                : step;
  };
  const double step = e.step().count();
  const double spread = (e.high - e.low).count() / 2 / step;
  const double factor = interval_factor(spread);
  result.predicted = value(step);
  result.low = std::min(value(step * factor), value(step / factor));
  result.high = std::max(value(step * factor), value(step / factor));
  return result;
}

/// Between a step that recomputes nothing and one that does all: as few layers of a stage as fit.
StepEvaluation of_some_layers(const StepEvaluation& none, StepEvaluation all, Bytes usable,
                              std::int64_t layers) {
  const double most = fullest(none.memory).tensors().as_double();
  const double least = fullest(all.memory).tensors().as_double();
  const double need = (most - usable.as_double()) / (most - least);
  const double n = static_cast<double>(layers);
  const double part = std::clamp(std::ceil(need * n) / n, 0.0, 1.0);
  const double before = all.step().count();
  StepSeconds parts = (1 - part) * none.cost.parts;
  parts += part * all.cost.parts;
  all.cost.parts = parts;
  const double now = all.step().count() / before;
  all.low = all.low * now;
  all.high = all.high * now;
  for (std::size_t r = 0; r < all.memory.size(); ++r) {
    all.memory[r].activations =
        Bytes(std::llround((1 - part) * none.memory[r].activations.as_double() +
                           part * all.memory[r].activations.as_double()));
  }
  return all;
}

/// Of what the source leaves open; if nothing fits, what it would take at least under the usual
/// ZeRO stage.
StepEvaluation first_that_fits(StepEvaluator& evaluator, const TrainingPoint& point,
                               const Request& request) {
  const std::int64_t layers =
      std::max<std::int64_t>(1, request.model->layers / point.plan.pipeline);
  std::optional<StepEvaluation> smallest;
  StepPlan plan = point.plan;
  for (const int zero : point.zero) {
    std::optional<StepEvaluation> said;
    std::optional<StepEvaluation> first;
    plan.zero = zero;
    for (const Recomputation& recompute : point.recompute) {
      plan.recompute = recompute;
      said = evaluator.evaluate(plan);
      if (said->fits) {
        return point.by_layers && first ? of_some_layers(*first, *said, request.memory, layers)
                                        : *said;
      }
      if (!first) {
        first = *said;
      }
    }
    if (!smallest) {
      smallest = std::move(said);
    }
  }
  return *smallest;
}

}  // namespace

PointPrediction Predictor::training(const CorpusFile& file, const Point& p,
                                    const sim::Cluster& cluster, const StackSpec& stack) {
  if (p.phase != "train") {
    return no(fmt::format("a whole model's {} is not modelled", p.phase));
  }
  if (std::string why = why_no_problem(p); !why.empty()) {
    return no(std::move(why));
  }
  Request request = request_of(p, cluster, stack);
  request.phase = StepPhase::train;
  TrainingPoint point = training_point(p, request);
  for (Assumption& a : point.assumed) {
    assume(a.what, std::move(a.value));
  }
  if (!point.refused.empty()) {
    return no(std::move(point.refused));
  }
  request.model = std::move(point.model);
  request.problem.kv_heads = request.model->kv_heads;
  request.problem.head_dim = request.model->head_dim;
  request.problem.value_dim = request.model->value_dim();
  request.problem.batch = point.plan.global_batch();
  const StackSpec::Counting counting = counting_of(file, p);
  if (p.flops_convention == "full" || counting.whole_attention) {
    request.flops_convention = FlopsConvention::full;
  } else if (p.flops_convention == "model-6N") {
    request.flops_convention = FlopsConvention::model_6n;
  }
  try {
    StepEvaluator evaluator(request);
    Request call = request;
    call.gpus = p.world / (p.tp * p.pp * p.dp);
    call.problem = attention_problem(request, point.plan, request.problem);
    point.plan.attention = default_plan(call);
    return training_answer(p, request, counting, printed_memory(file, request.stack->step),
                           first_that_fits(evaluator, point, request));
  } catch (const InputError& refused) {
    return no(refused.what());
  }
}

PointPrediction Predictor::inference(const Point& p, const sim::Cluster& cluster,
                                     const StackSpec& stack) {
  if (std::string why = why_no_problem(p); !why.empty()) {
    return no(std::move(why));
  }
  Request request = request_of(p, cluster, stack);
  request.phase = StepPhase::prefill;
  InferencePoint point = inference_point(p, request);
  for (Assumption& a : point.assumed) {
    assume(a.what, std::move(a.value));
  }
  if (!point.refused.empty()) {
    return no(std::move(point.refused));
  }
  request.model = std::move(point.model);
  request.problem.seq = point.seq;
  request.problem.cached = point.cached;
  request.problem.kv_heads = request.model->kv_heads;
  request.problem.head_dim = request.model->head_dim;
  request.problem.value_dim = request.model->value_dim();
  request.problem.mask = request.model->mask.over(request.problem.seq);
  request.problem.batch = point.plan.global_batch();
  try {
    Request call = request;
    call.gpus = p.world / (p.tp * p.pp * p.dp * p.cfg);
    call.problem = attention_problem(request, point.plan, request.problem);
    point.plan.attention = default_plan(call);
    StepEvaluator evaluator(request);
    const StepEvaluation e = evaluator.evaluate(point.plan);
    PointPrediction result;
    result.oom = !e.fits;
    if (p.metric == Metric::memory) {
      result.predicted = (fullest(e.memory).total() + outside_bytes(point)).as_double();
      return result;
    }
    const Seconds outside =
        outside_passes(point, cluster.machine().gpu, stack.step, request.problem.dtype);
    const double seconds = point.passes * e.step().count() + outside.count();
    const double spread = (e.high - e.low).count() / 2 / e.step().count();
    return answer(p, seconds, spread);
  } catch (const InputError& refused) {
    return no(refused.what());
  }
}

}  // namespace spp::regress
