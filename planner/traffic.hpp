// Which links a plan's traffic takes. What a rank sends along each axis is the prediction's
// (step/sent.hpp); over which links it goes says the lowering of its collectives and messages
// (sim/lowering.hpp), of attention that of its schedules' ops.
//
// Looked at are the links out of the first node, under an oversubscribed leaf those out of its
// nodes, with every rank on them sending what the prediction's rank sends: nodes are alike, and
// links into a node carry what links out of it do. Only stages of a pipeline are not: its ends have
// one neighbour, so the node in its middle is looked at, where messages go both ways. Ranks that
// send unequally along an axis (attention's, where a schedule is uneven) keep their proportions. A
// layer whose mask is its own is taken to divide its bytes over peers as the request's mask does.
#pragma once

#include "planner/plan.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// How far the groups of an axis reach.
enum class Reach : std::uint8_t { node, sockets, nodes };
/// "inside a node", "across sockets", "between nodes".
std::string_view to_string(Reach);

struct LinkTraffic {
  sim::Link link;
  std::string name;  // "node 0 nic 3 out"
  double bytes = 0;  // over it in a step
  [[nodiscard]] Seconds busy() const { return Seconds(bytes / link.capacity.value()); }
};

struct AxisTraffic {
  StepAxis axis = StepAxis::tensor;
  std::vector<int> gpus;  // of its first group
  int groups = 1;
  Reach reach = Reach::node;
  SentBytes::ByKind sent{};        // by a rank in a step
  std::vector<LinkTraffic> links;  // of Traffic::links those that it takes, with its own bytes
};

struct Traffic {
  std::vector<AxisTraffic> axes;   // that send something, innermost first
  std::vector<LinkTraffic> links;  // of each kind the busiest, by falling time
};

/// Of a step, or of a bare attention call. `c` answers the request. Nothing: these are so many
/// ranks that to lead their messages over links would take longer than all the rest.
std::optional<Traffic> traffic_of(const Request& request, const Candidate& c);

}  // namespace spp
