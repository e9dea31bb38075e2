// The simulated ranks and the links between them, as links and routes of a FlowNetwork. A flow of a
// representative stands for those of its whole orbit (folding.hpp): it takes of each class of links
// what all of these take.
#pragma once

#include "sim/flow_network.hpp"
#include "sim/simulate.hpp"

#include <span>
#include <vector>

namespace spp::sim {

/// What a simulated rank owns in the network.
struct RankLinks {
  LinkId device;      // of capacity 1: its SMs, or its core
  LinkId port;        // how fast messages between nodes may move; invalid: as they can
  RouteId kernels;    // by the device
  RouteId streaming;  // and the memory that ranks share; invalid: each has its own
};

class FlowRoutes {
 public:
  /// More than the messages of a rank could use together, each at its own speed.
  static constexpr double idle_port = 1e3;

  /// Flows that touch more than `cached` bytes take those of a memory that ranks share.
  FlowRoutes(FlowNetwork& network, const Placement& placement, const SimulationCosts& costs,
             const Folding& folding, double cached);

  [[nodiscard]] const RankLinks& of(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].links;
  }
  /// From a simulated rank. `message`: point to point, not part of a collective.
  RouteId route(int rank, const Traffic& flow, bool message);
  /// What flows of these volumes, by link of the network, take of links.
  [[nodiscard]] LinkSeconds taken(std::span<const double> volumes) const;

 private:
  struct KnownRoute {
    Traffic flow;
    bool message = false;
    bool cached = false;
    RouteId route;
  };
  struct RankRoutes {
    RankLinks links;
    std::vector<KnownRoute> known;  // recently used
  };

  [[nodiscard]] const RankLinks& links_of(Rank rank) const { return of(folding_.class_of(rank)); }
  void use(LinkId link, double coefficient);
  void use_cores(Rank rank, double share);
  void use_memory(Rank rank, double bytes);

  FlowNetwork& network_;
  const Placement& placement_;
  const SimulationCosts& costs_;
  const Folding& folding_;
  double cached_;
  std::vector<LinkId> link_ids_;  // of link classes, in the network; added when first used
  std::vector<RankRoutes> ranks_;
  std::vector<Usage> usages_;  // of the route that is made
};

}  // namespace spp::sim
