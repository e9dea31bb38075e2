#include "planner/bound.hpp"

#include <algorithm>
#include <numeric>

namespace spp {

BoundModel::BoundModel(const sim::Cluster& cluster, const Problem& problem)
    : nodes_(cluster.nodes()), per_node_(cluster.gpus_per_node()), per_nic_(std::max(1, cluster.gpus_per_nic())),
      nics_(std::max(1, cluster.gpus_per_node() / per_nic_)), q_heads_(problem.q_heads) {
  const auto read = [&](sim::Scope scope, Scoped& into) {
    for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
      const auto& segments = cluster.transport(scope).segments.at(kind);
      double fraction = 0;
      double latency = 1;
      for (const sim::Segment& segment : segments) {
        fraction = std::max(fraction, segment.fraction.value);
        latency = std::min(latency, segment.latency.value.count());
      }
      into.rate.at(kind) = fraction * cluster.nominal_rate(scope).value();
      into.latency.at(kind) = segments.empty() ? 0 : latency;
    }
  };
  read(sim::Scope::intra, intra_);
  if (nodes_ > 1) {
    read(sim::Scope::inter, inter_);
  }
  const sim::KernelCost kernels(cluster.machine().gpu);
  constexpr FlopCount probe(1e15);
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const auto at = static_cast<std::size_t>(phase);
    flop_rate_.at(at) = probe.value() / kernels.attention_at_best(probe, problem, phase).count();
    const auto& spec = cluster.machine().gpu.generation.attention;
    startup_.at(at) = (phase == Phase::forward ? spec.startup : spec.startup_backward).value.count();
  }
}

BoundModel::Geometry BoundModel::geometry(const RankGroup& group, RankOrder order) const {
  if (nodes_ == 1) {
    return {.local = group.size, .crosses = false};
  }
  if (order == RankOrder::block) {
    const int local = std::min(group.size, std::max(1, per_node_ / group.stride));
    return {.local = local, .crosses = local < group.size};
  }
  // Cyclic: member i sits on node (first + i*stride) mod nodes.
  const int period = nodes_ / std::gcd(group.stride, nodes_);
  const int local = std::max(1, group.size / period);
  return {.local = local, .crosses = period > 1 && group.size > 1};
}

double BoundModel::term(const CommTerm& t, const SequencePlan& plan, const Mesh& mesh) const {
  const auto kind = static_cast<std::size_t>(t.kind);
  const double bytes = t.total.as_double() / plan.ranks();
  const Rank first(0);
  const RankGroup group = t.axis == Axis::ulysses ? mesh.ulysses_group(first)
                          : t.axis == Axis::team  ? mesh.team_group(first)
                                                  : mesh.ring_group(first);
  const Geometry g = geometry(group, plan.rank_order);
  const auto calls = static_cast<double>(t.calls);
  if (!g.crosses) {
    return bytes / intra_.rate[kind] + calls * intra_.latency[kind];
  }
  switch (t.kind) {
    case CommKind::all_to_all: {
      const double remote = static_cast<double>(t.group_size - g.local) / (t.group_size - 1);
      return std::max(bytes * (1 - remote) / intra_.rate[kind], bytes * remote * per_nic_ / inter_.rate[kind]);
    }
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
      return bytes / g.local * per_nic_ / inter_.rate[kind];
    case CommKind::send_recv: {
      // Only ring hops are known to cross, each ring's at one rank of a node; the exchange and return
      // of StarTrail and the inner hops of a double ring may stay inside.
      const int steps = mesh.sub_ring();
      double crossing = 1;
      if (plan.team > 1) {
        crossing = static_cast<double>(steps - 1) / static_cast<double>(steps);
      }
      if (plan.window > 1) {
        crossing = (static_cast<double>(plan.ring) / plan.window - 1) / (plan.ring - 1);
      }
      const double rings_per_node = static_cast<double>(per_node_) / g.local;
      const double sharing = g.local == 1 ? per_nic_ : std::max(1.0, rings_per_node / nics_);
      return bytes * crossing * sharing / inter_.rate[kind] + calls * intra_.latency[kind] * crossing;
    }
  }
  throw InternalError("unknown kind of communication");
}

double BoundModel::attention_call(const ClosedForm& form, const SequencePlan& plan, Phase phase) const {
  const Mesh mesh(plan);
  const auto at = static_cast<std::size_t>(phase);
  double serial = form.busiest_flops.value() / flop_rate_[at] + static_cast<double>(form.attention_calls) * startup_[at];
  double ring = 0;
  for (const CommTerm& t : form.comm()) {
    (t.kind == CommKind::send_recv ? ring : serial) += term(t, plan, mesh);
  }
  return std::max(serial, ring);
}

}  // namespace spp
