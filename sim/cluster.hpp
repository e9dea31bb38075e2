// A cluster of GPUs as links and routes: what the network model sees.
//
// The machine is a tree of blocks: GPU < PCIe switch < socket < NIC's GPUs < node < leaf. Every
// block has links out of it and into it, one per direction; a route climbs out of the source's
// blocks and into the destination's. Links of one kind have one capacity, so that a permutation of
// the GPUs that maps blocks to blocks maps the cluster onto itself (sim/folding).
//
//   NVLink, inside a node   gpu_out > gpu_in                  (the switch between does not block)
//   PCIe, one switch        gpu_out > gpu_in
//   PCIe, one socket        gpu_out > switch_out > bridge_out > bridge_in > switch_in > gpu_in
//   PCIe, across sockets    … bridge_out > socket_out > socket_in > bridge_in …
//   between nodes           nic_out > nic_in, with leaf_out > leaf_in between if the nodes lie
//   under
//                           different leaves of an oversubscribed fat tree; on PCIe machines
//                           gpu_out before and gpu_in behind (the NIC hangs on the same root
//                           complex), on NVLink machines the GPU's PCIe slot is its own and faster
//                           than the NIC.
//
// A link's capacity is what large messages achieve on it: nominal rate times the transport's best
// fraction, so that flows which share it never exceed what one of them could reach alone.
//
//   CPU ranks, inside a node   gpu_out > gpu_in               (the rank's own copying; no PCIe)
//   CPU ranks, between nodes   nic_out > nic_in
//
//   ranks of one GPU           gpu_out > gpu_in, emulated nodes nic_out > nic_in; both read and
//                              write the GPU's memory
//
// Cores that CPU ranks share are a link, too, but on no path: the simulator leads kernels and the
// CPU time of messages over it. Its capacity counts seconds of cores per second. A GPU whose SMs
// ranks use in turn is a core that they share. So is the memory of a shared GPU: over it go what
// kernels that stream touch, and what messages read at one end and write at the other. Host
// bridges and socket links have the rate that the machine's file gives, which is an achieved one.
#pragma once

#include "base/id.hpp"
#include "base/units.hpp"
#include "machine/machine.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp::sim {

enum class LinkKind : std::uint8_t {
  gpu_out,
  gpu_in,  // NVLink port, or PCIe slot
  switch_out,
  switch_in,  // PCIe switch uplink, if there are several GPUs under one
  bridge_out,
  bridge_in,  // host bridge of a socket
  socket_out,
  socket_in,  // link between sockets
  nic_out,
  nic_in,  // network card, own or shared
  leaf_out,
  leaf_in,  // uplinks of a leaf switch, all of them together (oversubscribed fat tree)
  cores,    // that ranks of a node, of the cluster, or of a GPU share; not if each has one
  memory    // of a GPU that ranks share: bytes read and written
};
constexpr std::size_t link_kinds = 14;
std::string_view to_string(LinkKind);

/// Links of one kind, there and back, from a GPU's port to a leaf's uplinks.
constexpr std::size_t link_levels = 6;
/// Nothing: cores and memory.
std::optional<std::size_t> level_of(LinkKind kind);

/// By level: in which transfers take the busiest link, if they use it to capacity. What else moves
/// there has to wait so long.
class LinkSeconds {
 public:
  double& operator[](std::size_t level) { return of_[level]; }
  double operator[](std::size_t level) const { return of_[level]; }
  LinkSeconds& operator+=(const LinkSeconds& other) {
    for (std::size_t i = 0; i < link_levels; ++i) {
      of_[i] += other.of_[i];
    }
    return *this;
  }
  friend LinkSeconds operator*(double times, LinkSeconds s) {
    for (double& seconds : s.of_) {
      seconds *= times;
    }
    return s;
  }

 private:
  std::array<double, link_levels> of_{};
};

struct Link {
  LinkKind kind = LinkKind::gpu_out;
  int first_gpu = 0;   // lowest GPU of the block it belongs to
  Bandwidth capacity;  // cores: how many
};

enum class Scope : std::uint8_t { self, intra, inter };

/// Links from one GPU to another, in order. Empty for self.
struct Path {
  std::array<LinkId, 10> storage{};
  std::uint8_t size = 0;
  Scope scope = Scope::self;
  [[nodiscard]] std::span<const LinkId> links() const& { return {storage.data(), size}; }
  std::span<const LinkId> links() const&& = delete;  // would dangle: for (… : c.path(a, b).links())
};

/// GPUs are numbered node by node. Immutable.
class Cluster {
 public:
  /// `nodes` machines, of which the first `gpus` GPUs are used (node by node). InputError if the
  /// machine's parts do not fit, there are more than 2^20 GPUs, or several nodes without a network.
  Cluster(MachineSpec machine, int nodes, int gpus);

  [[nodiscard]] const MachineSpec& machine() const { return machine_; }
  [[nodiscard]] int nodes() const { return nodes_; }
  [[nodiscard]] int gpus() const { return gpus_; }
  [[nodiscard]] int gpus_per_node() const { return per_node_; }
  [[nodiscard]] int node_of(int gpu) const { return gpu / per_node_; }
  [[nodiscard]] std::span<const Link> links() const { return links_; }
  /// For people: "node 0 gpu 3 out".
  [[nodiscard]] std::string name_of(const Link& link) const;
  /// O(1): block numbers are quotients.
  [[nodiscard]] Path path(int from, int to) const;
  [[nodiscard]] Scope scope(int from, int to) const;
  /// Transport between two GPUs: intra or inter (never self).
  [[nodiscard]] const TransportSpec& transport(Scope scope) const;
  /// Nominal rate of one GPU's way out in a scope: its port, or its NIC (whole, even when shared).
  [[nodiscard]] Bandwidth nominal_rate(Scope scope) const;
  /// How many times longer kernels take that all ranks run at once: ranks per shared core, or per
  /// GPU whose SMs they use in turn, or 1.
  [[nodiscard]] double ranks_per_core() const;
  /// GPUs that share one NIC.
  [[nodiscard]] int gpus_per_nic() const;
  /// Number of the block of `gpu` that owns links of `kind`; equal for GPUs that share the link.
  [[nodiscard]] int block(LinkKind kind, int gpu) const {
    return gpu / block_size_[static_cast<std::size_t>(kind)];
  }
  /// The link of a kind that `gpu`'s block owns; invalid if this machine has none of that kind.
  [[nodiscard]] LinkId link(LinkKind kind, int gpu) const;

 private:
  /// One link of `kind` for each of its blocks.
  void add(LinkKind kind, Bandwidth capacity);
  [[nodiscard]] bool has(LinkKind kind) const {
    return first_link_[static_cast<std::size_t>(kind)] >= 0;
  }

  MachineSpec machine_;
  int nodes_ = 1;
  int gpus_ = 1;
  int per_node_ = 1;
  std::vector<Link> links_;
  std::array<int, link_kinds> block_size_{};           // GPUs per block
  std::array<std::int32_t, link_kinds> first_link_{};  // of the kind in links_; -1: none
};

}  // namespace spp::sim
