// What one kernel or one collective takes, by the same cost functions that plans are costed with.
#include "base/error.hpp"
#include "machine/kernel_cost.hpp"
#include "regress/kernels.hpp"
#include "regress/point_answer.hpp"
#include "regress/predict.hpp"
#include "sim/all_reduce.hpp"
#include "sim/lowering.hpp"

#include <algorithm>
#include <cmath>

namespace spp::regress {

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
  if (std::string why = why_no_problem(p); !why.empty()) {
    return no(std::move(why));
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
    const double factor = interval_factor(spread);
    result.low = *result.predicted / factor;
    result.high = *result.predicted * factor;
    return result;
  }
  return answer(p, seconds, spread);
}

}  // namespace spp::regress
