#include "sim/lowering.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace spp::sim {
namespace {

/// What a scope offers to one kind of communication for `bytes` sent by one rank.
MessageCost cost_in(Scope scope, CommKind kind, Bytes bytes, const Cluster& cluster) {
  return cluster.transport(scope).cost(kind, bytes, cluster.nominal_rate(scope));
}

double hop_latency(Scope scope, const Cluster& cluster) {
  return cluster.transport(scope).hop_latency.value.count();
}

void lower_exchange(const Exchange& op, const Shapes& shapes, const Placement& placement, LoweredComm& out) {
  out.algorithm = "p2p";
  if (!op.to.valid() || op.to == shapes.rank) {
    return;
  }
  out.scope = placement.scope(shapes.rank, op.to);
  const Bytes bytes = sent_bytes(op, shapes);
  const MessageCost cost = cost_in(out.scope, CommKind::send_recv, bytes, placement.cluster());
  out.flows.push_back({.to = op.to, .bytes = bytes.as_double(), .rate_cap = cost.rate.value(), .latency = cost.latency.count()});
}

/// All flows of one rank to its peers, `bytes_to(peer index)` each.
template <class BytesTo>
void lower_direct(const RankGroup& group, Rank self, BytesTo bytes_to, const Placement& placement, LoweredComm& out) {
  out.algorithm = "direct";
  std::array<std::int64_t, 3> sent{};
  for (int i = 0; i < group.size; ++i) {
    const Rank peer = group.rank(i);
    if (peer != self) {
      sent.at(static_cast<std::size_t>(placement.scope(self, peer))) += bytes_to(i);
    }
  }
  std::array<MessageCost, 3> cost{};
  for (const Scope scope : {Scope::intra, Scope::inter}) {
    const auto at = static_cast<std::size_t>(scope);
    if (sent.at(at) == 0) {
      continue;
    }
    cost.at(at) = cost_in(scope, CommKind::all_to_all, Bytes(sent.at(at)), placement.cluster());
    cost.at(at).rate = cost.at(at).rate * placement.cluster().transport(scope).all_to_all_factor(group.size);
    out.scope = scope;
  }
  for (int i = 0; i < group.size; ++i) {
    const Rank peer = group.rank(i);
    if (peer == self) {
      continue;
    }
    const auto at = static_cast<std::size_t>(placement.scope(self, peer));
    const auto bytes = static_cast<double>(bytes_to(i));
    if (bytes > 0) {
      out.flows.push_back({.to = peer,
                           .bytes = bytes,
                           .rate_cap = cost.at(at).rate.value() * bytes / static_cast<double>(sent.at(at)),
                           .latency = cost.at(at).latency.count()});
    }
  }
}

/// How a group lies on the nodes, seen from one member.
struct RingPlace {
  int nodes = 1;       // that have members
  int local = 0;       // my index among my node's members
  int per_node = 1;    // members in my node
  bool regular = true; // every node has equally many, next to each other in the group
  int node_first = 0;  // group index of my node's first member
};

RingPlace place_in(const RankGroup& group, int self, const Placement& placement) {
  RingPlace p;
  const int my_node = placement.node(group.rank(self));
  int run = 0;
  int first_run = -1;
  int node = -1;
  for (int i = 0; i < group.size; ++i) {
    const int here = placement.node(group.rank(i));
    if (here != node) {
      if (node >= 0) {
        first_run = first_run < 0 ? run : first_run;
        p.regular = p.regular && run == first_run;
        ++p.nodes;
      }
      node = here;
      run = 0;
    }
    if (here == my_node) {
      if (p.local == 0 && run == 0) {
        p.node_first = i;
      }
      p.local = i == self ? run : p.local;
    }
    ++run;
  }
  p.regular = p.regular && (first_run < 0 || run == first_run);
  p.per_node = p.regular ? run : 1;
  return p;
}

/// Pipelined rings; every rank sends `sent` bytes in all.
void lower_rings(CommKind kind, const RankGroup& group, Rank self_rank, double sent, const Placement& placement, LoweredComm& out) {
  static constexpr std::array<std::string_view, 17> names{"ring", "ring", "2 rings", "3 rings", "4 rings", "5 rings",
      "6 rings", "7 rings", "8 rings", "9 rings", "10 rings", "11 rings", "12 rings", "13 rings", "14 rings", "15 rings", "16 rings"};
  const int self = group.index_of(self_rank);
  const Cluster& cluster = placement.cluster();
  const RingPlace at = place_in(group, self, placement);
  const int rings = at.nodes > 1 ? at.per_node : 1;
  out.algorithm = names.at(static_cast<std::size_t>(std::min(rings, 16)));
  out.scope = at.nodes > 1 ? Scope::inter : Scope::intra;
  const auto share = Bytes(std::llround(sent / rings));
  const MessageCost intra = cost_in(Scope::intra, kind, Bytes(std::llround(sent)), cluster);
  double latency = intra.latency.count() + (group.size - at.nodes) * hop_latency(Scope::intra, cluster);
  MessageCost inter{};
  if (at.nodes > 1) {
    inter = cost_in(Scope::inter, kind, share, cluster);
    latency = std::max(at.per_node > 1 ? intra.latency.count() : 0.0, inter.latency.count()) +
              (group.size - at.nodes) * hop_latency(Scope::intra, cluster) + at.nodes * hop_latency(Scope::inter, cluster);
  }
  const auto send = [&](Rank to, double bytes) {
    const bool across = placement.scope(self_rank, to) == Scope::inter;
    const double cap = across ? inter.rate.value() : intra.rate.value() * bytes / sent;
    out.flows.push_back({.to = to, .bytes = bytes, .rate_cap = cap, .latency = latency});
  };
  if (rings == 1) {
    send(group.rank((self + 1) % group.size), sent);
    return;
  }
  // Ring k visits a node's members from local index k on, cyclically, then enters the next node at k.
  // So in every ring but one my next is my local neighbour; in ring local+1 I am the exit.
  const int exit_ring = (at.local + 1) % rings;
  const Rank neighbour = group.rank(at.node_first + (at.local + 1) % at.per_node);
  const Rank entry = group.rank((at.node_first + at.per_node + exit_ring) % group.size);
  send(neighbour, sent * (rings - 1) / rings);
  send(entry, sent / rings);
}

}  // namespace

Placement::Placement(const Cluster& cluster, int ranks, RankOrder order)
    : cluster_(&cluster), ranks_(ranks), order_(order), nodes_(cluster.nodes()), per_node_(cluster.gpus_per_node()) {
  ensure(ranks <= cluster.gpus(), "more ranks than GPUs");
  ensure(order == RankOrder::block || ranks == nodes_ * per_node_, "cyclic rank order on partly used nodes");
}

void lower(const OpBody& body, const Shapes& shapes, const Placement& placement, LoweredComm& out) {
  out.clear();
  if (const auto* exchange = std::get_if<Exchange>(&body)) {
    lower_exchange(*exchange, shapes, placement, out);
  } else if (const auto* op = std::get_if<AllToAll>(&body)) {
    lower_direct(op->group, shapes.rank, [&](int i) { return sent_bytes_to(*op, i, shapes).value(); }, placement, out);
  } else if (const auto* gather = std::get_if<AllGather>(&body)) {
    lower_rings(CommKind::all_gather, gather->group, shapes.rank, sent_bytes(body, shapes).as_double(), placement, out);
  } else {
    const auto* scatter = std::get_if<ReduceScatter>(&body);
    ensure(scatter != nullptr, "lowering a kernel");
    lower_rings(CommKind::reduce_scatter, scatter->group, shapes.rank, sent_bytes(body, shapes).as_double(), placement, out);
  }
}

Seconds collective_time(CommKind kind, const RankGroup& group, Bytes sent, const Placement& placement) {
  if (group.size < 2 || sent.value() == 0) {
    return Seconds(0);
  }
  const Rank self = group.rank(0);
  LoweredComm lowered;
  if (kind == CommKind::all_to_all) {
    const std::int64_t each = std::max<std::int64_t>(1, sent.value() / (group.size - 1));
    lower_direct(group, self, [each](int) { return each; }, placement, lowered);
  } else {
    lower_rings(kind, group, self, sent.as_double(), placement, lowered);
  }
  // Members that share this rank's NIC send across at the same time.
  const Cluster& cluster = placement.cluster();
  int sharing = 0;
  for (int i = 0; i < group.size; ++i) {
    const int gpu = placement.gpu(group.rank(i));
    sharing += cluster.block(LinkKind::nic_out, gpu) == cluster.block(LinkKind::nic_out, placement.gpu(self)) ? 1 : 0;
  }
  double across = 0;
  double inside = 0;
  double latency = 0;
  for (const Traffic& flow : lowered.flows) {
    const bool inter = placement.scope(self, flow.to) == Scope::inter;
    double cap = flow.rate_cap;
    if (inter && sharing > 1) {
      const Bandwidth nic = cluster.links()[cluster.link(LinkKind::nic_out, placement.gpu(self)).index()].capacity;
      cap = std::min(cap, nic.value() / sharing * (kind == CommKind::all_to_all ? flow.bytes / sent.as_double() : 1.0));
    }
    (inter ? across : inside) = std::max(inter ? across : inside, flow.bytes / cap);
    latency = std::max(latency, flow.latency);
  }
  return Seconds(latency + std::max(across, inside));
}

}  // namespace spp::sim
