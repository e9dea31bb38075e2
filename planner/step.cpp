// One class, hence one file.
#include "planner/step.hpp"

#include "planner/evaluator.hpp"
#include "planner/framework.hpp"
#include "sim/thinned.hpp"
#include "step/linear_attention.hpp"
#include "step/sparse_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spp {
namespace {

const AttentionKernelSpec& attention_kernel_of(const Request& request) {
  const GenerationSpec& generation = request.cluster->machine().gpu.generation;
  return request.stack != nullptr ? attention_of(*request.stack, generation, request.year)
                                  : generation.attention;
}

AttentionCost::Pass attention_pass(const std::optional<sim::Simulation>& simulation) {
  if (!simulation) {
    return {};
  }
  const Breakdown& b = simulation->breakdown;
  return {.kernels = b.attention,
          .small = b.other_kernels,
          .exposed = b.exposed,
          .hidden = b.hidden,
          .imbalance = b.imbalance,
          .links = simulation->links,
          .issue = simulation->issue,
          .sent = sent_in(*simulation)};
}

std::size_t place(Component c) { return static_cast<std::size_t>(c); }

}  // namespace

const StepPractice& practice_of(const Request& request) {
  return request.practice != nullptr ? *request.practice : default_practice();
}

Recomputation recomputation_of(const Request& request, Recompute kind) {
  const std::vector<std::string>& modules = practice_of(request).selective;
  if (kind != Recompute::selective || modules.empty()) {
    return {.kind = kind};
  }
  std::string text = "selective:";
  for (const std::string& module : modules) {
    text += (text.back() == ':' ? "" : ",") + module;
  }
  return parse_recomputation(text, "stack");
}

std::vector<Dispatcher> dispatchers_of(const Request& request) {
  if (request.step.to_experts) {
    return {*request.step.to_experts};
  }
  if (const Framework* f = request.framework; f != nullptr && !f->axes.dispatchers.empty()) {
    return {f->axes.dispatchers.begin(), f->axes.dispatchers.end()};
  }
  if (const std::string& kind = practice_of(request).dispatcher; !kind.empty()) {
    return {parse_dispatcher(kind, "stack")};
  }
  return {Dispatcher::all_to_all, Dispatcher::all_gather};
}

Mask mask_of(const LayerMask& layers, const Request& request) {
  const Mask& asked = request.problem.mask;
  return layers == request.model->mask ? asked
                                       : layers.over(request.problem.seq, asked.document_ends);
}

Problem problem_of(const LayerRun& run, const Request& request) {
  Problem problem = request.problem;
  if (run.mask.chunk > 0 && problem.cached > 0) {
    // Chunks behind a cache no schedule has: a window of as many tokens is seen, up to twice as
    // many keys.
    problem.mask = {.kind = MaskKind::window, .window = run.mask.chunk};
  } else {
    problem.mask = mask_of(run.mask, request);
  }
  problem.kv_heads = run.heads.count;
  problem.head_dim = run.heads.dim;
  return problem;
}

Problem attention_problem(const Request& request, const StepPlan& plan, const Problem& whole) {
  Problem problem = whole;
  problem.batch = plan.micro_batch;
  problem.q_heads = std::max(1, problem.q_heads / plan.tensor);
  problem.kv_heads = std::max(1, problem.kv_heads / plan.tensor);
  if (request.model && request.model->diffusion.frames > 0) {
    const std::int64_t frames = request.model->diffusion.frames;
    problem.seq = std::max<std::int64_t>(1, problem.seq / frames);
    problem.batch *= frames;
  }
  return problem;
}

AttentionTraits traits_of(const Request& request) {
  if (!request.model) {
    return request.traits;
  }
  const Model& model = *request.model;
  return {
      .sinks = model.attention_sinks,
      .windows = model.narrow_mask.kind == MaskKind::window || model.mask.kind == MaskKind::window,
      .chunks = model.narrow_mask.chunk > 0 && request.problem.end() > model.narrow_mask.chunk,
      .linear = model.linear.has_value(),
      .picks = model.indexer.has_value(),
      .shapes = model.narrow_heads.has_value() && model.narrow_heads->dim != model.head_dim};
}

namespace {

/// Attention of all layers that is not `problem`.
std::vector<AttentionBeside> beside(const Request& request, const StepPlan& plan,
                                    const Problem& problem) {
  std::vector<AttentionBeside> others;
  double own = 0;
  for (const LayerRun& run : layer_runs(*request.model)) {
    if (!run.attends) {
      continue;
    }
    Problem other = attention_problem(request, plan, problem_of(run, request));
    const auto known = std::ranges::find(others, other, &AttentionBeside::problem);
    double& calls = other == problem        ? own
                    : known != others.end() ? known->calls
                                            : others.emplace_back(std::move(other), 0.0).calls;
    calls += static_cast<double>(run.layers);
  }
  for (AttentionBeside& other : others) {
    other.calls /= std::max(1.0, own);
  }
  return others;
}

/// Of a rank: Q, K, V, of a backward the output and its gradient, too.
Bytes counted_as_activations(const Problem& call, const SequencePlan& plan, int outputs) {
  const std::int64_t queries = call.seq * call.q_heads * (call.head_dim + outputs * call.v_dim());
  const std::int64_t keys = call.end() * call.kv_heads * (call.head_dim + call.v_dim());
  return Bytes((queries + keys) / plan.ranks() * call.batch * size_of(call.dtype));
}

int outputs_of(StepPhase phase) { return phase == StepPhase::forward ? 0 : 2; }

}  // namespace

AttentionQuestion attention_question(const Request& request, const StepPlan& plan,
                                     const Problem& whole) {
  AttentionQuestion question{.cluster = nullptr, .request = request};
  if (!request.whole_step()) {
    return question;
  }
  Request& call = question.request;
  call.problem = attention_problem(request, plan, whole);
  call.traits = traits_of(request);
  call.beside = beside(request, plan, call.problem);
  call.model.reset();
  call.step = {};
  call.phase = request.phase == StepPhase::train ? StepPhase::forward_backward : StepPhase::forward;
  call.gpus = plan.sequence();
  call.gpus_at_work = request.gpus;
  if (request.cluster != nullptr) {
    question.cluster = std::make_unique<sim::Cluster>(
        sim::thinned(*request.cluster, plan.tensor, plan.sequence()));
    call.cluster = question.cluster.get();
  }
  return question;
}

StepEvaluator::StepEvaluator(const Request& request)
    : request_(request),
      practice_(in_type(practice_of(request), request.problem.dtype)),
      kernels_(request.cluster->machine().gpu, attention_kernel_of(request)),
      common_({.model = &*request.model,
               .cluster = request.cluster,
               .kernels = &kernels_,
               .practice = &practice_,
               .dtype = request.problem.dtype,
               .kind = kind_of(request.phase),
               .cached = request.problem.cached,
               .imbalance = request.step.imbalance}) {}

StepEvaluator::Call StepEvaluator::simulate(const StepPlan& plan, const Problem& whole) const {
  const AttentionQuestion question = attention_question(request_, plan, whole);
  const Request& call = question.request;
  const Problem asked = attention_problem(request_, plan, request_.problem);
  const SequencePlan own = plan_beside(call.problem, asked, plan.attention);
  return call_of(call, own, spp::evaluate(call, own));
}

StepEvaluator::Call StepEvaluator::call_of(const Request& call, const SequencePlan& plan,
                                           const Evaluation& e) {
  const Candidate& c = e.candidate;
  const Problem tensors = padded(call.problem, plan);
  const int outputs = outputs_of(call.phase);
  const Bytes counted = counted_as_activations(tensors, plan, outputs);
  const ClosedForm form = strategies::by_name(plan.strategy, "--strategy")
                              .closed_form(call.problem, plan, Phase::backward, call.build);
  const auto& written =
      attention_kernel_of(call).kept_pair_bytes;  // scores that are not fused away
  const double pairs = static_cast<double>(tensors.batch * tensors.seq) *
                       static_cast<double>(tensors.end()) * tensors.q_heads / plan.ranks();
  constexpr double most = 1e17;  // of bytes that can be added up
  const Bytes scores(std::llround(written ? std::min(most, written->value * pairs) : 0.0));
  const double inter = c.predicted.parts[place(Component::inter_comm)];
  const double waited = inter + c.predicted.parts[place(Component::intra_comm)];
  return {.cost = {.forward = attention_pass(e.forward),
                   .backward = attention_pass(e.backward),
                   .buffers =
                       std::max(Bytes(0), c.predicted.memory.attention_buffers - counted) + scores,
                   .kept = outputs > 0 ? form.kept + scores : Bytes(0)},
          .spread = (c.predicted.high - c.predicted.low).count() / 2 / c.predicted.step.count(),
          .across = waited > 0 ? inter / waited : 0,
          .bound_by = c.bound_by,
          .lowering = c.lowering};
}

StepEvaluator::CallKey StepEvaluator::key_of(const StepPlan& plan, const Problem& whole) {
  return {.tensor = plan.tensor,
          .micro_batch = plan.micro_batch,
          .kv_heads = whole.kv_heads,
          .head_dim = whole.head_dim,
          .attention = plan.attention,
          .keys = {},
          .mask = whole.mask};
}

void StepEvaluator::know(const StepPlan& plan, const Request& call, const Evaluation& simulated) {
  calls_.try_emplace(key_of(plan, request_.problem), call_of(call, plan.attention, simulated));
}

const StepEvaluator::Call& StepEvaluator::attention(const StepPlan& plan, const Problem& whole) {
  CallKey key = key_of(plan, whole);
  const auto at = calls_.find(key);
  return at != calls_.end() ? at->second
                            : calls_.emplace(std::move(key), simulate(plan, whole)).first->second;
}

const StepEvaluator::Call& StepEvaluator::linear(const StepPlan& plan) {
  CallKey key = key_of(plan, request_.problem);
  const auto at = linear_calls_.find(key);
  return at != linear_calls_.end()
             ? at->second
             : linear_calls_.emplace(std::move(key), linear_at(plan, padded_seq(plan)))
                   .first->second;
}

StepEvaluator::Call StepEvaluator::linear_at(const StepPlan& plan, std::int64_t seq) {
  const sim::Cluster ranks = sim::thinned(*request_.cluster, plan.tensor, plan.sequence());
  const StepRequest& step = common_.request();
  LinearCost found = linear_attention_cost(
      *request_.model, {.seq = seq, .dtype = step.dtype, .kind = step.kind}, plan, kernels_, ranks);
  Call call{.cost = found.cost,
            .spread = found.spread,
            .across = ranks.nodes() > 1 ? 1.0 : 0.0,
            .bound_by = "transfers of linear attention",
            .lowering = {}};
  if (plan.sequence() > 1) {
    call.lowering.push_back(fmt::format("linear attention: {}", to_string(found.split)));
  }
  return call;
}

const StepEvaluator::Call& StepEvaluator::sparse(const StepPlan& plan, const LayerRun& run) {
  CallKey key = key_of(plan, request_.problem);
  key.keys = run.blocks.keys;
  const auto at = sparse_calls_.find(key);
  return at != sparse_calls_.end()
             ? at->second
             : sparse_calls_.emplace(std::move(key), sparse_at(plan, run, padded_seq(plan)))
                   .first->second;
}

StepEvaluator::Call StepEvaluator::sparse_at(const StepPlan& plan, const LayerRun& run,
                                             std::int64_t seq) {
  const sim::Cluster ranks = sim::thinned(*request_.cluster, plan.tensor, plan.sequence());
  SparseWork work{
      .problem = request_.problem, .kind = common_.request().kind, .call = sparse_call(run.ops)};
  work.problem.seq = seq;
  SparseCost found = sparse_attention_cost(*request_.model, work, plan, kernels_, ranks);
  return {.cost = found.cost,
          .spread = found.spread,
          .across = ranks.nodes() > 1 ? 1.0 : 0.0,
          .bound_by = "gathering keys for sparse attention",
          .lowering = {}};
}

const StepEvaluator::Call* StepEvaluator::call_of(const StepPlan& plan, const LayerRun& run) {
  return run.attends                         ? &attention(plan, problem_of(run, request_))
         : run.blocks.mixer == Mixer::linear ? &linear(plan)
         : run.blocks.keys.any()             ? &sparse(plan, run)
                                             : nullptr;
}

std::vector<AttentionCost> StepEvaluator::costs_of(const StepPlan& plan) {
  std::vector<AttentionCost> costs;
  for (const LayerRun& run : common_.layers(plan.to_experts).runs) {
    const Call* call = call_of(plan, run);
    costs.push_back(call != nullptr ? call->cost : AttentionCost{});
  }
  return costs;
}

std::int64_t StepEvaluator::padded_seq(const StepPlan& plan) const {
  const std::int64_t dealt =
      padded(attention_problem(request_, plan, request_.problem), plan.attention).seq *
      std::max<std::int64_t>(1, request_.model->diffusion.frames);
  // Tensor ranks cut a sequence rank's tokens once more.
  const std::int64_t unit = unit_of(plan.attention) * (plan.tensor_sequence ? plan.tensor : 1);
  return (dealt + unit - 1) / unit * unit;
}

std::vector<MemoryBytes> StepEvaluator::memory(const StepPlan& plan) {
  return step_memory(common_, plan, padded_seq(plan), costs_of(plan));
}

std::vector<MemoryBytes> StepEvaluator::memory_around_attention(const StepPlan& plan) {
  return step_memory(common_, plan, padded_seq(plan), {});
}

StepEvaluation StepEvaluator::evaluate(const StepPlan& plan) {
  const Model& model = *request_.model;
  if (const WhyNot rule = why_not(model, plan); !rule.legal()) {
    throw InputError("plan", fmt::format("{} (rule: {})", rule.detail, rule.rule));
  }
  if (const WhyNot reason =
          why_not(strategies::by_name(plan.attention.strategy, "--strategy"), request_.phase);
      !reason.legal()) {
    throw InputError("plan", fmt::format("{} (rule: {})", reason.detail, reason.rule));
  }
  if (plan.world() > request_.cluster->gpus()) {
    throw InputError("plan",
                     fmt::format("{} ranks on {} GPUs", plan.world(), request_.cluster->gpus()));
  }
  return timed(plan, memory(plan));
}

StepEvaluation StepEvaluator::timed(const StepPlan& plan, std::vector<MemoryBytes> memory) {
  StepEvaluation e{.plan = plan, .memory = std::move(memory)};
  std::vector<AttentionCost> costs;
  double spread = 0;
  for (const LayerRun& run : common_.layers(plan.to_experts).runs) {
    const Call* found = call_of(plan, run);
    costs.push_back(found != nullptr ? found->cost : AttentionCost{});
    if (found == nullptr) {
      continue;
    }
    const Call& call = *found;
    spread = std::max(spread, call.spread);
    if (call.across >= e.across) {
      e.across = call.across;
      e.attention_bound_by = call.bound_by;
    }
    for (const std::string& word : call.lowering) {
      if (std::ranges::find(e.lowering, word) == e.lowering.end()) {
        e.lowering.push_back(word);
      }
    }
  }
  e.cost = step_cost(common_, plan, padded_seq(plan), costs);
  const StepLinks links = common_.links(plan);
  for (std::size_t i = 0; i < step_axes; ++i) {
    const auto axis = static_cast<StepAxis>(i);
    e.between_nodes[i] = !is_of_attention(axis) && links.nodes(axis) > 1;
  }
  const Bytes tensors = fullest(e.memory).tensors();
  e.fits = tensors <= request_.memory;
  const double crowded = practice_.crowded.value;
  e.crowded = crowded > 0 && e.fits && tensors.as_double() > crowded * request_.memory.as_double();
  if (e.crowded) {
    e.cost.parts[StepPart::launch] += (practice_.crowded_slowdown.value - 1) * e.cost.parts.total();
  }

  const StepSeconds& parts = e.cost.parts;
  const auto part = [&](StepPart p, double relative) { return std::pow(parts[p] * relative, 2); };
  // Of collectives among others at least so much, and what the links are off.
  constexpr double transfers = 0.2;
  const sim::Cluster& cluster = *request_.cluster;
  const double intra = std::max(transfers, spread_of(cluster.transport(sim::Scope::intra)));
  const double inter = cluster.nodes() > 1
                           ? std::max(transfers, spread_of(cluster.transport(sim::Scope::inter)))
                           : transfers;
  const double optimizer =
      moves_optimizer(plan.offload) ? practice_.host_update.spread : practice_.optimizer.spread;
  double variance =
      part(StepPart::attention, spread) + part(StepPart::gemm, kernels_.gemm_spread()) +
      part(StepPart::elementwise, practice_.elementwise.spread) +
      part(StepPart::optimizer, optimizer) + part(StepPart::launch, practice_.host_kernel.spread);
  for (const auto& [p, across] : across_nodes(e)) {
    variance += part(p, across * inter) + part(p, (1 - across) * intra);
  }
  variance += std::pow(parts.total() * practice_.unexplained.value, 2);
  const Seconds off(std::sqrt(variance));
  e.low = std::max(Seconds(0), e.step() - off);
  e.high = e.step() + off;
  e.spreads[place(Component::attention)] = spread;
  e.spreads[place(Component::gemm)] = kernels_.gemm_spread();
  e.spreads[place(Component::elementwise)] =
      std::sqrt(part(StepPart::elementwise, practice_.elementwise.spread) +
                part(StepPart::optimizer, optimizer)) /
      std::max(parts[StepPart::elementwise] + parts[StepPart::optimizer],
               std::numeric_limits<double>::min());
  e.spreads[place(Component::launch)] = practice_.host_kernel.spread;
  e.spreads[place(Component::intra_comm)] = intra;
  e.spreads[place(Component::inter_comm)] = inter;
  e.spreads[place(Component::bubble)] = kernels_.gemm_spread();
  return e;
}

StepTimeline StepEvaluator::timeline(const StepPlan& plan) {
  return step_timeline(common_, plan, padded_seq(plan), costs_of(plan));
}

/// Axes around attention count as between nodes, all of them, if one of their groups leaves a node.
std::array<std::pair<StepPart, double>, 5> StepEvaluator::across_nodes(
    const StepEvaluation& e) const {
  const auto leave = [&](std::initializer_list<StepAxis> axes) {
    return std::ranges::any_of(
        axes, [&](StepAxis axis) { return e.between_nodes[static_cast<std::size_t>(axis)]; });
  };
  const auto part = [](bool between) { return between ? 1.0 : 0.0; };
  const bool experts = request_.model->experts.count > 0;
  return {{{StepPart::cp, e.across},
           {StepPart::tp, part(leave({StepAxis::tensor}))},
           {StepPart::ep, part(leave({StepAxis::expert, StepAxis::expert_tensor}))},
           {StepPart::dp, part(leave({StepAxis::weights, StepAxis::replicas}) ||
                               (experts && leave({StepAxis::expert_weights})))},
           {StepPart::pp, part(leave({StepAxis::stages}))}}};
}

ComponentSeconds StepEvaluator::parts_of(const StepEvaluation& e) const {
  const StepSeconds& s = e.cost.parts;
  ComponentSeconds parts{};
  parts[place(Component::attention)] = s[StepPart::attention];
  parts[place(Component::elementwise)] = s[StepPart::elementwise] + s[StepPart::optimizer];
  parts[place(Component::gemm)] = s[StepPart::gemm];
  parts[place(Component::launch)] = s[StepPart::launch];
  parts[place(Component::bubble)] = s[StepPart::bubble];
  for (const auto& [part, across] : across_nodes(e)) {
    parts[place(Component::inter_comm)] += across * s[part];
    parts[place(Component::intra_comm)] += (1 - across) * s[part];
  }
  return parts;
}

namespace {

/// What decides: attention's own reason where attention does.
std::string step_bound_by(const StepEvaluation& e) {
  StepPart most = StepPart::attention;
  for (std::size_t i = 1; i < step_parts; ++i) {
    if (e.cost.parts[static_cast<StepPart>(i)] > e.cost.parts[most]) {
      most = static_cast<StepPart>(i);
    }
  }
  if (e.crowded) {
    return "the allocator, as memory is nearly full";
  }
  switch (most) {
    case StepPart::attention:
      return "attention kernels";
    case StepPart::cp:
      return e.attention_bound_by;
    case StepPart::gemm:
      return "GEMMs around attention";
    case StepPart::elementwise:
      return "small kernels";
    case StepPart::optimizer:
      return "the optimizer";
    case StepPart::launch:
      return moves_activations(e.plan.offload) ? "the bus to the host, where activations wait"
             : moves_optimizer(e.plan.offload) ? "the host, which adds gradients and issues kernels"
                                               : "the host, which issues kernels";
    case StepPart::tp:
      return "transfers of tensor parallelism";
    case StepPart::ep:
      return "transfers between experts";
    case StepPart::dp:
      return "traffic of weights and gradients";
    case StepPart::pp:
      return "messages between pipeline stages";
    case StepPart::bubble:
      return "the pipeline's bubble";
  }
  throw InternalError("unknown part of a step");
}

}  // namespace

Candidate StepEvaluator::candidate(const StepEvaluation& e) {
  Candidate c{.plan = e.plan,
              .strategy = &strategies::by_name(e.plan.attention.strategy, "--strategy")};
  const Problem call = attention_problem(request_, e.plan, request_.problem);
  const Problem whole = padded(call, e.plan.attention);
  c.padding_tokens = std::max<std::int64_t>(0, padded_seq(e.plan) - request_.problem.seq);
  c.padding_heads = whole.q_heads - call.q_heads;
  const StepSeconds& s = e.cost.parts;
  Prediction& p = c.predicted;
  p.step = e.step();
  p.low = e.low;
  p.high = e.high;
  p.parts_s = s;
  p.parts = parts_of(e);
  p.attention = Seconds(s[StepPart::attention] + s[StepPart::cp]);
  p.compute = Seconds(s[StepPart::attention] + s[StepPart::gemm] + s[StepPart::elementwise] +
                      s[StepPart::optimizer]);
  p.exposed = Seconds(s[StepPart::cp] + s[StepPart::tp] + s[StepPart::ep] + s[StepPart::dp] +
                      s[StepPart::pp]);
  p.hidden = Seconds(e.cost.hidden);
  p.stage = e.cost.slowest;
  p.sent = step_sent(common_, e.plan, padded_seq(e.plan), costs_of(e.plan), p.stage);
  p.by_stage = e.memory;
  p.memory = fullest(e.memory);
  p.fits = e.fits;
  const std::int64_t batch = e.plan.global_batch();
  p.tflops_per_gpu =
      counted_flops(request_, batch).value() / p.step.count() / e.plan.world() / 1e12;
  p.mfu = p.tflops_per_gpu * 1e12 /
          matrix_rate(kernels_.gpu(), e.plan.format, request_.problem.dtype, "--dtype").value();
  p.tokens_per_s = static_cast<double>(request_.problem.seq * batch) / p.step.count();
  c.bound_by = step_bound_by(e);
  c.lowering = e.lowering;
  return c;
}

// Buffers of what is simulated grow with the tokens of a rank, weights that it keeps with their
// square. States and picked keys do not, and are worked out anew.
std::int64_t StepEvaluator::longest(const StepPlan& plan) {
  const std::vector<LayerRun>& runs = common_.layers(plan.to_experts).runs;
  const std::vector<AttentionCost> costs = costs_of(plan);
  const double now = static_cast<double>(padded_seq(plan));
  const std::int64_t unit = unit_of(plan.attention) * (plan.tensor_sequence ? plan.tensor : 1);
  // Behind a cache some buffers grow with the sequence, and some with all keys.
  const auto behind_cache = [&](std::int64_t seq) {
    Problem call = attention_problem(request_, plan, request_.problem);
    call.seq = seq;
    const Bytes all = strategies::by_name(plan.attention.strategy, "--strategy")
                          .closed_form(call, plan.attention, Phase::forward, request_.build)
                          .peak_buffers;
    const Bytes counted = counted_as_activations(padded(call, plan.attention), plan.attention, 0);
    return std::max(0.0, (all - counted).as_double());
  };
  const double of_cache = request_.problem.cached > 0 ? behind_cache(padded_seq(plan)) : 0;
  const auto grown = [&](const LayerRun& run, AttentionCost cost, std::int64_t seq) {
    if (!run.attends && run.blocks.mixer == Mixer::linear) {
      return linear_at(plan, seq).cost;
    }
    if (!run.attends && run.blocks.keys.any()) {
      return sparse_at(plan, run, seq).cost;
    }
    const double more = static_cast<double>(seq) / now;
    const auto times = [](Bytes bytes, double by) {
      return Bytes(std::llround(std::min(1e17, bytes.as_double() * by)));
    };
    cost.buffers =
        times(cost.buffers - cost.kept, of_cache > 0 ? behind_cache(seq) / of_cache : more) +
        times(cost.kept, more * more);
    cost.kept = times(cost.kept, more * more);
    return cost;
  };
  return longest_seq(
      [&](std::int64_t seq) {
        std::vector<AttentionCost> at;
        for (std::size_t i = 0; i < runs.size(); ++i) {
          at.push_back(grown(runs[i], costs[i], seq));
        }
        return fullest(step_memory(common_, plan, seq, at)).tensors();
      },
      {.usable = request_.memory, .unit = unit});
}

Evaluation evaluate(const Request& request, const StepPlan& plan,
                    const EvaluationOptions& options) {
  if (!request.whole_step()) {
    Evaluation e = evaluate(request, plan.attention, options);
    e.candidate.predicted.max_seq = Evaluator(request).longest(e.candidate);
    return e;
  }
  StepEvaluator evaluator(request);
  Evaluation e;
  if (!request.model->indexer) {
    const AttentionQuestion question = attention_question(request, plan, request.problem);
    e = evaluate(question.request, plan.attention, options);
  }
  e.candidate = evaluator.candidate(evaluator.evaluate(plan));
  e.candidate.predicted.max_seq = evaluator.longest(plan);
  return e;
}

Effort effort_of(const Request& request, const StepPlan& plan, const EvaluationOptions& options) {
  if (!request.whole_step()) {
    return effort_of(request, plan.attention, options);
  }
  Effort effort;
  if (!request.model->indexer) {
    const AttentionQuestion question = attention_question(request, plan, request.problem);
    effort = effort_of(question.request, plan.attention, options);
  }
  constexpr double of_op = 64;      // bytes
  constexpr double questions = 40;  // of memory: the longest sequence
  const double ops =
      2.0 * plan.pipeline * plan.virtual_stages * static_cast<double>(plan.micro_batches);
  effort.ops += ops * questions / 10;
  effort.memory += Bytes(static_cast<std::int64_t>(ops * of_op));
  return effort;
}

}  // namespace spp
