// Every n-th GPU of a cluster as a cluster of its own: what the members of one group along an outer
// axis see when all such groups talk at once. Ports of GPUs are whole, what GPUs share (NICs, PCIe
// switches, host bridges, links between sockets, uplinks of leaves) is a group's part of it.
#pragma once

#include "sim/cluster.hpp"

#include <optional>

namespace spp::sim {

/// GPUs 0, stride, 2 stride, …: `ranks` of them. A stride that does not divide a node is taken as
/// the next smaller one that does; one beyond a node leaves a GPU a node. Where groups fit into a
/// node, or an NVLink domain of a rack, but do not divide it, some lie in two: then as one of these
/// does, the most evenly cut one. InputError for machines whose ranks share cores or GPUs, unless
/// stride is 1.
Cluster thinned(const Cluster& cluster, int stride, int ranks);

/// An NVLink domain of a rack of which a job has `gpus`, with the sockets and NICs that belong to
/// them; nothing for other machines, or where these do not divide so.
std::optional<MachineSpec> part_of_domain(const MachineSpec& machine, int gpus);

/// So many neighbours of a node, with sockets of theirs, and their part of what they share with the
/// others: cards of their own where they have such.
MachineSpec part_of_node(MachineSpec machine, int gpus);

/// A node as a job has it that fills so many nodes evenly, as launchers do (torchrun starts as many
/// processes on each): a part of it, or of its NVLink domain; all where the GPUs do not divide.
MachineSpec evenly_filled(MachineSpec machine, int nodes, int gpus);

}  // namespace spp::sim
