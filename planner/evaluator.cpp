// One class in one file: bounds, memory and the simulation of a plan share the request and its
// costs; splitting them would spread that state.
#include "planner/evaluator.hpp"

#include "base/error.hpp"
#include "parallel/attention/compose.hpp"
#include "planner/whole_blocks.hpp"
#include "schedule/arena.hpp"
#include "sim/demand.hpp"
#include "sim/rank_window.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spp {
namespace {

constexpr std::array phases{Phase::forward, Phase::backward};

std::size_t index(Component c) { return static_cast<std::size_t>(c); }
std::size_t index(Phase p) { return static_cast<std::size_t>(p); }

/// Whether another rank has the same buffers and ops on them, on whatever links it sends: a
/// rank that is further along an axis of symmetry, of alike ones neither at its first end nor last.
bool is_repeated(const Schedule& schedule, Rank rank) {
  return std::ranges::any_of(schedule.symmetry, [&](const SymmetricAxis& s) {
    if (s.under == AxisMoves::equal) {
      return false;
    }
    const std::size_t axis = schedule.mesh.find(s.axis).value();
    const int at = schedule.mesh.coordinate(rank, axis);
    return at > 0 && (s.under != AxisMoves::alike || at + 1 < schedule.mesh.axes()[axis].size);
  });
}

/// What the fullest rank's memory holds while ops overlap, relative to the fullest rank's least.
double memory_of_overlap(const Schedule& schedule, const sim::Folding& folding) {
  Bytes least{};
  Bytes taken{};
  for (const Rank rank : folding.representatives()) {
    if (is_repeated(schedule, rank)) {
      continue;
    }
    const Arena arena = plan_arena(schedule.program(rank));
    least = std::max(least, arena.peak_live);
    taken = std::max(taken, arena.total());
  }
  return taken.as_double() / least.as_double();
}

std::string scope_word(sim::Scope scope) {
  return scope == sim::Scope::inter ? "inter-node" : "intra-node";
}

std::string comm_word(CommKind kind, StreamId stream) {
  switch (kind) {
    case CommKind::send_recv:
      return stream == strategies::gradient_stream ? "gradient hop" : "ring hop";
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

/// Collectives that ranks pass on to each other.
bool in_rings(CommKind kind) { return kind != CommKind::send_recv && kind != CommKind::all_to_all; }

}  // namespace

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

SentBytes sent_in(const sim::Simulation& simulation) {
  SentBytes sent;
  for (std::size_t s = 0; s < simulation.sent_on.size(); ++s) {
    const StreamId stream(static_cast<int>(s));
    for (std::size_t kind = 0; stream != strategies::compute && kind < comm_kinds; ++kind) {
      sent.at(step_axis(strategies::axis_of(stream)), static_cast<CommKind>(kind)) +=
          simulation.sent_on[s][kind];
    }
  }
  return sent;
}

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
  spreads_[index(Component::elementwise)] = kernels_.streaming_spread();
  spreads_[index(Component::gemm)] = kernels_.gemm_spread();
  spreads_[index(Component::intra_comm)] = spread_of(cluster.transport(sim::Scope::intra));
  spreads_[index(Component::inter_comm)] =
      cluster.nodes() > 1 ? spread_of(cluster.transport(sim::Scope::inter)) : 0;
  spreads_[index(Component::launch)] = gpu.generation.launch.spread;
  spreads_[index(Component::bubble)] = spreads_[index(Component::attention)];
}

Seconds Evaluator::lone_kernel(const Kernel& kernel, const Shapes& shapes) const {
  if (shapes.problem->mask.pieces == 1) {
    return kernels_.of(kernel, shapes);
  }
  const std::optional<AttentionShape> shape = shape_of(kernel, *shapes.problem);
  if (!shape) {
    return kernels_.of(kernel, shapes);
  }
  const auto [at, is_new] = dealt_blocks_.try_emplace(key_of(*shape));
  if (is_new) {
    at->second = kernels_.attention(*shape);
  }
  return at->second;
}

Seconds Evaluator::kernel(const Kernel& kernel, const Shapes& shapes,
                          const SequencePlan& plan) const {
  Seconds time = lone_kernel(kernel, shapes);
  const bool forward = std::holds_alternative<AttentionForward>(kernel);
  if (forward || std::holds_alternative<AttentionBackward>(kernel)) {
    const GenerationSpec& generation = kernels_.gpu().generation;
    const auto& group = forward ? generation.group_forward : generation.group_backward;
    if (group && std::max(plan.ranks(), request_.gpus_at_work) > 1) {
      // The busier a GPU, the nearer it is to its limit of power.
      const Seconds best =
          kernels_.attention_at_best(attention_flops(kernel, shapes), *shapes.problem,
                                     forward ? Phase::forward : Phase::backward);
      time += (group->value - 1) * best;
    }
    if (request_.stack != nullptr && plan.ring > 1) {
      const StackSpec::LayoutCost* own = request_.stack->cost_of(plan.layout);
      time = own == nullptr ? time : time * own->attention.value;
    }
    return time;
  }
  return request_.stack != nullptr ? time * traffic_factor(*request_.stack, plan.layout, kernel)
                                   : time;
}

sim::SimulationCosts Evaluator::costs_of(const SequencePlan& plan, Phase phase) const {
  sim::SimulationCosts costs = costs_;
  costs.kernel = [this, &plan, blocks = WholeBlocks()](const Kernel& kernel,
                                                       const Shapes& shapes) mutable {
    return blocks.of(kernel, shapes, [&] { return this->kernel(kernel, shapes, plan); });
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

ClosedForm Evaluator::form(const SequencePlan& plan, const Strategy& strategy, Phase phase) const {
  const auto count = [&] {
    return strategy.closed_form(request_.problem, plan, phase, request_.build);
  };
  if (request_.problem.mask.document_ends.empty()) {
    return count();  // sooner than it is found
  }
  SequencePlan unordered = plan;
  unordered.order = SequencePlan{}.order;
  unordered.rank_order = SequencePlan{}.rank_order;
  const auto [at, is_new] =
      forms_.try_emplace(fmt::format("{}|{}", short_name(unordered), to_string(phase)));
  if (is_new) {
    at->second = count();
  }
  return at->second;
}

double Evaluator::lower_bound(const SequencePlan& plan, const Strategy& strategy) const {
  double attention = 0;
  for (const Phase phase : phases) {
    attention += needs(phase) ? lower_bound(plan, strategy, phase) : 0;
  }
  return attention;
}

double Evaluator::lower_bound(const SequencePlan& plan, const Strategy& strategy,
                              Phase phase) const {
  return bounds_.attention_call(form(plan, strategy, phase), plan, phase);
}

double Evaluator::walked_call(const SequencePlan& plan, const Strategy& strategy,
                              Phase phase) const {
  const Schedule schedule = strategy.build(request_.problem, plan, phase, request_.build);
  const ClosedForm bare = form(plan, strategy, phase);
  const auto [first, last] = AttentionMesh(plan).ends();
  return std::max(bounds_.attention_call(bare, plan, phase, walk(schedule, bare, plan, first)),
                  bounds_.attention_call(bare, plan, phase, walk(schedule, bare, plan, last)));
}

BoundModel::Walk Evaluator::walk(const Schedule& schedule, const ClosedForm& form,
                                 const SequencePlan& plan, Rank rank) const {
  const sim::Placement placement(*request_.cluster, plan.ranks(), plan.rank_order);
  ProgramCursor cursor(schedule.program(rank));
  const Shapes shapes{
      .problem = &schedule.contract.attention, .buffers = cursor.buffers(), .rank = rank};
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
      if (form.exchange_first && std::exchange(first_exchange, false)) {
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
  if (form.exchange_last) {
    walk.exchange += last_exchange;
  }
  return walk;
}

double Evaluator::walked_bound(const SequencePlan& plan, const Strategy& strategy) const {
  double attention = 0;
  for (const Phase phase : phases) {
    attention += needs(phase) ? walked_call(plan, strategy, phase) : 0;
  }
  return attention;
}

Bytes Evaluator::attention_buffers(const SequencePlan& plan, const Strategy& strategy,
                                   std::int64_t seq, const std::array<double, 2>& overlap) const {
  Problem problem = request_.problem;
  problem.seq = seq;
  Bytes most{};
  for (const Phase phase : phases) {
    if (!needs(phase)) {
      continue;
    }
    const Bytes least =
        seq == request_.problem.seq
            ? form(plan, strategy, phase).peak_buffers
            : strategy.closed_form(problem, plan, phase, request_.build).peak_buffers;
    most = std::max(most, Bytes(std::llround(least.as_double() * overlap.at(index(phase)))));
  }
  return most;
}

Bytes Evaluator::least_memory(const SequencePlan& plan, const Strategy& strategy) const {
  return attention_buffers(plan, strategy, request_.problem.seq, {1, 1});
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
  findings.work += simulation.work;
  if (simulation.complete) {
    findings.overlap.at(index(phase)) = memory_of_overlap(schedule, *folding);
  }
  if (simulation.complete && kernels_.measured()) {
    findings.measured.at(index(phase)) = measured_times(schedule, plan, simulation);
  }
  return simulation;
}

sim::Simulation Evaluator::simulate(const Schedule& schedule, const Demand& all,
                                    const sim::Folding& folding, const SequencePlan& plan,
                                    const InStep& in_step, const EvaluationOptions& options) const {
  const sim::Placement placement(*request_.cluster, schedule.mesh.size(), plan.rank_order);
  sim::SimulationCosts costs = costs_of(plan, schedule.contract.phase);
  costs.kernel = [alone = std::move(costs.kernel), &in_step](const Kernel& kernel,
                                                             const Shapes& shapes) {
    return in_step.kernel(kernel, shapes, alone(kernel, shapes));
  };
  if (in_step.host) {
    costs.host_of = [attention = costs.host, &in_step](const Op& op, const Shapes& shapes) {
      return in_step.host(op, shapes, attention.at(static_cast<std::size_t>(kind_of(op.body))));
    };
    costs.call += in_step.call;
  }
  sim::OpsWatch watch;
  if (options.watch) {
    const sim::SimulationDemand demand =
        sim::demand_of(all, sim::RankWindow::lookahead_of(schedule), folding);
    watch = [&options, of = demand.ops + demand.flows](double work) {
      return options.watch(work, of);
    };
  }
  return sim::simulate(schedule, placement, costs,
                       {.folding = &folding,
                        .fold_turns = options.fold,
                        .timeline = options.timeline,
                        .steps = options.steps,
                        .watch = std::move(watch)});
}

MeasuredTimes Evaluator::measured_times(const Schedule& schedule, const SequencePlan& plan,
                                        const sim::Simulation& simulation) const {
  MeasuredTimes times;
  double alone = 0;  // all attention kernels
  ProgramCursor cursor(schedule.program(simulation.critical));
  const Shapes shapes{.problem = &schedule.contract.attention,
                      .buffers = cursor.buffers(),
                      .rank = simulation.critical};
  while (const Op* op = cursor.next()) {
    const auto* work = std::get_if<Kernel>(&op->body);
    const auto shape =
        work != nullptr ? shape_of(*work, schedule.contract.attention) : std::nullopt;
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

void Evaluator::add_attention(Prediction& p, const sim::Simulation& s,
                              const MeasuredTimes& measured) {
  p.parts[index(Component::attention)] += s.breakdown.attention.count();
  p.parts[index(Component::elementwise)] += s.breakdown.other_kernels.count();
  p.parts[index(Component::launch)] += s.breakdown.launch_bound.count();
  p.parts[index(Component::bubble)] += s.breakdown.imbalance.count();
  double named = 0;
  for (const sim::Bottleneck& b : s.bottlenecks) {
    named += b.exposed.count();
    p.parts[index(b.scope == sim::Scope::inter ? Component::inter_comm : Component::intra_comm)] +=
        b.exposed.count();
  }
  p.parts[index(Component::intra_comm)] += s.breakdown.exposed.count() - named;
  p.parts_s[StepPart::attention] += s.breakdown.attention.count();
  p.parts_s[StepPart::elementwise] += s.breakdown.other_kernels.count();
  p.parts_s[StepPart::launch] += s.breakdown.launch_bound.count();
  p.parts_s[StepPart::cp] += s.breakdown.exposed.count();
  p.parts_s[StepPart::bubble] += s.breakdown.imbalance.count();
  p.attention += s.makespan;
  p.exposed += s.breakdown.exposed;
  p.hidden += s.breakdown.hidden;
  p.sent += sent_in(s);
  for (const auto& [block, time] : measured) {  // phases have blocks of their own
    p.measured[block] = time;
  }
}

void Evaluator::fill_prediction(Evaluation& e, const SequencePlan& plan, const Strategy& strategy,
                                const Findings& findings) const {
  Prediction& p = e.candidate.predicted;
  p.memory.attention_buffers =
      attention_buffers(plan, strategy, request_.problem.seq, findings.overlap);
  p.by_stage = {p.memory};
  if (e.forward) {
    add_attention(p, *e.forward, findings.measured.at(index(Phase::forward)));
  }
  if (e.backward) {
    add_attention(p, *e.backward, findings.measured.at(index(Phase::backward)));
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
  p.compute = p.step - p.exposed - Seconds(p.parts[index(Component::launch)]) -
              Seconds(p.parts[index(Component::bubble)]);
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

std::int64_t Evaluator::longest(const Candidate& c) const {
  const SequencePlan& plan = c.plan.attention;
  return longest_seq(
      [&](std::int64_t seq) { return attention_buffers(plan, *c.strategy, seq, c.overlap); },
      {.usable = request_.memory, .unit = unit_of(plan)});
}

Candidate Evaluator::bounded(const SequencePlan& plan, const Strategy& strategy,
                             double bound) const {
  Candidate c = unsimulated(plan, strategy);
  c.simulated = false;
  Prediction& p = c.predicted;
  p.step = p.low = p.high = Seconds(bound);
  p.parts_s[StepPart::attention] = bound;
  fill_rates(p, plan);
  p.fits = p.memory.total() <= request_.memory;
  c.bound_by = "not simulated";
  return c;
}

Candidate Evaluator::unsimulated(const SequencePlan& plan, const Strategy& strategy) const {
  Candidate c{.plan = bare_step(request_, plan), .strategy = &strategy};
  const Problem padding = padded(request_.problem, plan);
  c.padding_tokens = padding.end() - request_.problem.end();
  c.padding_heads = padding.q_heads - request_.problem.q_heads;
  c.predicted.memory.attention_buffers = least_memory(plan, strategy);
  c.predicted.by_stage = {c.predicted.memory};
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
      const std::string what =
          fmt::format("{} {}", scope_word(worst->scope), comm_word(worst->kind, worst->stream));
      const double gb = worst->rate.value() / 1e9;
      constexpr double slow = 0.1;  // less would lose its digits
      const std::string rate = gb < slow ? fmt::format("{:.2g}", gb) : fmt::format("{:.1f}", gb);
      // Of a ring over nodes no pair stands for all: most lie inside a node.
      return in_rings(worst->kind) ? fmt::format("{} ({} GB/s from a rank to the next)", what, rate)
                                   : fmt::format("{} (rank {} -> {}, {} GB/s between the two)",
                                                 what, worst->from.value, worst->to.value, rate);
    }
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
  Findings findings;
  double spent = 0;
  for (const Phase phase : phases) {
    if (!needs(phase)) {
      continue;
    }
    if (spent > 0 && std::isfinite(limit) && spent + walked_call(plan, strategy, phase) > limit) {
      return std::nullopt;
    }
    sim::Simulation simulation = run(plan, strategy, phase, options, findings, limit - spent);
    if (!simulation.complete) {
      return std::nullopt;
    }
    spent += simulation.makespan.count();
    (phase == Phase::forward ? e.forward : e.backward) = std::move(simulation);
  }
  fill_prediction(e, plan, strategy, findings);
  c.predicted.fits = c.predicted.memory.total() <= request_.memory;
  c.overlap = findings.overlap;
  c.bound_by = bound_by(e);
  if (findings.folding && findings.folding->alike()) {
    c.lowering.emplace_back("ring: as if all ranks were like those at its slower end");
  }
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
