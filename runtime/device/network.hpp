// An emulated network for ranks on one GPU: how long the messages of an op would have taken over
// links, after which the op may end. Copies inside a GPU take a few microseconds; what remains is
// waited for on the device.
//
// Model. Every rank has one link into its node and one into the network, each with a latency alpha
// and a rate beta, in both directions at once; messages into one rank share its link:
//
//   exchange, all_to_all         alpha + (all bytes that come over the link) / beta; the slower of
//                                both links
//   all_gather, reduce_scatter   ring, host by host (runtime/comm/collectives.hpp): n - 1 steps,
//                                each as long as one part over the slowest edge; all_reduce: both
#pragma once

#include "base/id.hpp"
#include "base/units.hpp"
#include "schedule/mesh.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace spp::runtime {

struct EmulatedLink {
  Seconds alpha{};
  Bandwidth beta{};
  [[nodiscard]] Seconds time(std::int64_t bytes) const { return alpha + Bytes(bytes) / beta; }
};

struct EmulatedNetwork {
  EmulatedLink intra, inter;
  int ranks_per_node = 1;  // ranks 0 to ranks_per_node - 1 are on node 0, and so on

  [[nodiscard]] int node(Rank rank) const { return rank.value / ranks_per_node; }
};

struct Incoming {
  Rank from;
  std::int64_t bytes = 0;
};
/// From the moment when all senders are ready until rank `self` has all of `messages`.
Seconds direct_time(const EmulatedNetwork& network, Rank self, std::span<const Incoming> messages);
/// Of an all_gather or reduce_scatter with parts of `bytes`; 0 in a group of one.
Seconds ring_time(const EmulatedNetwork& network, const RankGroup& group, std::int64_t bytes);

/// "5us:100GB/s" (one node) or "5us:100GB/s,20us:12.5GB/s,4": links inside nodes, links between
/// them, ranks a node. InputError(where) on anything else.
EmulatedNetwork parse_network(std::string_view text, std::string_view where);

}  // namespace spp::runtime
