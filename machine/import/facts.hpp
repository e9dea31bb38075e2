// What files of others say about a machine, each with its place: what a reader of a format finds
// (machine/import/format.hpp) and what is put together into a machine (machine/import/merge.hpp).
#pragma once

#include "base/units.hpp"
#include "machine/machine.hpp"
#include "machine/nccl_tests.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp::imports {

/// What a file may speak of: no machine is near these, and readers stay small.
constexpr int most_gpus_of_host = 128;
constexpr std::size_t most_layouts = 64;
constexpr std::size_t most_gpu_facts = 8192;
constexpr std::size_t most_gpu_name = 100;

struct Place {
  std::string file;
  std::size_t line = 0;  // 0: the file altogether
};
/// "topo.txt:12".
std::string to_string(const Place& place);

/// The closest way between two devices of a node, in the words of `nvidia-smi topo`.
enum class Way : std::uint8_t {
  unknown,
  nvlink,
  pix,   // at most one PCIe switch
  pxb,   // several PCIe switches
  phb,   // a host bridge
  node,  // host bridges of one NUMA node
  sys    // the link between NUMA nodes
};
struct Between {
  Way way = Way::unknown;
  int nvlinks = 0;
  Place place;
  friend bool operator==(const Between& a, const Between& b) {
    return a.way == b.way && a.nvlinks == b.nvlinks;
  }
};
/// "NV18", "PIX".
std::string to_string(const Between& between);

constexpr std::string_view smi_topo_origin = "nvidia-smi topo -m";

struct Card {
  std::string name;
  std::vector<Between> to;  // by GPU
  friend bool operator==(const Card&, const Card&) = default;
};

/// One node as one source saw it. GPUs are counted from 0.
struct Layout {
  Place place;
  std::string origin;                         // smi_topo_origin
  std::vector<std::vector<Between>> between;  // GPU by GPU, both ways
  std::vector<std::string> numa;              // by GPU; "": not said
  std::vector<Card> cards;                    // network adapters
  [[nodiscard]] int gpus() const { return static_cast<int>(between.size()); }
};

struct GpuFact {
  std::optional<int> index;
  std::string name;  // as the driver calls it, "…" at the end if it was cut off; or "10de:2330"
  std::optional<Bytes> memory;
  int compute_capability = 0;  // 0: not said
  int pcie_generation = 0;     // that the slot and the GPU reach; 0: not said
  int pcie_width = 0;
  bool mig = false;
  bool label = false;  // the name is a word of who runs the cluster, not the driver's
  Place place;
};

struct GpuCount {
  int gpus = 0;
  std::string origin;
  Place place;
};

struct CardFact {
  std::string name;
  std::optional<Bandwidth> rate;
  std::string transport;  // "ib", "roce", "ethernet", "efa", "slingshot"; "": not said
  bool up = true;
  Place place;
  std::optional<Bandwidth> slot = {};  // what its PCIe link passes, if that is said
};

/// `nvidia-smi topo -p2p`: pairs that can, and cannot, write into each other's memory.
struct PeerAccess {
  int can = 0, cannot = 0;
  Place place;
};

struct CpuFact {
  std::string vendor;  // as cpuid has it, or "arm64"
  int family = 0, model = 0;
  Place place;
};

struct HostCount {
  int hosts = 0;
  Place place;
};

/// Nodes below one switch of the network, or of one NVLink domain.
struct NodeGroup {
  int nodes = 0;
  bool nvlink = false;
  Place place;
};

struct Facts {
  std::vector<std::string> files;
  std::vector<Layout> layouts;
  std::vector<GpuFact> gpus;
  std::vector<GpuCount> counts;
  std::vector<CardFact> cards;
  std::vector<PeerAccess> peers;
  std::vector<CpuFact> cpus;
  std::vector<HostCount> hosts;
  std::vector<NodeGroup> groups;
  std::vector<NcclTest> tests;
  std::vector<Assumption> notes;  // what a reader had to fill in
};

}  // namespace spp::imports
