// One scope after another; they share how a point becomes a problem and a time an answer.
#include "regress/predict.hpp"

#include "base/error.hpp"
#include "machine/kernel_cost.hpp"
#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/double_ring_core.hpp"
#include "planner/step.hpp"
#include "regress/corpus_point.hpp"
#include "regress/documents.hpp"
#include "regress/inference.hpp"
#include "regress/kernels.hpp"
#include "regress/training.hpp"
#include "schedule/counted_flops.hpp"
#include "sim/all_reduce.hpp"
#include "sim/lowering.hpp"
#include "sim/thinned.hpp"

#include <algorithm>
#include <cmath>

namespace spp::regress {
namespace {

/// Half width of an 80 % interval over a standard deviation (normal distribution).
constexpr double eighty_percent = 1.2816;

PointPrediction no(std::string reason) {
  PointPrediction p;
  p.reason = std::move(reason);
  return p;
}

DType dtype_of(const Point& p) {
  return p.dtype == "fp16" ? DType::fp16 : p.dtype == "fp32" ? DType::fp32 : DType::bf16;
}

bool is_low_precision(const Point& p) {
  return contains(p.dtype, "fp8") || contains(p.dtype, "fp4");
}

Mask mask_of(const Point& p) {
  const bool full = p.mask == PointMask::full || p.mask == PointMask::varlen_full;
  return {.kind = full ? MaskKind::full : MaskKind::causal};
}

/// Of one sequence, whatever is packed in it.
Problem problem_of(const Point& p) {
  return {.seq = *p.seq,
          .batch = p.batch.value_or(1),
          .q_heads = *p.q_heads,
          .kv_heads = p.kv_heads.value_or(*p.q_heads),
          .head_dim = *p.head_dim,
          .value_dim = p.head_dim_v.value_or(0),
          .mask = mask_of(p),
          .dtype = dtype_of(p)};
}

/// Packed sequences that the source timed; documents of usual lengths if it does not say which; one
/// sequence of no documents if none are packed.
std::vector<std::vector<std::int64_t>> packings_of(const Point& p) {
  if (!p.packs()) {
    return {{}};
  }
  if (p.packs_unknown()) {
    return {usual_packing(*p.seq).ends};
  }
  return p.packings;
}

template <class F>
double mean_over(const std::vector<std::vector<std::int64_t>>& packings, F f) {
  double sum = 0;
  for (const std::vector<std::int64_t>& ends : packings) {
    sum += f(ends);
  }
  return sum / static_cast<double>(packings.size());
}

/// FLOPs of the call under the source's convention; of packed documents what they allow.
double flops_of_call(const Point& p) {
  const Problem problem = problem_of(p);
  if (p.packs()) {
    const TokenRange all{.begin = 0, .count = problem.seq};
    const int values = p.head_dim_v.value_or(*p.head_dim);
    double passes = p.phase != "bwd" ? flops_per_pair(Phase::forward, *p.head_dim, values) : 0;
    passes += p.phase != "fwd" ? flops_per_pair(Phase::backward, *p.head_dim, values) : 0;
    return passes * mean_over(packings_of(p), [&](const std::vector<std::int64_t>& ends) {
             Mask mask = problem.mask;
             mask.document_ends = ends;
             return static_cast<double>(allowed_pairs(all, all, mask)) * problem.q_heads *
                    static_cast<double>(problem.batch);
           });
  }
  return counted_flops(CountedCall{.queries = *p.seq,
                                   .keys = p.seq_kv.value_or(*p.seq),
                                   .batch = problem.batch,
                                   .heads = problem.q_heads,
                                   .qk_dim = static_cast<double>(*p.head_dim),
                                   .v_dim = static_cast<double>(p.head_dim_v.value_or(*p.head_dim)),
                                   .halved = problem.mask.kind != MaskKind::full &&
                                             p.flops_convention != "full",
                                   .forward = p.phase != "bwd",
                                   .backward = p.phase != "fwd"})
      .value();
}

/// A time in the metric of the point.
std::optional<double> in_metric(const Point& p, double seconds) {
  switch (p.metric) {
    case Metric::time:
      return seconds;
    case Metric::tflops_per_gpu:
      return flops_of_call(p) / seconds / p.world / 1e12;
    case Metric::tokens_per_s:
      return static_cast<double>(*p.seq * p.batch.value_or(1)) / seconds /
             (p.per_gpu ? p.world : 1);
    case Metric::memory:
    case Metric::busbw:
      return std::nullopt;
  }
  throw InternalError("unknown metric");
}

/// A prediction with its 80 % interval: `spread` is a standard deviation, relative.
PointPrediction answer(const Point& p, double seconds, double spread) {
  PointPrediction result;
  result.predicted = in_metric(p, seconds);
  if (!result.predicted) {
    return no(
        fmt::format("{} of scope {} is not predicted", to_string(p.metric), to_string(p.scope)));
  }
  const double factor = std::exp(eighty_percent * spread);
  const auto slow = in_metric(p, seconds * factor);
  const auto fast = in_metric(p, seconds / factor);
  result.low = std::min(*slow, *fast);
  result.high = std::max(*slow, *fast);
  return result;
}

StepPhase step_phase(const Point& p) {
  return p.phase == "fwd"   ? StepPhase::forward
         : p.phase == "bwd" ? StepPhase::backward
                            : StepPhase::forward_backward;
}

/// The plan that a point describes; what it leaves open is the planner's default.
FixedChoices choices_of(const Point& p) {
  FixedChoices f;
  f.ulysses = p.ulysses;
  f.ring = p.ring;
  if (const auto degree = p.cp_of_open_kind()) {
    f.ulysses = 1;  // the stack's default is a ring
    f.ring = degree;
  }
  f.own[&parameters::team] = p.team;
  f.layout = p.layout;
  if (p.ring_kind == RingKind::all_gather && p.ring.value_or(1) > 1) {
    f.strategy = "all-gather";
  } else if (p.ring_kind == RingKind::pass_q && p.ring.value_or(1) > 1) {
    f.strategy = "pass-q-ring";
  } else if (p.ring_kind == RingKind::group_cast && p.ring.value_or(1) > 1) {
    f.strategy = "group-cast";
  } else if (p.double_ring && p.ring.value_or(1) > 1) {
    const int node = p.machine.gpus_per_node / p.ulysses.value_or(1);
    const int window = p.inner.value_or(std::clamp(node, 1, *p.ring));
    if (window > 1 && window < *p.ring && *p.ring % window == 0) {
      f.strategy = "double-ring";
      f.own[&parameters::window] = window;
    }
  }
  if (p.placement == "ring-inner") {
    f.order = std::array{Axis::ring, Axis::team, Axis::ulysses};
  }
  return f;
}

Bytes usable_memory(const GpuSpec& gpu) {
  return Bytes(static_cast<std::int64_t>(gpu.memory.value.as_double() * gpu.memory_usable.value));
}

/// What attention calls and training steps ask alike.
Request request_of(const Point& p, const sim::Cluster& cluster, const StackSpec& stack) {
  Request request;
  request.problem = problem_of(p);
  request.cluster = &cluster;
  request.year = p.year;
  request.gpus = p.world;
  request.fixed = choices_of(p);
  request.run_by(stack);
  request.memory = usable_memory(cluster.machine().gpu);
  return request;
}

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
  const double factor = std::exp(eighty_percent * spread);
  result.predicted = value(step);
  result.low = std::min(value(step * factor), value(step / factor));
  result.high = std::max(value(step * factor), value(step / factor));
  return result;
}

/// An assumption, and how many points it was made for.
struct Tally {
  Assumption said;
  std::size_t points = 0;
};

void add(std::vector<Tally>& tallies, const Assumption& a) {
  auto at = std::ranges::find_if(
      tallies, [&](const Tally& t) { return t.said.what == a.what && t.said.value == a.value; });
  if (at == tallies.end()) {
    at = tallies.insert(at, {.said = a});
  }
  ++at->points;
}

/// What was not assumed for all of a file's points says for how many.
std::vector<Assumption> said_of(const std::vector<Tally>& tallies, std::size_t points) {
  std::vector<Assumption> said;
  for (const Tally& t : tallies) {
    said.push_back(t.said);
    if (t.points < points) {
      said.back().value += fmt::format(" ({} of {} points)", t.points, points);
    }
  }
  return said;
}

}  // namespace

std::vector<PointPrediction> Predictor::predict(const CorpusFile& file) {
  clusters_.clear();
  std::vector<Tally> tallies;
  std::vector<PointPrediction> predictions;
  predictions.reserve(file.points.size());
  for (const Point& point : file.points) {
    assumptions_.clear();
    predictions.push_back(predict(file, point));
    for (const Assumption& a : assumptions_) {
      add(tallies, a);
    }
  }
  assumptions_ = said_of(tallies, predictions.size());
  if (!file.unread.empty()) {
    assume("keys that were not read", fmt::format("{}", fmt::join(file.unread, ", ")));
  }
  return predictions;
}

PointPrediction Predictor::predict(const CorpusFile& file, const Point& p) {
  const sim::Cluster& cluster = cluster_of(file, p);
  const std::string where = fmt::format("{}: stack", file.path.filename().string());
  const bool whole = p.scope == Scope::model || p.scope == Scope::memory;
  const StackSpec& stack = stack_of(whole ? recognised(file, p) : file.stack, where);
  switch (p.scope) {
    case Scope::attention:
      return attention(p, cluster, stack);
    case Scope::kernel:
      return kernel(file, p, cluster, stack);
    case Scope::collective:
      return collective(p, cluster, stack);
    case Scope::model:
    case Scope::memory:
      return p.phase == "inference" ? inference(p, cluster, as_run(stack, file, p))
                                    : training(file, p, cluster, as_run(stack, file, p));
  }
  throw InternalError("unknown scope");
}

PointPrediction Predictor::attention(const Point& p, const sim::Cluster& cluster,
                                     const StackSpec& stack) {
  if (!p.ulysses || !p.ring) {
    return no(p.beyond ? "not a plan of Ulysses x ring (beyond)"
                       : "degrees of Ulysses and ring are not stated");
  }
  if (p.tp * p.dp * p.pp * p.cfg * p.pipefusion != 1) {
    return no("attention calls are predicted for one sequence-parallel group");
  }
  if (p.seq_kv.value_or(*p.seq) != *p.seq) {
    return no(fmt::format("attention of {} queries to {} keys over several GPUs is not modelled",
                          *p.seq, *p.seq_kv));
  }
  if (is_low_precision(p)) {
    return no(fmt::format("attention in {} over several GPUs is not modelled", p.dtype));
  }
  Request request = request_of(p, cluster, stack);
  request.phase = step_phase(p);
  if (p.packs() && p.ring > 1 && p.ring_kind == RingKind::p2p) {
    // Rings of packed sequences cut each document (TransformerEngine, ring-flash-attention).
    request.fixed.layout =
        p.layout == Layout::contiguous ? Layout::document_contiguous : Layout::document_zigzag;
  }
  try {
    double seconds = 0;
    double spread = 0;
    bool fits = true;
    const auto packings = packings_of(p);
    for (const std::vector<std::int64_t>& ends : packings) {
      request.problem.mask.document_ends = ends;
      const Evaluation e = evaluate(request, default_plan(request));
      const Prediction& said = e.candidate.predicted;
      if (p.metric == Metric::memory) {
        PointPrediction result;
        result.predicted = said.memory.total().as_double();
        result.oom = !said.fits;
        return result;
      }
      seconds += said.step.count() / static_cast<double>(packings.size());
      spread = std::max(spread, (said.high - said.low).count() / 2 / said.step.count());
      fits = fits && said.fits;
    }
    PointPrediction result = answer(p, seconds, std::hypot(spread, spread_of_packing(p)));
    result.oom = !fits;
    return result;
  } catch (const InputError& refused) {
    return no(refused.what());
  }
}

double Predictor::spread_of_packing(const Point& p) {
  if (!p.packs_unknown()) {
    return 0;
  }
  assume("documents",
         "lengths that the source does not give: drawn from MagiAttention's histogram");
  return packing_spread(usual_packing(*p.seq));
}

/// Between a step that recomputes nothing and one that does all: as few layers of a stage as fit.
static StepEvaluation of_some_layers(const StepEvaluation& none, StepEvaluation all, Bytes usable,
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
static StepEvaluation first_that_fits(StepEvaluator& evaluator, const TrainingPoint& point,
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

PointPrediction Predictor::training(const CorpusFile& file, const Point& p,
                                    const sim::Cluster& cluster, const StackSpec& stack) {
  if (p.phase != "train" || !p.seq || !p.q_heads || !p.head_dim) {
    return no(p.phase == "train" ? "length, heads or their width are not stated"
                                 : fmt::format("a whole model's {} is not modelled", p.phase));
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
  if (!p.seq || !p.q_heads || !p.head_dim) {
    return no("length, heads or their width are not stated");
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

PointPrediction Predictor::kernel_of_op(const Point& p, const GpuSpec& gpu,
                                        const StackSpec& stack) {
  try {
    const std::string_view family = family_of_op(p.op);
    if (family == "linear") {
      const KernelAnswer said = linear_answer(p, gpu, linear_spec_of(gpu));
      return answer(p, said.time.count(), said.spread);
    }
    // A latent block's format is that of its GEMMs, not of attention.
    Point attention = p;
    if (p.op == "mla_context_module") {
      attention.dtype = "bf16";
    }
    const bool named = family == "mla" && !p.library.empty();
    const KernelCost cost(
        gpu, named
                 ? attention_kernel(gpu.generation, attention_kernel_of(attention, gpu.generation),
                                    "kernel", p.year)
                 : attention_of(stack, gpu.generation, p.year));
    const KernelAnswer said = kernel_answer(p, cost);
    return answer(p, said.time.count(), said.spread);
  } catch (const InputError& refused) {
    return no(refused.what());
  }
}

PointPrediction Predictor::kernel(const CorpusFile& file, const Point& p,
                                  const sim::Cluster& cluster, const StackSpec& stack) {
  const GpuSpec& gpu = cluster.machine().gpu;
  if (!p.op.empty()) {
    return kernel_of_op(p, gpu, stack);
  }
  if (p.metric == Metric::memory) {
    // The peak of a process: of a benchmark of both passes it is the backward's, for either.
    const bool both = std::ranges::any_of(
        file.points, [](const Point& other) { return other.op.empty() && other.phase != "fwd"; });
    PointPrediction result;
    const Bytes bytes = attention_memory(p, both);
    result.predicted = bytes.as_double();
    result.oom = bytes > usable_memory(gpu);
    return result;
  }
  const std::string name = attention_kernel_of(p, gpu.generation);
  try {
    const AttentionKernelSpec& spec =
        name.empty() ? attention_of(stack, gpu.generation, p.year)
                     : attention_kernel(gpu.generation, name, "kernel", p.year);
    const KernelCost kernels(gpu, spec);
    Problem problem = problem_of(p);
    double spread = 0;
    const TokenSet q({.begin = 0, .count = *p.seq});
    const TokenSet k({.begin = 0, .count = p.seq_kv.value_or(*p.seq)});
    double seconds = cache_write(p, kernels).count();
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      if ((phase == Phase::forward && p.phase == "bwd") ||
          (phase == Phase::backward && p.phase == "fwd")) {
        continue;
      }
      seconds += mean_over(packings_of(p), [&](const std::vector<std::int64_t>& ends) {
        problem.mask.document_ends = ends;
        return kernels
            .attention({.q = q,
                        .k = k,
                        .q_heads = problem.q_heads,
                        .kv_heads = problem.kv_heads,
                        .head_dim = problem.head_dim,
                        .batch = problem.batch,
                        .mask = problem.mask,
                        .dtype = problem.dtype,
                        .phase = phase,
                        .value_dim = p.head_dim_v.value_or(0)})
            .count();
      });
      spread = std::max(spread, kernels.attention_spread(problem, phase));
    }
    spread = std::hypot(spread, spread_of_packing(p));
    if (!p.library.empty()) {
      spread = std::hypot(spread, foreign_kernel_spread);
    }
    PointPrediction result = answer(p, seconds, spread);
    result.oom = attention_memory(p, p.phase != "fwd") > usable_memory(gpu);
    return result;
  } catch (const InputError& refused) {
    return no(refused.what());
  }
}

PointPrediction Predictor::expert_exchange(const Point& p, const sim::Cluster& cluster,
                                           const StackSpec& stack) const {
  const MachineSpec& machine = cluster.machine();
  const auto spec = stack.expert_exchange.find(machine.gpu.generation.name);
  if (spec == stack.expert_exchange.end()) {
    return no(fmt::format("stack {} does not say what {} takes on {}", stack.name, p.op,
                          machine.gpu.generation.name));
  }
  if (!p.mode.empty() && p.mode != "normal" && p.mode != "low_latency") {
    return no(fmt::format("mode '{}' of {} is not modelled", p.mode, p.op));
  }
  const int per_node = static_cast<int>(machine.gpus_per_node.value);
  const int nodes = (p.world + per_node - 1) / per_node;
  const Bandwidth nic = machine.inter
                            ? Bandwidth(machine.inter->rate().value() /
                                        static_cast<double>(machine.inter->gpus_per_nic.value))
                            : machine.intra_rate;
  const Seconds time = exchange_time(spec->second,
                                     {.tokens = *p.tokens,
                                      .hidden = *p.hidden,
                                      .experts = *p.experts,
                                      .experts_per_token = *p.experts_per_token,
                                      .ranks = p.world,
                                      .nodes = nodes,
                                      .bytes = is_low_precision(p) ? 1.0 : 2.0,
                                      .combine = p.op == "ep_combine",
                                      .low_latency = p.mode == "low_latency",
                                      .sms = p.sms.value_or(0)},
                                     machine.intra_rate, nic);
  const double spread =
      nodes > 1 ? spec->second.network.spread : spec->second.dispatch.per_sm.spread;
  return answer(p, time.count(), spread);
}

PointPrediction Predictor::collective(const Point& p, const sim::Cluster& cluster,
                                      const StackSpec& stack) const {
  if (p.op.starts_with("ep_")) {
    return expert_exchange(p, cluster, stack);
  }
  // nccl-tests: all_to_all's size is one rank's send buffer, all_gather's one rank's output,
  // reduce_scatter's one rank's input: (n-1)/n of it leaves the rank.
  const int n = p.world;
  const bool pair = p.op == "sendrecv" || p.op == "p2p";
  const double bytes = p.bytes ? p.bytes->as_double() : static_cast<double>(std::int64_t{8} << 30);
  const double sent = pair ? bytes : bytes * (n - 1) / n;
  const CommKind kind = p.op == "all_to_all"   ? CommKind::all_to_all
                        : p.op == "all_gather" ? CommKind::all_gather
                                               : CommKind::reduce_scatter;
  const sim::Placement placement(cluster, cluster.gpus(), RankOrder::block);
  const RankGroup group{.first = 0, .stride = 1, .size = n};
  double seconds = 0;
  double spread = 0.15;
  const sim::Scope scope = cluster.nodes() > 1 ? sim::Scope::inter : sim::Scope::intra;
  const TransportSpec& transport = cluster.transport(scope);
  if (pair) {
    seconds =
        transport.time(CommKind::send_recv, Bytes(std::llround(sent)), cluster.nominal_rate(scope))
            .count();
    spread = transport.segment(CommKind::send_recv, Bytes(std::llround(sent))).fraction.spread;
  } else if (p.op == "all_reduce") {
    seconds = sim::all_reduce_cost(Bytes(std::llround(bytes)), group, placement,
                                   {.nvls = p.algo != "no SHARP"})
                  .time.count();
  } else {
    seconds = sim::collective_time(kind, group, Bytes(std::llround(sent)), placement).count();
    spread = transport.segment(kind, Bytes(std::llround(sent))).fraction.spread;
  }
  if (p.metric == Metric::busbw) {
    PointPrediction result;
    // Bus bandwidth: what each rank's link carries; a ring of all_reduce passes everything twice.
    result.predicted = (p.op == "all_reduce" ? 2 : 1) * sent / seconds / 1e9;
    const double factor = std::exp(eighty_percent * spread);
    result.low = *result.predicted / factor;
    result.high = *result.predicted * factor;
    return result;
  }
  return answer(p, seconds, spread);
}

namespace {

/// Capacities fix how many tokens an expert gets; HybridEP counts them in its kernels.
bool counts_on_device(const CorpusFile& file, const Point& p) {
  return contains(p.dispatcher, "HybridEP") || contains(file.notes, "capacity factor");
}

/// Tokens beyond a capacity are dropped: an all-to-all of known sizes, once for each expert, that
/// nothing hides (Megatron-Bridge training/utils/moe_token_drop.py asserts that dispatcher).
StepPractice dropping_tokens(StepPractice practice) {
  practice = counting_on_device(std::move(practice));
  practice.once_per_node.value = 0;
  practice.expert_hidden.value = 0;
  return practice;
}

}  // namespace

/// Whose words a source has in this text, the longest of them; nullptr: nobody's.
const Predictor::KnownBy* Predictor::known_by(const std::string& said, int year) {
  if (words_.empty()) {
    for (const std::string& name : catalog_.stack_names()) {
      const StackSpec& stack = stack_of(name, name);
      for (const std::string& word : stack.known_by) {
        words_.push_back({.word = word, .stack = name, .until = stack.until});
      }
    }
    // Long words before short ones, those of an early time before later ones and those of always.
    const auto until = [](const KnownBy& k) { return k.until == 0 ? 9999 : k.until; };
    std::ranges::stable_sort(words_, [&](const KnownBy& a, const KnownBy& b) {
      return a.word.size() != b.word.size() ? a.word.size() > b.word.size() : until(a) < until(b);
    });
  }
  const auto known = std::ranges::find_if(words_, [&](const KnownBy& k) {
    const bool then = k.until == 0 || (year > 0 && year <= k.until);
    return then && said.find(k.word) != std::string::npos;
  });
  return known == words_.end() ? nullptr : &*known;
}

/// The software of a whole step: whose words the point or its file has; else the file's stack.
std::string Predictor::recognised(const CorpusFile& file, const Point& p) {
  for (const std::string* said : {&p.features, &p.system, &p.library, &file.title}) {
    if (const KnownBy* known = known_by(*said, p.year)) {
      if (known->stack != file.stack) {
        assume("stack", fmt::format("{} ('{}')", known->stack, known->word));
      }
      return known->stack;
    }
  }
  return file.stack;
}

/// How the rates of a file were counted that does not say it: as the software does that its title
/// names. Who compares systems counts all of them alike.
StackSpec::Counting Predictor::counting_of(const CorpusFile& file, const Point& p) {
  const bool said = !p.flops_convention.empty() && p.flops_convention != "unknown";
  const KnownBy* known = known_by(file.title, p.year);
  const StackSpec& stack = stack_of(known != nullptr ? known->stack : file.stack, file.title);
  const bool then = stack.counting &&
                    (stack.counting->until == 0 || p.year == 0 || p.year <= stack.counting->until);
  return !said && then ? *stack.counting : StackSpec::Counting{};
}

void Predictor::assume(const std::string& what, std::string value) {
  assumptions_.push_back({.what = what, .value = std::move(value), .source = "default"});
}

const sim::Cluster& Predictor::cluster_of(const CorpusFile& file, const Point& p) {
  const CorpusMachine& m = p.machine;
  const std::string where = fmt::format("{}: points[{}]", file.path.filename().string(), p.index);
  const std::string key =
      fmt::format("{}|{}|{}|{}", m.gpu, m.gpus_per_node, m.nodes.value_or(0), p.world);
  auto [at, fresh] = clusters_.try_emplace(key);
  if (fresh) {
    ComposedCluster composed = compose(m, p.world, catalog_, where, p.year);
    if (composed.nodes > 1) {
      composed.machine = sim::evenly_filled(std::move(composed.machine), composed.nodes, p.world);
    }
    const int gpus = composed.nodes * static_cast<int>(composed.machine.gpus_per_node.value);
    at->second = {.cluster = std::make_unique<sim::Cluster>(std::move(composed.machine),
                                                            composed.nodes, gpus),
                  .assumptions = std::move(composed.assumptions)};
  }
  for (const Assumption& a : at->second.assumptions) {
    assume(a.what, a.value);
  }
  return *at->second.cluster;
}

const StackSpec& Predictor::stack_of(const std::string& name, std::string_view where) {
  auto at = stacks_.find(name);
  if (at == stacks_.end()) {
    at = stacks_.emplace(name, catalog_.stack(name, where)).first;
  }
  return at->second;
}

const StackSpec& Predictor::as_run(const StackSpec& stack, const CorpusFile& file,
                                   const Point& point) {
  const bool fused = point.phase == "inference" && says_compiled(point);
  const bool counted = counts_on_device(file, point);
  const bool dropped = contains(point.variant, "tokendrop");
  const int pieces = contains(point.features, "async TP") ? point.tp : 1;
  if (!fused && !counted && !dropped && pieces == 1) {
    return stack;
  }
  const auto [at, fresh] = stacks_.try_emplace(
      fmt::format("{}{}{}{}, {} pieces", stack.name, fused ? ", compiled" : "",
                  counted ? ", counted" : "", dropped ? ", dropped" : "", pieces),
      stack);
  if (fresh) {
    at->second = fused ? compiled(stack) : stack;
    if (counted) {
      at->second.step = counting_on_device(at->second.step);
    }
    if (dropped) {
      at->second.step = dropping_tokens(at->second.step);
    }
    if (pieces > 1) {
      // A piece a rank, of which the first has no GEMM before it (PyTorch
      // torch/distributed/_symmetric_memory: _pipelined_multi_all_gather_and_consume).
      at->second.step.tensor_hidden.value = 1 - 1.0 / pieces;
    }
  }
  return at->second;
}

}  // namespace spp::regress
