// Lowering: what a communication op puts on the network.
//
//   exchange        one message, at the transport's send/receive cost for its size
//   all_to_all      direct: one flow to every peer at once (NCCL posts all its sends and receives
//                   in one group; src/enqueue.cc). Each flow's cap is its share of the rate that
//                   the transport reaches in an all-to-all of that size, per scope (inside / across
//                   nodes).
//   all_gather, reduce_scatter
//                   pipelined rings: each rank passes (n-1) blocks to its next, all steps overlap,
//                   so one flow per ring edge plus n-1 hop latencies. Across nodes there are as
//                   many rings as the group has members in a node (one, if nodes have unequally
//                   many), each leaving the node by another member's NIC (NCCL builds such
//                   channels; src/graph/search.cc); each carries its share. Rings go from node to
//                   node whatever the order of the ranks.
//   all_reduce      the edges of those rings, with the time that the fastest algorithm takes alone
//                   (sim/all_reduce.hpp). Rings carry a buffer nearly twice, switches and trees
//                   once.
//
// The lowering depends on op, group and placement only, never on time. Its name is printed with
// every prediction (`algorithm`).
#pragma once

#include "schedule/measure.hpp"
#include "sim/cluster.hpp"

#include <string_view>
#include <vector>

namespace spp::sim {

/// Which GPU is which rank.
class Placement {
 public:
  /// `ranks` ranks on the first GPUs of the cluster. Cyclic order needs whole nodes (else
  /// InternalError).
  Placement(const Cluster& cluster, int ranks, RankOrder order);
  [[nodiscard]] const Cluster& cluster() const { return *cluster_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int gpu(Rank rank) const {
    return order_ == RankOrder::block ? rank.value
                                      : rank.value % nodes_ * per_node_ + rank.value / nodes_;
  }
  [[nodiscard]] int node(Rank rank) const { return cluster_->node_of(gpu(rank)); }
  [[nodiscard]] Scope scope(Rank a, Rank b) const { return cluster_->scope(gpu(a), gpu(b)); }
  [[nodiscard]] Path path(Rank a, Rank b) const { return cluster_->path(gpu(a), gpu(b)); }

 private:
  const Cluster* cluster_;
  int ranks_;
  RankOrder order_;
  int nodes_ = 1;
  int per_node_ = 1;
};

/// One flow that leaves the lowered op's rank.
struct Traffic {
  Rank to;
  double bytes = 0;
  double rate_cap = 0;  // bytes per second that it could reach alone
  double latency = 0;   // seconds before its bytes flow
  double cpu = 0;       // CPU ranks: seconds of cores that a byte costs, half at each end
};

struct LoweredComm {
  std::vector<Traffic> flows;
  Scope scope = Scope::self;   // the widest one it touches
  std::string_view algorithm;  // "p2p", "direct", "ring", "4 rings"
  void clear() {
    flows.clear();
    scope = Scope::self;
    algorithm = {};
  }
};

/// Lowers a communication op of one rank into `out` (cleared first).
void lower(const Transfer& transfer, const Shapes& shapes, const Placement& placement,
           LoweredComm& out);

/// The same of a member of a collective in which each rank sends `sent` bytes, to all others alike
/// where it sends to each.
void lower(CommKind kind, const RankGroup& group, Rank self, Bytes sent, const Placement& placement,
           LoweredComm& out);

/// In which the busiest link that GPUs of `self`'s node share (switches, bridges, sockets) passes
/// what all members in that node send.
Seconds shared_links_time(CommKind kind, const RankGroup& group, Rank self, Bytes sent,
                          const Placement& placement);

/// In which the uplinks of `self`'s leaf pass what leaves it: of an all-to-all what its members
/// send to all others, of rings what one rank sends, since all of them, each with its part, pass
/// from leaf to leaf once. 0 where no leaf's uplinks are shared.
Seconds leaf_time(CommKind kind, const RankGroup& group, Rank self, Bytes sent,
                  const Placement& placement);

/// What a collective takes of the links of a node, that of the group's first member.
LinkSeconds links_taken(CommKind kind, const RankGroup& group, Bytes sent,
                        const Placement& placement);

/// Members of the group of a collective, and the time it takes when it has the network for itself:
/// a closed form of the same lowering, as fast as the busiest link that its members share allows.
/// `sent` = bytes that each rank sends in the call.
Seconds collective_time(CommKind kind, const RankGroup& group, Bytes sent,
                        const Placement& placement);

}  // namespace spp::sim
