// Machines as data: GPUs, generations (kernel defaults), transports and machines, read from
// topologies/*.json. Every number keeps its source and spread (base/json.hpp: Sourced).
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"
#include "machine/gemm_format.hpp"
#include "machine/layer_kernels.hpp"
#include "machine/linear_spec.hpp"
#include "machine/sparse_spec.hpp"
#include "schedule/measure.hpp"
#include "schedule/problem.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace spp {

/// A message of up to `up_to` bytes takes latency + bytes / (fraction * nominal rate).
struct Segment {
  Bytes up_to;  // largest message; the last segment has the largest Bytes there is
  Sourced<Seconds> latency;
  Sourced<double> fraction;
};

/// What a message costs: latency + bytes / rate. `rate` also caps its flow on the network.
struct MessageCost {
  Seconds latency{};
  Bandwidth rate;
};

/// Cost of a message of `bytes` on segments that reach their fractions of `nominal`; never falls as
/// `bytes` grow (see TransportSpec).
MessageCost cost_on(const std::vector<Segment>& segments, Bytes bytes, Bandwidth nominal);

/// NVLS: switches that add up what all GPUs of a node send (NVLink SHARP). Rates are bytes of one
/// rank's buffer per second ("algorithm bandwidth").
struct SwitchReduction {
  Sourced<Bandwidth> rate;       // alone, or between two nodes
  Sourced<Bandwidth> tree_rate;  // as the leaves of a tree of more nodes
};

/// All-reduce inside a node (sim/all_reduce.hpp).
struct AllReduceInside {
  std::vector<Segment> ring;     // of what a rank sends: 2 (n-1)/n of its buffer
  Sourced<Seconds> hop_latency;  // of each of the ring's 2 (n-1) steps
  Sourced<double> tree_scaling;  // what a tree of more than two nodes keeps of its rate
  std::optional<SwitchReduction> nvls;
};

/// All-reduce across nodes (sim/all_reduce.hpp).
struct AllReduceAcross {
  /// A tree's stage, up and down, by the size of the buffer: latency at `first`, interpolated
  /// between in logarithms.
  std::vector<std::pair<Bytes, Sourced<Seconds>>> stages;
  Sourced<Seconds> simple_stage;           // the same of NCCL's Simple protocol, pipeline empty
  Sourced<Seconds> ring_hop;               // of each of a ring's 2 (nodes-1) steps between nodes
  Sourced<double> tree_share, ring_share;  // of the node's NICs
};

/// One way of moving bytes: NVLink 4, PCIe 5, InfiniBand … with what NCCL reaches on it.
///
/// Segments join at the nominal rate they were fitted at. On another one (network transports: the
/// machine's NICs decide) a border would be a step, and a longer message could be faster than a
/// shorter one; so time never falls at a border: T(S) = max(segment(S), T(border before)).
struct TransportSpec {
  std::string name;
  std::vector<std::string> aliases;
  std::string medium;                           // nvlink | pcie | host | device | network
  std::optional<Sourced<Bandwidth>> rate;       // nominal, one direction; network: the NIC's rate
  std::optional<Sourced<Bandwidth>> fitted_at;  // network: where the segments join
  std::optional<Sourced<Bandwidth>> most;  // network: a faster NIC carries no more (TCP's threads)
  std::array<std::vector<Segment>, comm_kinds> segments;    // by CommKind
  Sourced<Seconds> hop_latency;                             // per ring step of gather and scatter
  std::vector<std::pair<int, double>> all_to_all_by_ranks;  // factor on the all-to-all fraction
  /// Time of copying a rank's own part in a gather or scatter, beside sending as much: its kernels
  /// do both. 0: not told apart.
  double own_copy = 0;
  std::optional<AllReduceInside> all_reduce_inside;  // none: scatter and gather, one launch
  std::optional<AllReduceAcross> all_reduce_across;  // the same
  Sourced<std::int64_t> sms;  // SMs that the communication kernel occupies; 0: cpu_share instead
  /// Part of its core that a rank spends while it sends and receives at the rate that it reaches
  /// alone: half of it on each. The rank's own thread copies: 1. No GPU transport has it.
  std::optional<Sourced<double>> cpu_share;

  /// The segment of a message of `bytes` (what one rank sends in the call).
  [[nodiscard]] const Segment& segment(CommKind kind, Bytes bytes) const;
  /// Time of a message of `bytes` with its links for itself; never falls as `bytes` grow.
  [[nodiscard]] Seconds time(CommKind kind, Bytes bytes, Bandwidth nominal) const;
  /// The same as a latency and the segment's rate: latency + bytes / rate == time(…).
  [[nodiscard]] MessageCost cost(CommKind kind, Bytes bytes, Bandwidth nominal) const;
  /// Factor for an all-to-all over `ranks`, interpolated in log2; 1 if the transport has no table.
  [[nodiscard]] double all_to_all_factor(int ranks) const;
  /// Factor for a gather or scatter over `ranks`: 1 / (1 + own_copy / (ranks - 1)).
  [[nodiscard]] double own_copy_factor(int ranks) const {
    return ranks < 2 ? 1 : 1 / (1 + own_copy / (ranks - 1));
  }
  /// Best share of the nominal rate that any message reaches: what a link can carry.
  [[nodiscard]] double best_fraction() const;
};

/// In which order a kernel launches the items of a block that a mask leaves unequal.
enum class ItemOrder : std::uint8_t {
  unknown,
  shortest_first,        // within each head, heads one after another
  longest_first,         // the same
  longest_first_of_all,  // over all heads
};

/// How an attention kernel fills a GPU (topologies/README.md has the meaning of each).
struct AttentionKernelSpec {
  std::string kernel;  // "FA2", "FA3 or cuDNN 9"
  Sourced<std::int64_t> q_tile, kv_tile, backward_tile, ctas_per_sm;
  Sourced<std::int64_t> item_overhead, item_overhead_backward;  // rows
  Sourced<double> forward_full, forward_causal, backward_full, backward_causal;
  Sourced<double> head_dim_64;
  Sourced<Seconds> startup, startup_backward;
  std::optional<Sourced<double>> forward_minimum_fill;
  // NOLINTBEGIN(readability-redundant-member-init): without, g++ wants them in every initialiser
  std::optional<Sourced<double>> split_rate = {};      // of forward; needs forward_minimum_fill
  std::optional<Sourced<double>> lone_item = {};       // none: an item never shares its slot
  std::optional<Sourced<double>> head_dim_256 = {};    // none: as at head_dim 128
  std::optional<Sourced<double>> backward_bytes = {};  // none: nothing beside the main kernel
  // Of each query and key of a head, hidden or not, what the forward leaves for the backward; none:
  // a fused kernel computes it again.
  std::optional<Sourced<double>> kept_pair_bytes = {};
  ItemOrder forward_order = ItemOrder::unknown;
  ItemOrder backward_order = ItemOrder::unknown;
  std::optional<Sourced<std::int64_t>> matrix_rate_factor = {};  // none: 1
  std::string version_of = {};  // the kernel of which it is an earlier version; "": none
  int until = 0;                // year up to which that name meant this version
  // NOLINTEND(readability-redundant-member-init)
};

/// Power limit: a call of t > `after` takes t * (1 + per_decade * log10(t / after)).
struct PowerLimit {
  Sourced<Seconds> after;
  Sourced<double> per_decade;
};

/// Part of an output matrix that one SM works on.
struct GemmTile {
  std::int64_t rows = 0, columns = 0;
};

/// How GEMMs fill a GPU (machine/gemm_cost.hpp has the formulas).
struct GemmTilesSpec {
  std::vector<GemmTile> shapes;             // that a library chooses from
  Sourced<std::int64_t> small_tile;         // rows: how fast efficiency falls with the tile
  Sourced<Seconds> tile_time;               // start and end of a tile of 128 x 128
  Sourced<Seconds> split;                   // of adding up what several SMs did along k
  Sourced<double> memory;                   // part of the memory's rate at which matrices stream
  Sourced<double> slower;                   // that long GEMMs become, and
  Sourced<Seconds> slower_after;            // from which length (half of it there)
  Sourced<double> grouped, grouped_memory;  // of a grouped GEMM: efficiency, memory
};

/// GEMMs in a narrower format than the tensors around.
struct GemmFormatSpec {
  Sourced<double> efficiency;              // of the peak of that format
  Sourced<Seconds> quantise;               // of the kernel that rounds A
  Sourced<std::int64_t> quantise_bytes;    // that it moves for each element
  std::optional<Sourced<double>> grouped;  // none: as GemmTilesSpec
};

/// A rank's experts, beside their GEMMs: routing, sorting, the weighted sum.
struct ExpertLayerSpec {
  Sourced<Seconds> beside;  // of its small kernels together
  Sourced<double> traffic;  // over bytes that must move; below 1: the L2 holds part
};

struct GenerationSpec {
  std::string name;
  AttentionKernelSpec attention;
  Sourced<double> gemm_efficiency;
  Sourced<Seconds> gemm_startup;
  Sourced<std::int64_t> gemm_tile;
  std::optional<GemmTilesSpec> gemm_tiles;  // none: one tile of gemm_tile rows, and nothing more
  std::map<GemmFormat, GemmFormatSpec> gemm_formats;
  /// Part of its rate alone that a GEMM keeps inside a training step. None: all.
  std::optional<Sourced<double>> gemm_training;
  std::optional<ExpertLayerSpec> expert_layer;
  std::optional<LinearSpec> linear;                    // none: nobody knows how it runs that
  std::optional<SparseSpec> sparse;                    // likewise
  LayerKernelsSpec layer;                              // as timed here; published ones: none
  Sourced<double> memory_efficiency;                   // of elementwise kernels
  Sourced<Seconds> launch;                             // host cost of one kernel
  std::map<std::string, AttentionKernelSpec> kernels;  // alternatives by name: "FA2", "cuDNN 9"
  /// Time of attention on one GPU of a job whose GPUs all work, over its time alone: shared power
  /// and cooling, and the slowest of many. At least 1; none: 1.
  std::optional<Sourced<double>> group_forward, group_backward;
};

/// An attention kernel that was timed (machine/profile.hpp). Tokens are as the kernel saw them.
struct MeasuredAttention {
  std::string kernels;  // as AttentionKernelSpec::kernel
  Phase phase = Phase::forward;
  DType dtype = DType::bf16;
  std::int64_t batch = 1;
  int q_heads = 1, kv_heads = 1, head_dim = 128;
  int value_dim = 0;  // 0: head_dim
  Mask mask{};
  TokenSet q, k;
  Seconds median{};
  double spread = 0;  // relative
  std::int64_t samples = 1;
};

/// A GPU; or a CPU core, which is a GPU of one SM and compute capability 0.
struct GpuSpec {
  std::string name;
  std::vector<std::string> aliases;
  int compute_capability = 0;
  Sourced<std::int64_t> sms;
  std::map<DType, Sourced<FlopRate>> matrix_rate;
  std::optional<Sourced<FlopRate>> fp8_rate, fp4_rate;  // of the matrix units, if they have these
  Sourced<FlopRate> vector_rate_fp32;
  Sourced<Bytes> memory;
  Sourced<double> memory_usable;
  Sourced<Bandwidth> memory_bandwidth;
  std::string intra, pcie;  // default transports; "": none (CPU cores have no PCIe)
  Bandwidth slot{};         // of that PCIe, one way; 0: none
  GenerationSpec generation;
  std::vector<MeasuredAttention> measured;  // of a calibration profile
  /// Of a profile, too: a block that was timed throughout (how fast the machine was then).
  std::optional<MeasuredAttention> pace;
  std::optional<PowerLimit> power_limit;         // of attention
  std::optional<Sourced<double>> gemm_training;  // in place of its generation's
  /// To the host's memory, one way, where it is not PCIe.
  std::optional<Sourced<Bandwidth>> host_link;
  /// GPUs that NVLink joins beyond a board: a node of the model. None: those of a board.
  std::optional<Sourced<std::int64_t>> nvlink_domain;
};

/// Peak of the matrix units; InputError(where) if this GPU has none for `dtype` (V100: bf16).
FlopRate matrix_rate(const GpuSpec& gpu, DType dtype, std::string_view where);

/// An attention kernel of a generation by name, its default included; upper or lower case, and
/// "cudnn" for "cuDNN 9", are one. `year`, above 0: the version that it was then.
/// InputError(where) if unknown.
const AttentionKernelSpec& attention_kernel(const GenerationSpec& generation,
                                            const std::string& kernel, std::string_view where,
                                            int year = 0);

struct FabricSpec {
  std::string kind = "non-blocking";  // or "fat-tree": nodes_per_leaf nodes share a leaf's uplinks
  std::optional<Sourced<std::int64_t>> nodes_per_leaf;
  Sourced<double> oversubscription{.value = 1, .spread = 0, .source = ""};
};

struct InterSpec {
  TransportSpec transport;
  Sourced<std::int64_t> nics;
  Sourced<Bandwidth> rate_per_nic;
  Sourced<std::int64_t> gpus_per_nic;
  double spread = 0;  // as MachineSpec::intra_spread

  /// What fractions of segments are of: a NIC's rate, or the most that the transport makes of one.
  [[nodiscard]] Bandwidth rate() const {
    return transport.most ? std::min(rate_per_nic.value, transport.most->value)
                          : rate_per_nic.value;
  }
};

/// Cores that the ranks of a CPU machine share: each takes one at most. Several nodes share them
/// where nodes are emulated on one machine.
struct HostSpec {
  Sourced<std::int64_t> cores;
  std::int64_t nodes = 1;  // neighbours that share them; 0: all
  [[nodiscard]] int nodes_of(int cluster) const {
    return nodes == 0 ? cluster : static_cast<int>(std::min<std::int64_t>(nodes, cluster));
  }
};

/// A GPU that several consecutive ranks share (threads of one process), on as many nodes as are
/// emulated on it. What a rank has for itself, alone, is in MachineSpec::gpu.
struct SharedDeviceSpec {
  Sourced<std::int64_t> ranks;          // of a GPU
  bool split = true;                    // gpu.sms are a rank's own; else all SMs, in turn
  Sourced<Bandwidth> memory_bandwidth;  // that its ranks reach together
  /// What ranks read and write in pieces that fit into their parts of it does not count there.
  std::optional<Sourced<Bytes>> l2;

  /// Bytes that a rank has to touch at once for the memory to notice.
  [[nodiscard]] double cached() const {
    return l2 ? l2->value.as_double() / static_cast<double>(ranks.value) : 0.0;
  }
};

/// What was assumed on the way to a machine, from a request or from what others wrote about it;
/// printed with every prediction.
struct Assumption {
  std::string what, value, source;
};

struct MachineSpec {
  std::string name;
  std::vector<std::string> aliases;
  GpuSpec gpu;
  Sourced<std::int64_t> gpus_per_node;
  TransportSpec intra;
  Bandwidth intra_rate;  // nominal, per GPU and direction
  /// Least relative spread of what messages reach: where what the transport was measured on may
  /// differ from this machine (switches that nobody described). 0: that of the transport.
  double intra_spread = 0;
  Sourced<std::int64_t> sockets;
  std::optional<Sourced<Bandwidth>> host_bridge, socket_link;
  std::optional<Sourced<std::int64_t>> gpus_per_pcie_switch;
  std::optional<InterSpec> inter;
  FabricSpec fabric;
  std::optional<HostSpec> host;
  std::optional<SharedDeviceSpec> device;  // none: a GPU for every rank
  std::vector<Assumption> assumptions;     // of who described it; of an imported machine
};

/// InputError(where) unless the parts fit: whole GPUs per socket, PCIe switch and NIC; a PCIe
/// machine has its host bridges; an oversubscribed fat tree has leaves; `cpu_share` and shared
/// cores belong to a machine of medium host, and all its transports have the former; copies inside
/// a GPU (medium device) to one that ranks share, whole nodes of it or of it whole ones. Readers
/// and Cluster call it.
void check(const MachineSpec& machine, std::string_view where);

/// Link between the sockets of a PCIe server where nobody says which it is: that of servers that
/// the GPU was sold in.
Bandwidth usual_socket_link(const GpuSpec& gpu, std::string_view transport);

/// How far off PCIe may be where nobody timed an all-to-all on it: two published servers of eight
/// L20 each, alike in nvidia-smi topo -m, differ nine-fold in one (the sources of eight L20 in
/// reports/corpus), from a fifth to 1.8 of a prediction.
constexpr double unmeasured_pcie_spread = 0.8;
/// The same of NVLinks that do not join every pair: predicted as if messages went over others'.
constexpr double mesh_with_holes_spread = 0.8;
/// Whether so many of these GPUs are sold as such a mesh: up to eight V100 (DGX-1); switches join
/// sixteen.
bool is_mesh_with_holes(const GpuSpec& gpu, std::int64_t gpus);

/// Sizes beyond which a description is a typing error.
constexpr std::int64_t most_gpus_per_node = 1024;
constexpr std::int64_t most_gpus = 1 << 20;

/// "nvlink4", "pcie5" or a rate "300GB/s"; "ib:8x400Gb/s", "ethernet:100Gb/s", …
struct ComposedMachine {
  std::string gpu;
  int gpus_per_node = 8;
  // NOLINTBEGIN(readability-redundant-member-init): without, g++ wants them in every initialiser
  std::string intra = {};  // empty: the GPU's default
  std::string inter = {};  // empty: none
  // NOLINTEND(readability-redundant-member-init)
};

struct StackSpec;  // machine/stack.hpp

/// The data folder topologies/: gpus/, generations/, transports/, machines/, stacks/, one file per
/// thing.
/// A machine names a GPU and transports, a GPU names a generation and transports, and those name
/// nothing; so there are no cycles. Reading is strict: an unknown key, a missing unit, a name that
/// is not the file's, or a name used twice in a folder is an InputError that names file and key.
class Catalog {
 public:
  explicit Catalog(std::filesystem::path folder);

  /// Sorted; without aliases.
  [[nodiscard]] std::vector<std::string> gpu_names() const;
  [[nodiscard]] std::vector<std::string> generation_names() const;
  [[nodiscard]] std::vector<std::string> transport_names() const;
  [[nodiscard]] std::vector<std::string> machine_names() const;
  [[nodiscard]] std::vector<std::string> stack_names() const;
  [[nodiscard]] bool has_machine(const std::string& name) const;  // or alias
  /// By name or alias; GPUs and machines also by path of a JSON file (a name with '/' or ending in
  /// .json, or any other that is unknown and a file), whose references are looked up in this
  /// catalog. InputError(where) if unknown.
  [[nodiscard]] GpuSpec gpu(const std::string& name, std::string_view where) const;
  [[nodiscard]] GenerationSpec generation(const std::string& name, std::string_view where) const;
  [[nodiscard]] TransportSpec transport(const std::string& name, std::string_view where) const;
  [[nodiscard]] MachineSpec machine(const std::string& name, std::string_view where) const;
  /// A machine's document, held in memory; `where` names it. Its GPU and its transports stand there
  /// by name, or in place of it. InputError(where).
  [[nodiscard]] MachineSpec machine_of(const Json& document, const std::string& where) const;
  /// The software that runs a plan (machine/stack.hpp).
  [[nodiscard]] StackSpec stack(const std::string& name, std::string_view where) const;
  /// A machine put together from a GPU and links; what was filled in goes to `assumptions`.
  /// The machine, of which nobody said how its nodes are joined, with a network such as
  /// "ib:8x400Gb/s". InputError("--inter") if the text is none, or the machine has one.
  [[nodiscard]] MachineSpec with_network(MachineSpec machine, const std::string& network,
                                         std::vector<Assumption>& assumptions) const;
  [[nodiscard]] MachineSpec compose(const ComposedMachine& request,
                                    std::vector<Assumption>& assumptions) const;
  /// The file of a machine or, if there is no such machine, of a GPU.
  [[nodiscard]] std::filesystem::path file_of(const std::string& name,
                                              std::string_view where) const;
  /// Files of generations/ and transports/ as they are, by name.
  [[nodiscard]] Json generation_document(const std::string& name) const;
  [[nodiscard]] Json transport_document(const std::string& name) const;
  /// A machine, or a file, as a profile has it: GPU, generation and transports in place of their
  /// names. InputError(where).
  [[nodiscard]] Json whole_machine(const std::string& name, std::string_view where) const;
  [[nodiscard]] Json whole_machine_of(Json document, const std::string& where) const;

 private:
  /// What `view` names, or the thing itself.
  [[nodiscard]] GpuSpec gpu_at(const JsonView& view) const;
  [[nodiscard]] GpuSpec complete_gpu(const JsonView& document) const;
  [[nodiscard]] TransportSpec transport_at(const JsonView& view) const;
  /// Adapters far beyond what the GPUs' slots pass: GB/s for Gb/s, or a question of what if.
  void tell_fast_adapters(MachineSpec& machine, const std::string& where) const;
  /// The files of one subfolder.
  struct Shelf {
    std::string what;                                    // "machine"
    std::map<std::string, std::filesystem::path> files;  // by name
    std::map<std::string, std::string> aliases;          // alias -> name
    std::map<std::filesystem::path, Json> documents;     // by file: each is read once
    [[nodiscard]] std::vector<std::string> names() const;
    /// The name that this is, or is an alias of, but for capitals; "": none.
    [[nodiscard]] std::string in_any_case(const std::string& name) const;
    /// Path by name, alias, or, if `paths`, the path itself.
    [[nodiscard]] std::filesystem::path find(const std::string& name, bool paths,
                                             std::string_view where) const;
    /// What a file says, of the shelf or not.
    [[nodiscard]] Json document(const std::filesystem::path& file) const;
    /// `read` of it.
    template <class Read>
    auto read_with(const Read& read, const std::filesystem::path& file) const;
  };
  static Shelf shelf(const std::filesystem::path& folder, std::string_view what);

  std::filesystem::path folder_;
  Shelf gpus_, generations_, transports_, machines_, stacks_;
};

}  // namespace spp
