#include "step/ring_prefill.hpp"

#include "base/error.hpp"
#include "sim/lowering.hpp"

#include <algorithm>
#include <cmath>

namespace spp {
namespace {

/// That the host takes to issue the ops: a kernel and a merge a step, hops, what goes back.
Seconds issue_time(const StackSpec& stack, const GenerationSpec& generation, int ring,
                   bool pass_queries) {
  const HostTimes times = host_times(stack, generation, Layout::zigzag, Phase::forward);
  const auto of = [&](OpKind kind) { return times.at(static_cast<std::size_t>(kind)); };
  const Seconds call = stack.host.call ? stack.host.call->value : Seconds(0);
  return call + (of(OpKind::attention_fwd) + of(OpKind::merge)) * ring +
         of(OpKind::exchange) * (ring - 1) +
         (pass_queries && ring > 1 ? of(OpKind::all_to_all) : Seconds(0));
}

/// A hop that takes `alone` by itself, behind a kernel: while that runs, a message between nodes
/// moves at a part of its speed (StackSpec::BesideKernels).
Seconds hop_beside(Seconds alone, Seconds kernel, const StackSpec::BesideKernels& beside) {
  const Seconds after = beside.after.value;
  const double speed = beside.speed_forward.value;
  const Seconds at_that_speed = (alone - after) * (1 / speed - 1);
  const Seconds until_the_kernel_ends = (kernel - after) * (1 - speed);
  return alone + std::max(Seconds(0), std::min(at_that_speed, until_the_kernel_ends));
}

}  // namespace

AttentionCost ring_prefill(const RingPrefill& work, const Problem& problem, int ring,
                           const KernelCost& kernels, const sim::Cluster& cluster,
                           const StackSpec* stack) {
  ensure(ring >= 1 && problem.seq >= ring, "a token for each rank");
  ensure(ring == 1 || problem.mask.kind != MaskKind::window, "a window in a ring behind a cache");
  const std::int64_t fresh = problem.seq / ring;
  const std::int64_t cached = (work.cached + ring - 1) / ring;
  const std::int64_t element = size_of(problem.dtype) * problem.batch;  // of all sequences
  const Bytes queries(fresh * problem.q_heads * problem.head_dim * element);
  const Bytes outputs(fresh * problem.q_heads * problem.v_dim() * element);
  const Bytes keys((fresh + cached) * problem.kv_heads * (problem.head_dim + problem.v_dim()) *
                   element);
  const auto kernel = [&](const TokenRange& q, std::int64_t seen, const Mask& mask) {
    return kernels.attention({.q = TokenSet(q),
                              .k = TokenSet(TokenRange{.begin = 0, .count = seen}),
                              .q_heads = problem.q_heads,
                              .kv_heads = problem.kv_heads,
                              .head_dim = problem.head_dim,
                              .batch = problem.batch,
                              .mask = mask,
                              .dtype = problem.dtype,
                              .value_dim = problem.value_dim});
  };
  const Seconds own = kernel({.begin = cached, .count = fresh}, cached + fresh, problem.mask);
  AttentionCost cost;
  AttentionCost::Pass& pass = cost.forward;
  pass.kernels = own;
  if (stack != nullptr) {
    pass.issue = issue_time(*stack, kernels.gpu().generation, ring, work.pass_queries);
  }
  if (ring == 1) {
    return cost;
  }
  const Seconds step =
      kernel({.begin = 0, .count = fresh}, cached + (fresh + 1) / 2, {.kind = MaskKind::full});
  pass.kernels += step * (ring - 1);
  const sim::Scope scope = cluster.nodes() > 1 ? sim::Scope::inter : sim::Scope::intra;
  const Bytes message = work.pass_queries ? queries : keys;
  // All ranks send at once, to the neighbours that they have in the ring of an all-gather.
  const RankGroup ranks{.first = 0, .stride = 1, .size = ring};
  const sim::Placement placement(cluster, ring, RankOrder::block);
  const Seconds alone = std::max(
      cluster.transport(scope).time(CommKind::send_recv, message, cluster.nominal_rate(scope)),
      sim::shared_links_time(CommKind::all_gather, ranks, Rank(0), message, placement));
  const bool beside =
      stack != nullptr && stack->network_beside_kernels && scope == sim::Scope::inter;
  const auto add_hops = [&](int hops, Seconds behind) {
    const Seconds hop = beside ? hop_beside(alone, behind, *stack->network_beside_kernels) : alone;
    pass.exposed += std::max(Seconds(0), hop - behind) * hops;
    pass.hidden += std::min(hop, behind) * hops;
  };
  add_hops(1, own);
  add_hops(ring - 2, step);
  cost.buffers = message * 2;  // one is read while the next one comes
  pass.sent.at(StepAxis::ring, CommKind::send_recv) = message * (ring - 1);
  // A part is read, and the sum, which is written; in the end the sum becomes the output.
  pass.small = kernels.memory_bound(outputs * (5 * ring + 3));
  if (work.pass_queries) {
    const Bytes lse(fresh * problem.q_heads * problem.batch * 4);
    const Bytes returned = (outputs + lse) * (ring - 1);
    pass.exposed += sim::collective_time(CommKind::all_to_all, ranks, returned, placement);
    pass.sent.at(StepAxis::ring, CommKind::all_to_all) = returned;
  }
  return cost;
}

}  // namespace spp
