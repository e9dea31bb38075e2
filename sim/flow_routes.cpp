#include "sim/flow_routes.hpp"

#include <limits>

namespace spp::sim {

FlowRoutes::FlowRoutes(FlowNetwork& network, const Placement& placement,
                       const SimulationCosts& costs, const Folding& folding, double cached)
    : network_(network),
      placement_(placement),
      costs_(costs),
      folding_(folding),
      cached_(cached),
      link_ids_(placement.cluster().links().size()) {
  for (const Rank rank : folding.representatives()) {
    RankLinks& own = ranks_.emplace_back().links;
    own.device = network_.add_link(1.0);
    if (costs_.beside_kernels < 1) {
      own.port = network_.add_link(idle_port);
    }
    usages_ = {{.link = own.device}};
    use_cores(rank, 1.0);
    own.kernels = network_.add_route(usages_);
    if (cached_ < std::numeric_limits<double>::infinity()) {
      use_memory(rank, costs_.local_copy.value());
      own.streaming = network_.add_route(usages_);
    }
  }
}

RouteId FlowRoutes::route(int rank, const Traffic& flow, bool message) {
  constexpr std::size_t remembered = 8;
  std::vector<KnownRoute>& recent = ranks_[static_cast<std::size_t>(rank)].known;
  const bool cached = 2 * flow.bytes <= cached_;
  for (const KnownRoute& known : recent) {
    if (known.message == message && known.cached == cached && known.flow.to == flow.to &&
        known.flow.rate_cap == flow.rate_cap && known.flow.cpu == flow.cpu) {
      return known.route;
    }
  }
  const Rank from = folding_.representatives()[static_cast<std::size_t>(rank)];
  usages_.clear();
  // A message of CPU ranks flows in seconds of cores, as kernels do, so that they share cores
  // max-min fairly; it takes 1/cpu bytes of its links for each.
  const double bytes = flow.cpu > 0 ? 1 / flow.cpu : 1;
  const Path path = placement_.path(from, flow.to);
  for (const LinkId link : path.links()) {
    use(link, bytes);
  }
  if (flow.cpu > 0) {
    for (const Rank end : {from, flow.to}) {
      usages_.push_back({.link = links_of(end).device, .coefficient = 0.5});
      use_cores(end, 0.5);
    }
  }
  if (!cached) {
    use_memory(from, bytes);
    use_memory(flow.to, bytes);
  }
  if (message && costs_.beside_kernels < 1 && placement_.scope(from, flow.to) == Scope::inter) {
    for (const Rank end : {from, flow.to}) {
      usages_.push_back({.link = links_of(end).port, .coefficient = bytes / flow.rate_cap});
    }
  }
  const RouteId found = network_.route_for(usages_, flow.rate_cap / bytes);
  if (recent.size() == remembered) {
    recent.erase(recent.begin());
  }
  recent.push_back({.flow = flow, .message = message, .cached = cached, .route = found});
  return found;
}

LinkSeconds FlowRoutes::taken(std::span<const double> volumes) const {
  LinkSeconds taken;
  for (std::size_t i = 0; i < link_ids_.size(); ++i) {
    const Link& link = placement_.cluster().links()[i];
    if (const auto level = level_of(link.kind); level && link_ids_[i].valid()) {
      taken[*level] =
          std::max(taken[*level], volumes[link_ids_[i].index()] / link.capacity.value());
    }
  }
  return taken;
}

/// Adds a link of the cluster to `usages_`: its class, with what the whole orbit of the flow takes
/// of each of its links.
void FlowRoutes::use(LinkId link, double coefficient) {
  const LinkId link_class = folding_.link_class(link);
  LinkId& id = link_ids_[link_class.index()];
  if (!id.valid()) {
    id = network_.add_link(placement_.cluster().links()[link_class.index()].capacity.value());
  }
  usages_.push_back({.link = id,
                     .coefficient = coefficient * static_cast<double>(folding_.size()) /
                                    folding_.links_in_class(link_class)});
}

/// The cores that a rank shares with others, if it does.
void FlowRoutes::use_cores(Rank rank, double share) {
  const LinkId cores = placement_.cluster().link(LinkKind::cores, placement_.gpu(rank));
  if (cores.valid()) {
    use(cores, share);
  }
}

/// The memory of the GPU that a rank shares with others, if it does.
void FlowRoutes::use_memory(Rank rank, double bytes) {
  const LinkId memory = placement_.cluster().link(LinkKind::memory, placement_.gpu(rank));
  if (memory.valid()) {
    use(memory, bytes);
  }
}

}  // namespace spp::sim
