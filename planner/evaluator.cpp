// One class in one file: bounds, memory, the model around attention and the simulation of a plan
// share the request and its costs; splitting them would spread that state.
#include "planner/evaluator.hpp"

#include "base/error.hpp"
#include "schedule/arena.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spp {
namespace {

constexpr std::array phases{Phase::forward, Phase::backward};

/// Mean relative spread of what large messages reach on a transport.
double spread_of(const TransportSpec& transport) {
  double sum = 0;
  int count = 0;
  for (const auto& segments : transport.segments) {
    if (!segments.empty()) {
      sum += segments.back().fraction.spread;
      ++count;
    }
  }
  return count > 0 ? sum / count : 0;
}

std::size_t index(Component c) { return static_cast<std::size_t>(c); }
std::size_t index(Phase p) { return static_cast<std::size_t>(p); }

/// What the fullest rank's memory holds while ops overlap, relative to the fullest rank's least.
double memory_of_overlap(const Schedule& schedule, const sim::Folding& folding) {
  Bytes least{};
  Bytes taken{};
  for (const Rank rank : folding.representatives()) {
    const Arena arena = plan_arena(schedule.program(rank), schedule.problem);
    least = std::max(least, arena.peak_live);
    taken = std::max(taken, arena.total());
  }
  return taken.as_double() / least.as_double();
}

std::string scope_word(sim::Scope scope) {
  return scope == sim::Scope::inter ? "inter-node" : "intra-node";
}

std::string comm_word(CommKind kind, StreamId stream, const std::vector<std::string>& streams) {
  switch (kind) {
    case CommKind::send_recv:
      return streams.at(stream.index()) == "gradient" ? "gradient hop" : "ring hop";
    case CommKind::all_to_all:
      return "all-to-all";
    case CommKind::all_gather:
      return "all-gather";
    case CommKind::reduce_scatter:
      return "reduce-scatter";
    case CommKind::all_reduce:
      return "all-reduce";
  }
  throw InternalError("unknown kind of communication");
}

}  // namespace

Evaluator::Evaluator(const Request& request)
    : request_(request),
      kernels_(request.cluster->machine().gpu,
               request.stack != nullptr
                   ? attention_of(*request.stack, request.cluster->machine().gpu.generation,
                                  request.year)
                   : request.cluster->machine().gpu.generation.attention),
      bounds_(*request.cluster, request.problem, kernels_) {
  const sim::Cluster& cluster = *request.cluster;
  const GpuSpec& gpu = cluster.machine().gpu;
  costs_.local_copy =
      Bandwidth(gpu.memory_bandwidth.value.value() * gpu.generation.memory_efficiency.value);
  const auto share = [&](sim::Scope scope) {
    const TransportSpec& transport = cluster.transport(scope);
    return transport.cpu_share
               ? 0  // messages take core time while they move (sim/lowering)
               : static_cast<double>(transport.sms.value) / static_cast<double>(gpu.sms.value);
  };
  costs_.sm_share = {0, share(sim::Scope::intra),
                     cluster.nodes() > 1 ? share(sim::Scope::inter) : 0};

  const double forward = kernels_.attention_spread(request.problem, Phase::forward);
  spreads_[index(Component::attention)] =
      needs(Phase::backward)
          ? std::max(forward, kernels_.attention_spread(request.problem, Phase::backward))
          : forward;
  spreads_[index(Component::elementwise)] = gpu.generation.memory_efficiency.spread;
  spreads_[index(Component::gemm)] = gpu.generation.gemm_efficiency.spread;
  spreads_[index(Component::intra_comm)] = spread_of(cluster.transport(sim::Scope::intra));
  spreads_[index(Component::inter_comm)] =
      cluster.nodes() > 1 ? spread_of(cluster.transport(sim::Scope::inter)) : 0;
  spreads_[index(Component::launch)] = gpu.generation.launch.spread;

  if (with_model()) {
    if (const std::string why = not_planned(*request.model); !why.empty()) {
      throw InputError(fmt::format("model '{}'", request.model->name), why);
    }
    const LocalTokens local{.tokens = request.problem.seq / request.gpus,
                            .batch = request.problem.batch,
                            .dtype = request.problem.dtype};
    const StepKind kind = request.phase == StepPhase::train ? StepKind::train : StepKind::prefill;
    layer_ = layer_of(*request.model);
    ends_ = ends_of(*request.model, kind);
    memory_ = memory_model(*request.model, request.problem.dtype);
    const BlockRequest block{.local = local, .step = kind};
    const BlockCost layer = crowded(block_cost(layer_, block, kernels_));
    const BlockCost ends = crowded(block_cost(ends_, block, kernels_));
    const double layers = static_cast<double>(request.model->layers);
    around_least_ = layers * layer.forward.count() + ends.forward.count();
    if (kind == StepKind::train) {
      around_least_ += layers * layer.backward.count() + ends.backward.count();
    }
  }
}

Seconds Evaluator::kernel(const Kernel& kernel, const Shapes& shapes,
                          const SequencePlan& plan) const {
  Seconds time = kernels_.of(kernel, shapes);
  const bool forward = std::holds_alternative<AttentionForward>(kernel);
  if (forward || std::holds_alternative<AttentionBackward>(kernel)) {
    const GenerationSpec& generation = kernels_.gpu().generation;
    const auto& group = forward ? generation.group_forward : generation.group_backward;
    if (group && plan.ranks() > 1) {
      // The busier a GPU, the nearer it is to its limit of power.
      const Seconds best =
          kernels_.attention_at_best(attention_flops(kernel, *shapes.problem), *shapes.problem,
                                     forward ? Phase::forward : Phase::backward);
      time += (group->value - 1) * best;
    }
    if (request_.stack != nullptr && plan.ring > 1) {
      const auto own = request_.stack->layouts.find(plan.layout);
      time = own == request_.stack->layouts.end() ? time : time * own->second.attention.value;
    }
    return time;
  }
  return request_.stack != nullptr ? time * traffic_factor(*request_.stack, plan.layout, kernel)
                                   : time;
}

sim::SimulationCosts Evaluator::costs_of(const SequencePlan& plan, Phase phase) const {
  sim::SimulationCosts costs = costs_;
  costs.kernel = [this, &plan](const Kernel& kernel, const Shapes& shapes) {
    return this->kernel(kernel, shapes, plan);
  };
  const StackSpec* stack = request_.stack;
  if (stack == nullptr) {
    costs.host.fill(kernels_.launch());
    return costs;
  }
  costs.host = host_times(*stack, kernels_.gpu().generation, plan.layout, phase);
  costs.call = stack->host.call ? stack->host.call->value : Seconds(0);
  if (const auto& beside = stack->network_beside_kernels) {
    costs.beside_kernels =
        (phase == Phase::forward ? beside->speed_forward : beside->speed_backward).value;
    costs.beside_after = beside->after.value;
  }
  return costs;
}

BlockCost Evaluator::crowded(BlockCost cost) const {
  const double times = request_.cluster->ranks_per_core();
  cost.forward *= times;
  cost.backward *= times;
  cost.recompute *= times;
  return cost;
}

bool Evaluator::needs(Phase phase) const {
  switch (request_.phase) {
    case StepPhase::forward:
    case StepPhase::prefill:
      return phase == Phase::forward;
    case StepPhase::backward:
      return phase == Phase::backward;
    case StepPhase::forward_backward:
    case StepPhase::train:
      return true;
  }
  throw InternalError("unknown phase");
}

double Evaluator::lower_bound(const SequencePlan& plan, const Strategy& strategy) const {
  double attention = 0;
  for (const Phase phase : phases) {
    if (needs(phase)) {
      attention += bounds_.attention_call(
          strategy.closed_form(request_.problem, plan, phase, request_.build), plan, phase);
    }
  }
  return whole_step(attention);
}

double Evaluator::walked_call(const SequencePlan& plan, const Strategy& strategy,
                              Phase phase) const {
  const Schedule schedule = strategy.build(request_.problem, plan, phase, request_.build);
  const ClosedForm form = strategy.closed_form(request_.problem, plan, phase, request_.build);
  const AttentionMesh mesh(plan);
  // Under a causal mask the last chunk has most work; of uneven heads the first part has most.
  const int member = mesh.team() - 1;
  const Rank first = mesh.rank({.ulysses = 0, .member = member, .position = 0, .group = member});
  const Rank last =
      mesh.rank({.ulysses = 0, .member = member, .position = mesh.sub_ring() - 1, .group = member});
  return std::max(bounds_.attention_call(form, plan, phase, walk(schedule, plan, first)),
                  bounds_.attention_call(form, plan, phase, walk(schedule, plan, last)));
}

BoundModel::Walk Evaluator::walk(const Schedule& schedule, const SequencePlan& plan,
                                 Rank rank) const {
  const sim::Placement placement(*request_.cluster, plan.ranks(), plan.rank_order);
  ProgramCursor cursor(schedule.program(rank));
  const Shapes shapes{.problem = &schedule.problem, .buffers = cursor.buffers(), .rank = rank};
  BoundModel::Walk walk;
  sim::LoweredComm lowered;
  const bool cpu_ranks = request_.cluster->machine().intra.cpu_share.has_value();
  double between = 0;      // kernels since the last attention
  double sms_between = 0;  // the same of communication kernels
  bool first_exchange = true;
  double last_exchange = 0;
  while (const Op* op = cursor.next()) {
    if (const auto* transfer = std::get_if<Transfer>(&op->body)) {
      const bool exchange = std::holds_alternative<Exchange>(*transfer);
      if (exchange || cpu_ranks) {
        sim::lower(*transfer, shapes, placement, lowered);
      }
      if (cpu_ranks) {
        for (const sim::Traffic& flow : lowered.flows) {
          walk.cpu += flow.bytes * flow.cpu / 2;
        }
      }
      if (!exchange) {
        continue;
      }
      const double seconds =
          lowered.flows.empty()
              ? 0
              : lowered.flows[0].latency + lowered.flows[0].bytes / lowered.flows[0].rate_cap;
      if (walk.core > 0) {
        sms_between += seconds * costs_.sm_share.at(static_cast<std::size_t>(lowered.scope));
      }
      last_exchange = seconds;
      if (plan.team > 1 && std::exchange(first_exchange, false)) {
        walk.exchange = seconds;
      }
    } else {
      const double seconds = kernel(std::get<Kernel>(op->body), shapes, plan).count();
      walk.kernels += seconds;
      if (is_attention(kind_of(op->body))) {
        walk.core += between + seconds;  // what stands between two attention kernels is core, too
        walk.sms += sms_between;
        between = sms_between = 0;
      } else if (walk.core > 0) {
        between += seconds;
      }
    }
  }
  if (plan.team > 1 && schedule.phase == Phase::backward) {
    walk.exchange += last_exchange;  // the return
  }
  return walk;
}

double Evaluator::walked_bound(const SequencePlan& plan, const Strategy& strategy) const {
  double attention = 0;
  for (const Phase phase : phases) {
    attention += needs(phase) ? walked_call(plan, strategy, phase) : 0;
  }
  return whole_step(attention);
}

double Evaluator::whole_step(double attention) const {
  return with_model() ? attention * static_cast<double>(request_.model->layers) + around_least_
                      : attention;
}

Bytes Evaluator::attention_buffers(const SequencePlan& plan, const Strategy& strategy,
                                   std::int64_t seq, const Overlap& overlap) const {
  Problem problem = request_.problem;
  problem.seq = seq;
  const Problem padding = padded(problem, plan);
  const std::int64_t token =
      problem.batch * problem.head_dim * size_of(problem.dtype) * (padding.seq / plan.ranks());
  Bytes most{};
  for (const Phase phase : phases) {
    if (!needs(phase)) {
      continue;
    }
    const Bytes least = strategy.closed_form(problem, plan, phase, request_.build).peak_buffers;
    Bytes bytes(std::llround(least.as_double() * overlap.at(index(phase))));
    if (with_model()) {  // q, k, v (backward: out and its gradient, too) are counted as activations
      const std::int64_t heads = (phase == Phase::forward ? 1 : 3) * std::int64_t{padding.q_heads} +
                                 2 * std::int64_t{padding.kv_heads};
      bytes = std::max(Bytes(0), bytes - Bytes(token * heads));
    }
    most = std::max(most, bytes);
  }
  return most;
}

LocalTokens Evaluator::local_tokens(const SequencePlan& plan, std::int64_t seq) const {
  Problem problem = request_.problem;
  problem.seq = seq;
  return {.tokens = padded(problem, plan).seq / plan.ranks(),
          .batch = problem.batch,
          .dtype = problem.dtype};
}

MemoryBytes Evaluator::memory_at(const SequencePlan& plan, const Strategy& strategy,
                                 const MemoryCase& at) const {
  const Bytes buffers = attention_buffers(plan, strategy, at.seq, at.overlap);
  if (!with_model()) {
    MemoryBytes memory;
    memory.attention_buffers = buffers;
    return memory;
  }
  return memory_of(
      memory_, {.tokens = local_tokens(plan, at.seq).tokens,
                .batch = request_.problem.batch,
                .ranks = plan.ranks(),
                .zero = at.zero,
                .recompute = at.recompute,
                .step = request_.phase == StepPhase::train ? StepKind::train : StepKind::prefill,
                .attention_buffers = buffers});
}

Bytes Evaluator::least_memory(const SequencePlan& plan, const Strategy& strategy) const {
  Bytes least(INT64_MAX);
  for (const auto& [zero, recompute] : step_variants(request_)) {
    least = std::min(least,
                     memory_at(plan, strategy,
                               {.seq = request_.problem.seq, .zero = zero, .recompute = recompute})
                         .total());
  }
  return least;
}

// Both phases have the same symmetry, so that the folding is found once.
sim::Simulation Evaluator::run(const SequencePlan& plan, const Strategy& strategy, Phase phase,
                               const EvaluationOptions& options, Findings& findings,
                               double limit) const {
  const Schedule schedule = strategy.build(request_.problem, plan, phase, request_.build);
  const sim::Placement placement(*request_.cluster, plan.ranks(), plan.rank_order);
  std::optional<sim::Folding>& folding = findings.folding;
  if (!folding) {
    folding = options.folding != nullptr ? *options.folding : fold(plan, strategy, options.fold);
  }
  sim::Simulation simulation =
      sim::simulate(schedule, placement, costs_of(plan, phase),
                    {.folding = &*folding,
                     .stop_after = Seconds(limit),
                     .timeline = options.timeline,
                     .steps = options.steps,
                     .watch = watch_of(plan, strategy, options, findings)});
  findings.ops += static_cast<double>(simulation.ops);
  if (simulation.complete) {
    findings.overlap.at(index(phase)) = memory_of_overlap(schedule, *folding);
  }
  if (simulation.complete && kernels_.measured()) {
    findings.measured.at(index(phase)) = measured_times(schedule, plan, simulation);
  }
  return simulation;
}

MeasuredTimes Evaluator::measured_times(const Schedule& schedule, const SequencePlan& plan,
                                        const sim::Simulation& simulation) const {
  MeasuredTimes times;
  double alone = 0;  // all attention kernels
  ProgramCursor cursor(schedule.program(simulation.critical));
  const Shapes shapes{
      .problem = &schedule.problem, .buffers = cursor.buffers(), .rank = simulation.critical};
  while (const Op* op = cursor.next()) {
    const auto* work = std::get_if<Kernel>(&op->body);
    const auto shape = work != nullptr ? shape_of(*work, schedule.problem) : std::nullopt;
    if (!shape) {
      continue;
    }
    const double seconds = kernel(*work, shapes, plan).count();
    alone += seconds;
    const AttentionKey block = key_of(*shape);
    if (const auto error = kernels_.standard_error(block)) {
      MeasuredTime& time = times[block];
      time.seconds += seconds;
      time.standard_error = *error;
    }
  }
  for (auto& [block, time] : times) {
    time.seconds *= simulation.breakdown.attention.count() / alone;
  }
  return times;
}

Evaluator::Around Evaluator::around(const SequencePlan& plan, const MemoryBytes& memory, int zero,
                                    Recompute recompute, Seconds forward, Seconds backward) const {
  const Model& model = *request_.model;
  const bool train = request_.phase == StepPhase::train;
  const LocalTokens local = local_tokens(plan, request_.problem.seq);
  Around a{.zero = zero, .recompute = recompute, .memory = memory};
  const StepKind step = train ? StepKind::train : StepKind::prefill;
  a.layer =
      crowded(block_cost(layer_, {.local = local, .step = step, .recompute = recompute}, kernels_));
  a.ends = crowded(block_cost(ends_, {.local = local, .step = step}, kernels_));
  const Seconds again = recompute == Recompute::full ? forward : Seconds(0);
  const Seconds layer_forward = a.layer.forward + forward;
  const Seconds layer_backward = a.layer.backward + a.layer.recompute + backward + again;
  const sim::Placement placement(*request_.cluster, plan.ranks(), plan.rank_order);
  const RankGroup everyone{.first = 0, .stride = 1, .size = plan.ranks()};
  a.zero_cost =
      zero_cost(model,
                {.ranks = plan.ranks(),
                 .zero = zero,
                 .parameter = request_.problem.dtype,
                 .train = train,
                 .times = {.forward_layer = layer_forward, .backward_layer = layer_backward}},
                [&](CommKind kind, Bytes sent) {
                  return sim::collective_time(kind, everyone, sent, placement);
                });
  const auto layers = static_cast<double>(model.layers);
  a.step = layers * layer_forward.count() + a.ends.forward.count() + a.zero_cost.exposed.count();
  if (train) {
    const std::int64_t shard = zero == 0 ? 1 : plan.ranks();
    const std::int64_t weights = memory_.weights;
    a.optimizer = optimizer_cost({.updated = (weights + shard - 1) / shard,
                                  .gradients = zero >= 2 ? (weights + shard - 1) / shard : weights},
                                 kernels_) *
                  request_.cluster->ranks_per_core();
    a.step += layers * layer_backward.count() + a.ends.backward.count() + a.optimizer.count();
  }
  return a;
}

Evaluator::Around Evaluator::best_around(const SequencePlan& plan, const Strategy& strategy,
                                         const Overlap& overlap, Seconds forward,
                                         Seconds backward) const {
  std::optional<Around> best;
  bool best_fits = false;
  for (const auto& [zero, recompute] : step_variants(request_)) {
    const MemoryBytes memory = memory_at(
        plan, strategy,
        {.seq = request_.problem.seq, .zero = zero, .recompute = recompute, .overlap = overlap});
    Around a = around(plan, memory, zero, recompute, forward, backward);
    const bool fits = memory.total() <= request_.memory;
    const bool better = !best || (fits != best_fits ? fits
                                  : fits            ? a.step < best->step
                                                    : memory.total() < best->memory.total());
    if (better) {
      best = std::move(a);
      best_fits = fits;
    }
  }
  ensure(best.has_value(), "no way to run the model around attention");
  return *best;
}

void Evaluator::add_attention(Prediction& p, const sim::Simulation& s,
                              const MeasuredTimes& measured, double times) const {
  p.parts[index(Component::attention)] += times * s.breakdown.attention.count();
  p.parts[index(Component::elementwise)] += times * s.breakdown.other_kernels.count();
  p.parts[index(Component::launch)] += times * s.breakdown.launch_bound.count();
  double named = 0;
  for (const sim::Bottleneck& b : s.bottlenecks) {
    named += b.exposed.count();
    p.parts[index(b.scope == sim::Scope::inter ? Component::inter_comm : Component::intra_comm)] +=
        times * b.exposed.count();
  }
  p.parts[index(Component::intra_comm)] += times * (s.breakdown.exposed.count() - named);
  p.attention += times * s.makespan;
  p.exposed += times * s.breakdown.exposed;
  p.hidden += times * s.breakdown.hidden;
  for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
    p.comm_bytes_per_rank[kind] += s.sent[kind] * static_cast<std::int64_t>(times);
  }
  for (const auto& [block, time] : measured) {  // phases have blocks of their own
    p.measured[block] = {.seconds = times * time.seconds, .standard_error = time.standard_error};
  }
}

void Evaluator::fill_prediction(Evaluation& e, const SequencePlan& plan, const Strategy& strategy,
                                const Findings& findings) const {
  Candidate& c = e.candidate;
  Prediction& p = c.predicted;
  const Seconds forward = e.forward ? e.forward->makespan : Seconds(0);
  const Seconds backward = e.backward ? e.backward->makespan : Seconds(0);
  double forward_calls = 1;
  double backward_calls = 1;
  if (with_model()) {
    const Around a = best_around(plan, strategy, findings.overlap, forward, backward);
    const auto layers = static_cast<double>(request_.model->layers);
    forward_calls = layers * (a.recompute == Recompute::full ? 2 : 1);
    backward_calls = layers;
    c.zero = a.zero;
    c.recompute = a.recompute;
    p.memory = a.memory;
    double gemm = layers * a.layer.forward.count() + a.ends.forward.count();
    if (request_.phase == StepPhase::train) {
      gemm += layers * (a.layer.backward + a.layer.recompute).count() + a.ends.backward.count();
      p.parts[index(Component::elementwise)] += a.optimizer.count();
    }
    p.parts[index(Component::gemm)] += gemm;
    p.parts[index(request_.cluster->nodes() > 1 ? Component::inter_comm : Component::intra_comm)] +=
        a.zero_cost.exposed.count();
    p.exposed += a.zero_cost.exposed;
    p.hidden += a.zero_cost.hidden;
    for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
      p.comm_bytes_per_rank[kind] += a.zero_cost.sent[kind];
    }
  } else {
    p.memory =
        memory_at(plan, strategy, {.seq = request_.problem.seq, .overlap = findings.overlap});
  }
  if (e.forward) {
    add_attention(p, *e.forward, findings.measured.at(index(Phase::forward)), forward_calls);
  }
  if (e.backward) {
    add_attention(p, *e.backward, findings.measured.at(index(Phase::backward)), backward_calls);
  }
  double variance = 0;
  for (std::size_t i = 0; i < components; ++i) {
    p.step += Seconds(p.parts[i]);
    variance += std::pow(p.parts[i] * spreads_[i], 2);
  }
  if (request_.stack != nullptr && request_.stack->unexplained) {
    variance += std::pow(p.step.count() * request_.stack->unexplained->value, 2);
  }
  p.low = std::max(Seconds(0), p.step - Seconds(std::sqrt(variance)));
  p.high = p.step + Seconds(std::sqrt(variance));
  p.compute = p.step - p.exposed - Seconds(p.parts[index(Component::launch)]);
  fill_rates(p, plan);
}

void Evaluator::fill_rates(Prediction& p, const SequencePlan& plan) const {
  const double flops = counted_flops(request_).value();
  p.tflops_per_gpu = flops / p.step.count() / plan.ranks() / 1e12;
  p.mfu = p.tflops_per_gpu * 1e12 /
          matrix_rate(kernels_.gpu(), request_.problem.dtype, "--dtype").value();
  p.tokens_per_s =
      static_cast<double>(request_.problem.seq * request_.problem.batch) / p.step.count();
}

std::int64_t Evaluator::longest_that_fits(const Candidate& c, const Overlap& overlap) const {
  const std::int64_t unit =
      std::int64_t{c.plan.ranks()} * (c.plan.layout == Layout::zigzag ? 2 : 1);
  return longest_seq(
      [&](std::int64_t seq) {
        return memory_at(c.plan, *c.strategy,
                         {.seq = seq, .zero = c.zero, .recompute = c.recompute, .overlap = overlap})
            .total();
      },
      {.usable = request_.memory, .unit = unit});
}

Candidate Evaluator::bounded(const SequencePlan& plan, const Strategy& strategy,
                             double bound) const {
  Candidate c = unsimulated(plan, strategy);
  c.simulated = false;
  Prediction& p = c.predicted;
  p.step = p.low = p.high = Seconds(bound);
  fill_rates(p, plan);
  p.fits = p.memory.total() <= request_.memory;
  p.max_seq = longest_that_fits(c, one_after_the_other);
  c.bound_by = "not simulated";
  return c;
}

Candidate Evaluator::unsimulated(const SequencePlan& plan, const Strategy& strategy) const {
  Candidate c{.plan = plan, .strategy = &strategy};
  const Problem padding = padded(request_.problem, plan);
  c.padding_tokens = padding.seq - request_.problem.seq;
  c.padding_heads = padding.q_heads - request_.problem.q_heads;
  for (const auto& [zero, recompute] : step_variants(request_)) {
    const MemoryBytes memory = memory_at(
        plan, strategy, {.seq = request_.problem.seq, .zero = zero, .recompute = recompute});
    if (c.predicted.memory.total() == Bytes(0) || memory.total() < c.predicted.memory.total()) {
      c.predicted.memory = memory;
      c.zero = zero;
      c.recompute = recompute;
    }
  }
  return c;
}

std::string Evaluator::bound_by(const Evaluation& e) const {
  const Prediction& p = e.candidate.predicted;
  constexpr double visible = 0.1;  // of the step; less is not what decides
  if (p.exposed.count() > visible * p.step.count()) {
    const sim::Bottleneck* worst = nullptr;
    for (const auto* s : {&e.forward, &e.backward}) {
      if (*s && !(*s)->bottlenecks.empty() &&
          (worst == nullptr || (*s)->bottlenecks[0].exposed > worst->exposed)) {
        worst = &(*s)->bottlenecks[0];
      }
    }
    if (worst != nullptr) {
      static const std::vector<std::string> streams{"compute",  "ulysses", "ring",
                                                    "gradient", "team",    "outer"};
      return fmt::format("{} {} (rank {} -> {}, {:.1f} GB/s)", scope_word(worst->scope),
                         comm_word(worst->kind, worst->stream, streams), worst->from.value,
                         worst->to.value, worst->rate.value() / 1e9);
    }
    return "ZeRO traffic of the weights";
  }
  if (p.parts[index(Component::gemm)] > p.parts[index(Component::attention)]) {
    return "GEMMs around attention";
  }
  return "attention kernels";
}

std::optional<Evaluation> Evaluator::evaluate(const SequencePlan& plan, const Strategy& strategy,
                                              const EvaluationOptions& options,
                                              double limit) const {
  Evaluation e;
  e.candidate = unsimulated(plan, strategy);
  Candidate& c = e.candidate;
  c.predicted = {};
  // What is left of the limit for attention calls, one forward and one backward.
  const double left =
      with_model() ? (limit - around_least_) / static_cast<double>(request_.model->layers) : limit;
  Findings findings;
  double spent = 0;
  for (const Phase phase : phases) {
    if (!needs(phase)) {
      continue;
    }
    if (spent > 0 && std::isfinite(left) && spent + walked_call(plan, strategy, phase) > left) {
      return std::nullopt;
    }
    sim::Simulation simulation = run(plan, strategy, phase, options, findings, left - spent);
    if (!simulation.complete) {
      return std::nullopt;
    }
    spent += simulation.makespan.count();
    (phase == Phase::forward ? e.forward : e.backward) = std::move(simulation);
  }
  fill_prediction(e, plan, strategy, findings);
  c.predicted.fits = c.predicted.memory.total() <= request_.memory;
  c.predicted.max_seq = longest_that_fits(c, findings.overlap);
  c.bound_by = bound_by(e);
  for (const auto* s : {&e.forward, &e.backward}) {
    if (*s) {
      for (const sim::Bottleneck& b : (*s)->bottlenecks) {
        const std::string word = fmt::format("{}: {}", to_string(b.kind), b.algorithm);
        if (std::ranges::find(c.lowering, word) == c.lowering.end()) {
          c.lowering.push_back(word);
        }
      }
    }
  }
  return e;
}

}  // namespace spp
