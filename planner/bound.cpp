#include "planner/bound.hpp"

#include <algorithm>
#include <numeric>

namespace spp {

BoundModel::BoundModel(const sim::Cluster& cluster, const Problem& problem,
                       const KernelCost& kernels)
    : nodes_(cluster.nodes()),
      per_node_(cluster.gpus_per_node()),
      per_nic_(std::max(1, cluster.gpus_per_nic())),
      nics_(std::max(1, cluster.gpus_per_node() / per_nic_)),
      heads_per_kv_(problem.group_size()),
      balanced_mask_(problem.mask == Mask{.kind = MaskKind::full}) {
  const auto read = [&](sim::Scope scope, Scoped& into) {
    for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
      const auto& segments = cluster.transport(scope).segments.at(kind);
      double fraction = 0;
      double latency = 1;
      for (const Segment& segment : segments) {
        fraction = std::max(fraction, segment.fraction.value);
        latency = std::min(latency, segment.latency.value.count());
      }
      into.rate.at(kind) = fraction * cluster.nominal_rate(scope).value();
      into.latency.at(kind) = segments.empty() ? 0 : latency;
      into.capacity = std::max(into.capacity, into.rate.at(kind));
    }
    if (const auto& share = cluster.transport(scope).cpu_share) {
      into.cpu_share = share->value;
      cores_ = cluster.gpus();
    }
  };
  read(sim::Scope::intra, intra_);
  if (nodes_ > 1) {
    read(sim::Scope::inter, inter_);
  }
  if (const auto& host = cluster.machine().host) {
    const auto cores = static_cast<double>(host->cores.value);
    cores_ =
        std::min(cores_, cores * std::ceil(nodes_ / static_cast<double>(host->nodes_of(nodes_))));
  }
  if (const auto& device = cluster.machine().device; device && !device->split) {
    cores_ = std::ceil(cluster.gpus() / static_cast<double>(device->ranks.value));
  }
  constexpr FlopCount probe(1e15);
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const auto at = static_cast<std::size_t>(phase);
    flop_rate_.at(at) = probe.value() / kernels.attention_at_best(probe, problem, phase).count();
    startup_.at(at) = kernels.least_startup(phase).count();
  }
}

BoundModel::Geometry BoundModel::geometry(const RankGroup& group, RankOrder order) const {
  const auto spread = [&](int most, bool evenly) {
    const int local = std::min(group.size, most);
    return Geometry{.local = local, .crosses = local < group.size, .even = evenly};
  };
  if (nodes_ == 1) {
    return spread(group.size, true);
  }
  if (order == RankOrder::block) {
    const int most = (per_node_ + group.stride - 1) / group.stride;
    const bool divides = group.stride >= per_node_ || per_node_ % group.stride == 0;
    return spread(most, divides && (most % group.size == 0 || group.size % most == 0));
  }
  // Cyclic: member i sits on node (first + i*stride) mod nodes.
  const int period = nodes_ / std::gcd(group.stride, nodes_);
  return spread((group.size + period - 1) / period, group.size % period == 0);
}

BoundModel::TermTime BoundModel::term(const CommTerm& t, const SequencePlan& plan,
                                      const AttentionMesh& mesh) const {
  // An all-reduce has no rates of its own; switches may carry half of what rings do.
  const bool reduces_all = t.kind == CommKind::all_reduce;
  const auto kind = static_cast<std::size_t>(reduces_all ? CommKind::reduce_scatter : t.kind);
  const double bytes = t.total.as_double() / plan.ranks() / (reduces_all ? 2 : 1);
  const Rank first(0);
  RankGroup group = mesh.group(first, t.axis);
  group.stride *= t.stride;
  group.size = t.group_size;
  const Geometry g = geometry(group, plan.rank_order);
  const auto calls = static_cast<double>(t.calls);
  const double inside = bytes / intra_.rate[kind] + calls * intra_.latency[kind];
  if (!t.neighbours && nodes_ > 1) {  // which calls stay inside a node depends on the rank
    return {.seconds = bytes / std::max(intra_.rate[kind], inter_.rate[kind]) +
                       calls * std::min(intra_.latency[kind], inter_.latency[kind])};
  }
  if (!g.crosses) {
    return {.seconds = inside, .port = bytes / intra_.capacity};
  }
  // `crossing` bytes of each rank leave the node, through a NIC that `sharing` ranks use so.
  const auto across = [&](double crossing, double sharing) {
    return TermTime{
        .seconds = std::max(crossing / inter_.rate[kind], crossing * sharing / inter_.capacity),
        .nic = crossing * sharing / inter_.capacity};
  };
  // Collectives add to kernels: where a mask makes some ranks slower than others, their collectives
  // need not fall together, and only a rank's own bytes count. All bytes of rings must pass anyhow.
  // So do those of nodes that have unequally many members.
  const double in_step = balanced_mask_ && g.even ? per_nic_ : 1.0;
  switch (t.kind) {
    case CommKind::all_to_all: {
      const double remote = static_cast<double>(t.group_size - g.local) / (t.group_size - 1);
      return {.seconds = std::max(bytes * (1 - remote) / intra_.rate[kind],
                                  across(bytes * remote, in_step).seconds)};
    }
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
    case CommKind::all_reduce:
      return across(bytes / g.local, in_step);
    case CommKind::send_recv: {
      // A ring's hop leaves the node at one rank of the node, or at all of them.
      const double rings_per_node = static_cast<double>(per_node_) / g.local;
      const double of_a_nic = g.local == 1 ? per_nic_ : std::max(1.0, rings_per_node / nics_);
      const double sharing = g.even ? of_a_nic : 1.0;
      TermTime time = across(bytes, sharing);
      time.seconds += calls * intra_.latency[kind];
      return time;
    }
  }
  throw InternalError("unknown kind of communication");
}

double BoundModel::all_cores(const ClosedForm& form, Phase phase) const {
  if (cores_ == 0) {
    return 0;
  }
  double seconds = form.flops.value() / flop_rate_[static_cast<std::size_t>(phase)];
  for (const CommTerm& t : form.comm()) {
    const auto kind = static_cast<std::size_t>(t.kind);
    double per_byte = intra_.cpu_share / intra_.rate[kind];
    if (nodes_ > 1) {
      per_byte = std::min(per_byte, inter_.cpu_share / inter_.rate[kind]);
    }
    seconds += t.total.as_double() * per_byte;
  }
  return seconds / cores_;
}

double BoundModel::attention_call(const ClosedForm& form, const SequencePlan& plan,
                                  Phase phase) const {
  const auto at = static_cast<std::size_t>(phase);
  double kernels = form.busiest_flops.value() / flop_rate_[at];
  if (form.calls_of_busiest && (balanced_mask_ || plan.layout != Layout::contiguous)) {
    kernels += static_cast<double>(form.attention_calls) * startup_[at];
  }
  return attention_call(form, plan, phase, {.kernels = kernels, .core = kernels});
}

double BoundModel::attention_call(const ClosedForm& form, const SequencePlan& plan, Phase phase,
                                  const Walk& walk) const {
  const AttentionMesh mesh(plan);
  double all_to_all = 0;
  double gathers = 0;
  double beside = 0;  // the part of gathers and scatters that exchange and return overlap with
  double longest_ring = 0;
  double of_ports = 0;  // all rings, on a link used to capacity
  double of_nics = 0;
  const double q = heads_per_kv_;
  for (const CommTerm& t : form.comm()) {
    const TermTime time = term(t, plan, mesh);
    switch (t.kind) {
      case CommKind::all_to_all:
        all_to_all += time.seconds;
        break;
      case CommKind::all_gather:
        gathers += time.seconds;
        beside += time.seconds * (phase == Phase::forward ? q / (q + 2) : 2 / (2 * q + 2));
        break;
      case CommKind::reduce_scatter:
        gathers += time.seconds;
        beside += time.seconds * (phase == Phase::forward ? 0 : 2 / (q + 2));
        break;
      case CommKind::all_reduce:
        gathers += time.seconds;
        break;
      case CommKind::send_recv:
        longest_ring = std::max(longest_ring, time.seconds);
        of_ports += time.port;
        of_nics += time.nic;
        break;
    }
  }
  const double collectives = std::max(all_to_all, gathers + std::max(0.0, walk.exchange - beside));
  const double serial = std::max(walk.kernels, walk.core + collectives) + walk.sms;
  return std::max(
      {serial, walk.kernels + walk.cpu, longest_ring, of_ports, of_nics, all_cores(form, phase)});
}

}  // namespace spp
