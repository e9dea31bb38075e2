// What can be said about NCCL communicators without NCCL: which ones a schedule needs, and what
// NCCL writes about its connections.
#pragma once

#include "schedule/storage.hpp"

#include <compare>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp::runtime::cuda {

/// The communicator of a group on one stream of the schedule. Streams have communicators of their
/// own: NCCL runs the ops of a communicator one after the other, in an order that must be the same
/// on all members, and only ops of one stream have such an order.
struct CommunicatorKey {
  StreamId stream;
  RankGroup group;
  friend bool operator==(const CommunicatorKey&, const CommunicatorKey&) = default;
};

/// Communicators that are made by one ncclCommSplit, which all ranks call: no two share a rank on
/// the same layer.
using CommunicatorLayer = std::vector<CommunicatorKey>;

/// All that the programs need, in an order that is the same on all ranks. Exchanges go over all
/// `ranks` ranks; groups of one rank need none. If there is any, one is of all ranks, on which they
/// meet before a run (meeting_place).
std::vector<CommunicatorLayer> communicator_layers(
    std::span<const std::vector<StoredProgram>* const> phases, int ranks);

/// Of all ranks: the first of those in `layers`.
const CommunicatorKey& meeting_place(const std::vector<CommunicatorLayer>& layers, int ranks);

/// Slow connections in NCCL's log (NCCL_DEBUG=INFO), a line for people each: memory of the host
/// ("via SHM") or sockets ("via NET/Socket") in place of NVLink, PCIe or RDMA. Empty: none were
/// seen.
std::vector<std::string> slow_connections(std::string_view log);

}  // namespace spp::runtime::cuda
