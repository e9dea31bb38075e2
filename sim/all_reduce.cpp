#include "sim/all_reduce.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace spp::sim {
namespace {

// ---- what is NCCL's and no link's
// ------------------------------------------------------------------------------------------------

/// NVLS: latency (NCCL 2.28.9 src/graph/tuning.cc, hop of NVLS over NVLink).
constexpr Seconds nvls_latency(25e-6);
/// Bytes that fill its pipeline, for each rank of the node: 24 channels of 128 KiB; 3.5e6 fit 72
/// ranks (coreweave/nccl-tests), 2.9e6 fit 8 (aiconfigurator nccl_perf H100, DistCA H200).
constexpr double nvls_chunk = 3.2e6;
/// Fills that each level of a tree above the switches adds (coreweave/nccl-tests, 2 and 20 racks).
constexpr double nvls_tree_fills = 0.87;
/// Fewest ranks of a node for which the switches beat the ring (H100, H200, B200: 8 do, 4 do not).
constexpr double nvls_ranks = 5;
/// From here on NCCL takes the tree over the switches and no other: its estimates rank by rate.
constexpr double nvls_tree_from = 64 << 20;

/// Hops of a tree inside a node and its latency, LL and Simple (tuning.cc: NVLink, Tree).
constexpr Seconds tree_hop(0.6e-6), tree_hop_simple(4.0e-6), tree_latency_simple(8.4e-6);
/// From here on trees run the Simple protocol (logs of Slingshot and EFA clusters).
constexpr double simple_from = 1 << 20;
/// A stage of a tree is filled with tree_fill S / (S + tree_half) bytes of the node's traffic:
/// chunks grow with the message. Fitted to Slingshot (100 GB/s a node, 2 to 512 nodes); EFA (50
/// GB/s, two nodes) agrees within 10 % of the time. Nodes of both have four NICs; a group that
/// meets fewer has fewer channels to fill.
constexpr double tree_fill = 48e6, tree_half = 26e6, nics_of_fill = 4;
/// Hop inside a node of a ring across nodes (tuning.cc: NVLink, Ring, Simple).
constexpr Seconds ring_hop_simple(3.4e-6);
/// Bytes a rank from which a ring's steps fill their buffers (NCCL_BUFFSIZE), where logs of 2 to
/// 256 nodes of four NICs turn to the ring.
constexpr double ring_buffer = 4 << 20;

// ------------------------------------------------------------------------------------------------

/// What rings and trees find inside a node.
struct Inside {
  Seconds latency, hop;
  Bandwidth rate;           // of long messages
  double tree_scaling = 1;  // AllReduceInside::tree_scaling
};

Inside inside(const Cluster& cluster) {
  const TransportSpec& transport = cluster.machine().intra;
  const auto& own = transport.all_reduce_inside;
  const std::vector<Segment>& segments =
      own ? own->ring : transport.segments.at(static_cast<std::size_t>(CommKind::reduce_scatter));
  return {.latency = segments.front().latency.value,
          .hop = own ? own->hop_latency.value : transport.hop_latency.value,
          .rate = cluster.nominal_rate(Scope::intra) * segments.back().fraction.value,
          .tree_scaling = own ? own->tree_scaling.value : 1};
}

/// The switches' rates at the rate that this machine's links have; nothing if they cannot reduce.
std::optional<SwitchReduction> switches(double ranks_of_node, const Cluster& cluster,
                                        const AllReduceOptions& options) {
  const TransportSpec& transport = cluster.machine().intra;
  const auto& own = transport.all_reduce_inside;
  if (!options.nvls || !own || !own->nvls || ranks_of_node < nvls_ranks) {
    return std::nullopt;
  }
  SwitchReduction scaled = *own->nvls;
  const double scale = cluster.nominal_rate(Scope::intra) / transport.rate->value;
  scaled.rate.value = scaled.rate.value * scale;
  scaled.tree_rate.value = scaled.tree_rate.value * scale;
  return scaled;
}

/// Seconds for `bytes` at `rate`.
Seconds at_rate(double bytes, Bandwidth rate) { return Seconds(bytes / rate.value()); }

/// What a rank of a ring sends: 2 (n-1)/n of its buffer.
double sent_in_ring(double bytes, int ranks) { return 2.0 * (ranks - 1) / ranks * bytes; }

/// Reduce-scatter, then all-gather, as separate calls would take, but for one launch.
AllReduceCost scatter_gather(Bytes bytes, const RankGroup& group, const Placement& placement,
                             Scope scope) {
  const Bytes sent(
      std::max<std::int64_t>(1, std::llround(sent_in_ring(bytes.as_double(), group.size) / 2)));
  const Seconds scatter = collective_time(CommKind::reduce_scatter, group, sent, placement);
  const Seconds gather = collective_time(CommKind::all_gather, group, sent, placement);
  const Seconds launch = placement.cluster()
                             .transport(scope)
                             .segments.at(static_cast<std::size_t>(CommKind::reduce_scatter))
                             .front()
                             .latency.value;
  return {.time = std::max({scatter + gather - launch, scatter, gather}),
          .twice = true,
          .algorithm = "scatter, gather"};
}

Seconds ring_inside(Bytes bytes, int ranks, const Cluster& cluster) {
  const TransportSpec& transport = cluster.machine().intra;
  const double own_part = 1 / (1 + transport.own_copy / (2 * (ranks - 1)));
  const Bytes sent(std::llround(sent_in_ring(bytes.as_double(), ranks)));
  const MessageCost cost = cost_on(transport.all_reduce_inside->ring, sent,
                                   cluster.nominal_rate(Scope::intra) * own_part);
  return cost.latency + sent / cost.rate +
         transport.all_reduce_inside->hop_latency.value * (2 * (ranks - 1));
}

AllReduceCost faster(AllReduceCost a, AllReduceCost b) { return b.time < a.time ? b : a; }

/// Where the links have constants of their own.
AllReduceCost in_node(Bytes bytes, int ranks, const Cluster& cluster,
                      const AllReduceOptions& options) {
  AllReduceCost best{
      .time = ring_inside(bytes, ranks, cluster), .twice = true, .algorithm = "ring"};
  if (const auto nvls = switches(ranks, cluster, options)) {
    const double size = bytes.as_double();
    const double fill = std::min(nvls_chunk * ranks, size);
    best = faster(
        best, {.time = nvls_latency + at_rate(fill + size, nvls->rate.value), .algorithm = "nvls"});
  }
  return best;
}

/// Latency of a tree's stage for a buffer of `bytes`: linear between rows in the logarithms of
/// both.
Seconds stage_latency(const AllReduceAcross& across, double bytes) {
  const auto& rows = across.stages;
  const auto after = std::find_if(rows.begin(), rows.end(), [bytes](const auto& row) {
    return row.first.as_double() >= bytes;
  });
  if (after == rows.begin()) {
    return after->second.value;
  }
  if (after == rows.end()) {
    return rows.back().second.value;
  }
  const auto before = after - 1;
  const double share =
      std::log(bytes / before->first.as_double()) / std::log(after->first / before->first);
  return before->second.value * std::pow(after->second.value / before->second.value, share);
}

/// A group over whole nodes, seen by the algorithms across them.
struct Nodes {
  double count = 2, ranks_of_one = 1, levels = 1;  // levels of a tree: log2(count)
  double channels = 1;  // to fill, over those of four NICs; of more no more is known
  Bandwidth nics;       // of the ranks of one node, nominal
};

Nodes nodes_of(int ranks, int count, const Cluster& cluster) {
  const double of_one = static_cast<double>(ranks) / count;
  const double nics = std::max(1.0, of_one / cluster.gpus_per_nic());
  return {.count = static_cast<double>(count),
          .ranks_of_one = of_one,
          .levels = std::log2(count),
          .channels = std::min(1.0, nics / nics_of_fill),
          .nics = cluster.nominal_rate(Scope::inter) * nics};
}

/// What passes a node's NICs in a tree: everything once between two nodes, else twice.
Bandwidth tree_rate(const AllReduceAcross& across, const Nodes& nodes) {
  return nodes.nics * (across.tree_share.value * (nodes.count > 2 ? 0.5 : 1.0));
}

Seconds tree(double bytes, const AllReduceAcross& across, const Nodes& nodes, const Inside& node) {
  const double hops = 2 * (nodes.ranks_of_one - 1);
  Bandwidth rate = tree_rate(across, nodes);
  if (hops > 0) {  // inside a node it moves as a ring does
    rate = std::min(rate, node.rate * (nodes.ranks_of_one / hops));
  }
  rate = rate * (nodes.count > 2 ? node.tree_scaling : 1.0);
  Seconds latency = node.latency + hops * tree_hop + nodes.levels * stage_latency(across, bytes);
  if (bytes >= simple_from) {
    const double fill = nodes.channels * tree_fill * bytes / (bytes + tree_half);
    const Seconds stage =
        across.simple_stage.value + at_rate(fill, nodes.nics * across.tree_share.value);
    latency =
        std::max(latency, tree_latency_simple + hops * tree_hop_simple + nodes.levels * stage);
  }
  return latency + at_rate(bytes, rate);
}

Seconds ring(double bytes, int ranks, const AllReduceAcross& across, const Nodes& nodes,
             const Inside& node) {
  const Seconds step = across.ring_hop.value + (nodes.ranks_of_one - 1) * ring_hop_simple;
  const double charged = std::max(bytes, nodes.channels * ring_buffer * ranks);
  return node.latency + 2 * (nodes.count - 1) * step +
         at_rate(sent_in_ring(charged, ranks),
                 std::min(nodes.nics * across.ring_share.value, node.rate));
}

Seconds nvls_tree(double bytes, const AllReduceAcross& across, const Nodes& nodes,
                  const SwitchReduction& nvls) {
  const double fill = std::min(nvls_chunk * nodes.ranks_of_one, bytes);
  const Bandwidth inside = nodes.count > 2 ? nvls.tree_rate.value : nvls.rate.value;
  return nvls_latency + nodes.levels * stage_latency(across, bytes) +
         at_rate(fill * (1 + nvls_tree_fills * nodes.levels) + bytes,
                 std::min(inside, tree_rate(across, nodes)));
}

/// The same.
AllReduceCost across_nodes(Bytes bytes, int ranks, const Nodes& nodes, const Cluster& cluster,
                           const AllReduceOptions& options) {
  const auto& across = cluster.machine().inter->transport.all_reduce_across;
  const double size = bytes.as_double();
  const Inside node = inside(cluster);
  const AllReduceCost by_tree{.time = tree(size, *across, nodes, node), .algorithm = "tree"};
  if (const auto nvls = switches(nodes.ranks_of_one, cluster, options)) {
    const AllReduceCost by_switches{.time = nvls_tree(size, *across, nodes, *nvls),
                                    .algorithm = "nvls tree"};
    return size >= nvls_tree_from ? by_switches : faster(by_tree, by_switches);
  }
  return faster(
      by_tree,
      {.time = ring(size, ranks, *across, nodes, node), .twice = true, .algorithm = "ring"});
}

}  // namespace

AllReduceCost all_reduce_cost(Bytes bytes, const RankGroup& group, const Placement& placement,
                              const AllReduceOptions& options) {
  if (group.size < 2 || bytes.value() <= 0) {
    return {.time = Seconds(0), .twice = true, .algorithm = "ring"};
  }
  std::vector<int> nodes;
  for (int i = 0; i < group.size; ++i) {
    nodes.push_back(placement.node(group.rank(i)));
  }
  std::ranges::sort(nodes);
  const auto repeated = std::ranges::unique(nodes);
  nodes.erase(repeated.begin(), repeated.end());
  const Cluster& cluster = placement.cluster();
  if (nodes.size() == 1) {
    return cluster.machine().intra.all_reduce_inside
               ? in_node(bytes, group.size, cluster, options)
               : scatter_gather(bytes, group, placement, Scope::intra);
  }
  if (!cluster.machine().inter->transport.all_reduce_across) {
    return scatter_gather(bytes, group, placement, Scope::inter);
  }
  AllReduceCost cost =
      across_nodes(bytes, group.size, nodes_of(group.size, static_cast<int>(nodes.size()), cluster),
                   cluster, options);
  // Trees and switches pass at least one leaf's sum out and the whole one in.
  const Bytes passed(
      std::llround(cost.twice ? sent_in_ring(bytes.as_double(), group.size) : bytes.as_double()));
  const Rank self = group.rank(0);
  cost.time =
      std::max({cost.time, leaf_time(CommKind::all_reduce, group, self, passed, placement),
                shared_links_time(CommKind::reduce_scatter, group, self, passed, placement)});
  return cost;
}

}  // namespace spp::sim
