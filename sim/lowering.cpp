#include "sim/lowering.hpp"

#include "sim/all_reduce.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>

namespace spp::sim {
namespace {

/// What a scope offers to one kind of communication for `bytes` sent by one of `ranks`. Factors of
/// the rank count scale the nominal rate, not the result, so that time never falls at a border.
MessageCost cost_in(Scope scope, CommKind kind, Bytes bytes, int ranks, const Cluster& cluster) {
  const TransportSpec& transport = cluster.transport(scope);
  const double factor = kind == CommKind::send_recv    ? 1
                        : kind == CommKind::all_to_all ? transport.all_to_all_factor(ranks)
                                                       : transport.own_copy_factor(ranks);
  return transport.cost(kind, bytes, cluster.nominal_rate(scope) * factor);
}

/// Seconds of cores per byte of a call that reaches `rate` alone (TransportSpec::cpu_share).
double cpu_in(Scope scope, Bandwidth rate, const Cluster& cluster) {
  const auto& share = cluster.transport(scope).cpu_share;
  return share ? share->value / rate.value() : 0;
}

double hop_latency(Scope scope, const Cluster& cluster) {
  return cluster.transport(scope).hop_latency.value.count();
}

void lower_exchange(const Exchange& op, const Shapes& shapes, const Placement& placement,
                    LoweredComm& out) {
  out.algorithm = "p2p";
  if (!op.to.valid() || op.to == shapes.rank) {
    return;
  }
  out.scope = placement.scope(shapes.rank, op.to);
  const Bytes bytes = sent_bytes(op, shapes);
  const MessageCost cost = cost_in(out.scope, CommKind::send_recv, bytes, 2, placement.cluster());
  out.flows.push_back({.to = op.to,
                       .bytes = bytes.as_double(),
                       .rate_cap = cost.rate.value(),
                       .latency = cost.latency.count(),
                       .cpu = cpu_in(out.scope, cost.rate, placement.cluster())});
}

/// All flows of one rank to its peers, `bytes_to(peer index)` each.
template <class BytesTo>
void lower_direct(const RankGroup& group, Rank self, BytesTo bytes_to, const Placement& placement,
                  LoweredComm& out) {
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
    cost.at(at) =
        cost_in(scope, CommKind::all_to_all, Bytes(sent.at(at)), group.size, placement.cluster());
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
      out.flows.push_back(
          {.to = peer,
           .bytes = bytes,
           .rate_cap = cost.at(at).rate.value() * bytes / static_cast<double>(sent.at(at)),
           .latency = cost.at(at).latency.count(),
           .cpu = cpu_in(static_cast<Scope>(at), cost.at(at).rate, placement.cluster())});
    }
  }
}

/// The place of one member in the rings of its group. Members are ordered by node, and in a node by
/// their order in the group.
struct RingPlace {
  int nodes = 1;   // that have members
  int rings = 1;   // as many as the node with the fewest members has: each passes a NIC of its own
  Rank neighbour;  // the next in my node
  Rank entry;      // where the ring that leaves my node with me enters the next one; or invalid
};

RingPlace place_in(const RankGroup& group, Rank self, const Placement& placement) {
  int lowest = placement.node(self);
  int highest = lowest;
  for (int i = 0; i < group.size; ++i) {
    lowest = std::min(lowest, placement.node(group.rank(i)));
    highest = std::max(highest, placement.node(group.rank(i)));
  }
  RingPlace p;
  std::vector<int> members(static_cast<std::size_t>(highest - lowest) + 1, 0);
  const auto members_of = [&](int node) -> int& {
    return members[static_cast<std::size_t>(node - lowest)];
  };
  const int mine = placement.node(self);
  int local = 0;  // my index among my node's members
  for (int i = 0; i < group.size; ++i) {
    const Rank member = group.rank(i);
    if (member == self) {
      local = members_of(mine);
    }
    ++members_of(placement.node(member));
  }
  int fewest = members_of(mine);
  p.nodes = static_cast<int>(std::ranges::count_if(members, [](int n) { return n > 0; }));
  for (const int count : members) {
    fewest = count > 0 ? std::min(fewest, count) : fewest;
  }
  p.rings = p.nodes > 1 ? fewest : 1;
  int next = mine;
  do {
    next = next == highest ? lowest : next + 1;
  } while (members_of(next) == 0);

  // Ring k visits a node's members from local index k on, cyclically, then enters the next node at
  // k. So I leave mine in ring local+1 at most, and in all others my next is my neighbour.
  const int wanted = (local + 1) % members_of(mine);
  const bool leaves = p.nodes > 1 && wanted < p.rings;
  int seen = 0;
  int seen_next = 0;
  for (int i = 0; i < group.size; ++i) {
    const Rank member = group.rank(i);
    const int node = placement.node(member);
    if (node == mine && seen++ == wanted) {
      p.neighbour = member;
    }
    if (leaves && node == next && seen_next++ == wanted) {
      p.entry = member;
    }
  }
  return p;
}

/// "ring", "2 rings", …
std::string_view name_of_rings(int rings) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list{"", "ring"};
    while (list.size() <= most_gpus_per_node) {
      list.push_back(fmt::format("{} rings", list.size()));
    }
    return list;
  }();
  return names.at(static_cast<std::size_t>(rings));
}

/// Pipelined rings; every rank sends `sent` bytes in all.
void lower_rings(CommKind kind, const RankGroup& group, Rank self, double sent,
                 const Placement& placement, LoweredComm& out) {
  if (sent == 0) {  // alone in the group, or nothing to say
    out.algorithm = name_of_rings(1);
    return;
  }
  const Cluster& cluster = placement.cluster();
  const RingPlace at = place_in(group, self, placement);
  out.algorithm = name_of_rings(at.rings);
  out.scope = at.nodes > 1 ? Scope::inter : Scope::intra;
  const MessageCost intra =
      cost_in(Scope::intra, kind, Bytes(std::llround(sent)), group.size, cluster);
  double latency =
      intra.latency.count() + (group.size - at.nodes) * hop_latency(Scope::intra, cluster);
  MessageCost inter{};
  if (at.nodes > 1) {
    inter = cost_in(Scope::inter, kind, Bytes(std::llround(sent / at.rings)), group.size, cluster);
    latency = std::max(group.size > at.nodes ? intra.latency.count() : 0.0, inter.latency.count()) +
              (group.size - at.nodes) * hop_latency(Scope::intra, cluster) +
              at.nodes * hop_latency(Scope::inter, cluster);
  }
  const auto send = [&](Rank to, double bytes) {
    const bool across = placement.scope(self, to) == Scope::inter;
    const double cap = across ? inter.rate.value() : intra.rate.value() * bytes / sent;
    const double cpu = across ? cpu_in(Scope::inter, inter.rate, cluster)
                              : cpu_in(Scope::intra, intra.rate, cluster);
    out.flows.push_back(
        {.to = to, .bytes = bytes, .rate_cap = cap, .latency = latency, .cpu = cpu});
  };
  const int leaving = at.entry.valid() ? 1 : 0;
  if (at.rings > leaving) {
    send(at.neighbour, sent * (at.rings - leaving) / at.rings);
  }
  if (leaving > 0) {
    send(at.entry, sent / at.rings);
  }
}

/// The fastest algorithm's bytes and time, on the edges of rings: what else shares the links.
void lower_all_reduce(const Collective& op, const Shapes& shapes, const Placement& placement,
                      LoweredComm& out) {
  const Bytes buffer = bytes_of(shapes.buffers[op.to.index()]);
  const double sent = sent_bytes(op, shapes).as_double();
  lower_rings(CommKind::reduce_scatter, op.group, shapes.rank, sent, placement, out);
  if (out.flows.empty()) {
    return;
  }
  const AllReduceCost cost = all_reduce_cost(buffer, op.group, placement);
  const double latency = all_reduce_cost(Bytes(1), op.group, placement).time.count();
  const double scale = cost.twice ? 1 : std::min(1.0, buffer.as_double() / sent);
  const double flowing = std::max(cost.time.count() - latency, 1e-3 * cost.time.count());
  out.algorithm = cost.algorithm;
  for (Traffic& flow : out.flows) {
    flow.bytes *= scale;
    flow.latency = latency;
    flow.rate_cap = flow.bytes / flowing;
  }
}

/// That the members in `self`'s node send over each link.
std::map<LinkId, double> bytes_on_links(CommKind kind, const RankGroup& group, Rank self,
                                        Bytes sent, const Placement& placement) {
  std::map<LinkId, double> bytes;
  LoweredComm lowered;
  for (int i = 0; i < group.size; ++i) {
    const Rank member = group.rank(i);
    if (placement.node(member) != placement.node(self)) {
      continue;
    }
    lower(kind, group, member, sent, placement, lowered);
    for (const Traffic& flow : lowered.flows) {
      const Path path = placement.cluster().path(placement.gpu(member), placement.gpu(flow.to));
      for (const LinkId link : path.links()) {
        bytes[link] += flow.bytes;
      }
    }
  }
  return bytes;
}

}  // namespace

Placement::Placement(const Cluster& cluster, int ranks, RankOrder order)
    : cluster_(&cluster),
      ranks_(ranks),
      order_(order),
      nodes_(cluster.nodes()),
      per_node_(cluster.gpus_per_node()) {
  ensure(ranks <= cluster.gpus(), "more ranks than GPUs");
  ensure(order == RankOrder::block || ranks == nodes_ * per_node_,
         "cyclic rank order on partly used nodes");
}

void lower(const Transfer& transfer, const Shapes& shapes, const Placement& placement,
           LoweredComm& out) {
  out.clear();
  if (const auto* exchange = std::get_if<Exchange>(&transfer)) {
    return lower_exchange(*exchange, shapes, placement, out);
  }
  const Collective& op = std::get<Collective>(transfer);
  switch (op.kind) {
    case CollectiveKind::all_to_all:
      return lower_direct(
          op.group, shapes.rank, [&](int i) { return sent_bytes_to(op, i, shapes).value(); },
          placement, out);
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      return lower_rings(comm_kind_of(transfer), op.group, shapes.rank,
                         sent_bytes(transfer, shapes).as_double(), placement, out);
    case CollectiveKind::all_reduce:
      return lower_all_reduce(op, shapes, placement, out);
  }
}

void lower(CommKind kind, const RankGroup& group, Rank self, Bytes sent, const Placement& placement,
           LoweredComm& out) {
  out.clear();
  if (kind == CommKind::all_to_all) {
    const std::int64_t each = std::max<std::int64_t>(1, sent.value() / (group.size - 1));
    lower_direct(group, self, [each](int) { return each; }, placement, out);
  } else {
    lower_rings(kind, group, self, sent.as_double(), placement, out);
  }
}

LinkSeconds links_taken(CommKind kind, const RankGroup& group, Bytes sent,
                        const Placement& placement) {
  LinkSeconds taken;
  if (group.size > 1 && sent.value() > 0) {
    const Cluster& cluster = placement.cluster();
    for (const auto& [id, bytes] : bytes_on_links(kind, group, group.rank(0), sent, placement)) {
      const Link& link = cluster.links()[id.index()];
      if (const auto level = level_of(link.kind)) {
        taken[*level] = std::max(taken[*level], bytes / link.capacity.value());
      }
    }
  }
  return taken;
}

Seconds shared_links_time(CommKind kind, const RankGroup& group, Rank self, Bytes sent,
                          const Placement& placement) {
  const Cluster& cluster = placement.cluster();
  constexpr std::array shared{LinkKind::switch_out, LinkKind::switch_in,  LinkKind::bridge_out,
                              LinkKind::bridge_in,  LinkKind::socket_out, LinkKind::socket_in};
  if (std::ranges::none_of(
          shared, [&](LinkKind k) { return cluster.link(k, placement.gpu(self)).valid(); })) {
    return Seconds(0);
  }
  double busiest = 0;
  for (const auto& [id, bytes] : bytes_on_links(kind, group, self, sent, placement)) {
    const Link& link = cluster.links()[id.index()];
    if (std::ranges::find(shared, link.kind) != shared.end()) {
      busiest = std::max(busiest, bytes / link.capacity.value());
    }
  }
  return Seconds(busiest);
}

Seconds leaf_time(CommKind kind, const RankGroup& group, Rank self, Bytes sent,
                  const Placement& placement) {
  const Cluster& cluster = placement.cluster();
  const LinkId out = cluster.link(LinkKind::leaf_out, placement.gpu(self));
  if (!out.valid()) {
    return Seconds(0);
  }
  int members = 0;
  for (int i = 0; i < group.size; ++i) {
    members += cluster.link(LinkKind::leaf_out, placement.gpu(group.rank(i))) == out ? 1 : 0;
  }
  const double others = group.size - members;
  const double bytes = kind == CommKind::all_to_all
                           ? sent.as_double() * members * others / (group.size - 1)
                           : sent.as_double();
  return others > 0 ? Seconds(bytes / cluster.links()[out.index()].capacity.value()) : Seconds(0);
}

Seconds collective_time(CommKind kind, const RankGroup& group, Bytes sent,
                        const Placement& placement) {
  if (group.size < 2 || sent.value() == 0) {
    return Seconds(0);
  }
  // The last member in its node: one ring at least leaves the node with it.
  Rank self = group.rank(0);
  for (int i = 0; i < group.size; ++i) {
    self = placement.node(group.rank(i)) == placement.node(self) ? group.rank(i) : self;
  }
  LoweredComm lowered;
  lower(kind, group, self, sent, placement, lowered);
  // Members that share this rank's NIC send across at the same time.
  const Cluster& cluster = placement.cluster();
  int sharing = 0;
  for (int i = 0; i < group.size; ++i) {
    const int gpu = placement.gpu(group.rank(i));
    sharing += cluster.block(LinkKind::nic_out, gpu) ==
                       cluster.block(LinkKind::nic_out, placement.gpu(self))
                   ? 1
                   : 0;
  }
  double crossing = 0;  // bytes
  for (const Traffic& flow : lowered.flows) {
    crossing += placement.scope(self, flow.to) == Scope::inter ? flow.bytes : 0;
  }
  double across = 0;
  double inside = 0;
  double latency = 0;
  for (const Traffic& flow : lowered.flows) {
    const bool inter = placement.scope(self, flow.to) == Scope::inter;
    double cap = flow.rate_cap;
    if (inter && sharing > 1) {
      const Bandwidth nic =
          cluster.links()[cluster.link(LinkKind::nic_out, placement.gpu(self)).index()].capacity;
      cap = std::min(cap, nic.value() / sharing *
                              (kind == CommKind::all_to_all ? flow.bytes / crossing : 1.0));
    }
    (inter ? across : inside) = std::max(inter ? across : inside, flow.bytes / cap);
    latency = std::max(latency, flow.latency);
  }
  const double shared = shared_links_time(kind, group, self, sent, placement).count();
  const double leaf = leaf_time(kind, group, self, sent, placement).count();
  return Seconds(latency + std::max({across, inside, shared, leaf}));
}

}  // namespace spp::sim
