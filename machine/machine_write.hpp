// The writer of what machine_json.hpp reads: which keys there are, and in which order they stand. A
// number comes as base/numbers.hpp writes it, with unit, source and spread. Null: it is not said,
// and left out.
#pragma once

#include "base/json.hpp"
#include "machine/machine.hpp"

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace spp {

// ---- transports

struct SegmentNumbers {
  Json up_to;  // of the last: null, and written
  Json latency, fraction;
};
Json segment_json(SegmentNumbers numbers);
/// `all_reduce` inside a node: in rings.
Json rings_json(Json segments, Json hop_latency, Json tree_scaling);
/// An entry of `all_to_all_by_ranks`.
Json factor_json(Json ranks, Json factor);

struct TransportNumbers {
  std::array<Json, comm_kinds> segments;  // by CommKind: lists of segment_json; all_reduce: null
  Json hop_latency, all_to_all_by_ranks, all_reduce, fitted_at, cpu_share, sms;
};
/// In place of what `transport` says of these.
void put_numbers(Json& transport, TransportNumbers numbers);

struct TransportHead {
  std::string name, medium;
  Json rate;  // null and written: a network's is that of the machine's NICs
};
Json transport_json(TransportHead head, TransportNumbers numbers);
/// What documents of transports say, as it stands there.
Json sms_of(const Json& transport);
Json rate_of(const Json& transport);

// ---- generations and GPUs

struct AttentionNumbers {
  Json q_tile, kv_tile, backward_tile, ctas_per_sm, item_overhead, item_overhead_backward;
  Json forward_full, forward_causal, backward_full, backward_causal;
  Json head_dim_64, head_dim_256;
  Json startup, startup_backward;
  ItemOrder forward_order = ItemOrder::unknown;
  ItemOrder backward_order = ItemOrder::unknown;
};
Json attention_json(AttentionNumbers numbers);

struct GemmNumbers {
  Json efficiency, startup, tile;
};
Json gemm_json(GemmNumbers numbers);

struct GenerationNumbers {
  std::string name, kernel;
  Json attention, gemm, memory_efficiency, layer, launch, group;
};
Json generation_json(GenerationNumbers numbers);
/// What documents of generations say, as it stands there; `group`: null if it does not.
Json gemm_of(const Json& generation);
Json group_of(const Json& generation);

struct GpuNumbers {
  std::string name;
  Json generation;
  int compute_capability = 0;
  Json sms, matrix_rate, vector_rate_fp32, memory, memory_usable, memory_bandwidth;
};
Json gpu_json(GpuNumbers numbers);

// ---- machines

struct InterNumbers {
  Json transport, nics, rate_per_nic, gpus_per_nic;
};

struct HostNumbers {
  Json cores, shared_by;
};

struct SharedDeviceNumbers {
  Json ranks;
  bool split = true;
  Json memory_bandwidth, l2;
};

/// A machine's document. Its parts stand in the order in which they are put first.
class MachineDocument {
 public:
  explicit MachineDocument(const std::string& name);
  /// One that is complete (Catalog::whole_machine), to change parts of it.
  explicit MachineDocument(Json whole) : json_(std::move(whole)) {}

  void put_gpu(Json gpu);
  void put_gpus_per_node(Json count);
  void put_sockets(Json count);
  void put_intra(Json transport, const std::string& medium);
  /// Of the link that put_intra put.
  void put_intra_rate(Json rate);
  void put_intra_spread(double spread);
  void put_host_bridge(Json rate);
  void put_socket_link(Json rate);
  void put_gpus_per_pcie_switch(Json count);
  void put_inter(InterNumbers numbers);
  void put_inter_spread(double spread);
  void put_fat_tree(Json nodes_per_leaf, Json oversubscription);
  void put_assumptions(const std::vector<Assumption>& assumptions);
  void put_host(HostNumbers numbers);
  void put_device(SharedDeviceNumbers numbers);

  /// Inside a node, and between nodes; of a machine that has it.
  [[nodiscard]] Json& intra_transport();
  [[nodiscard]] Json& inter_transport();

  [[nodiscard]] Json take() { return std::move(json_); }

 private:
  Json json_;
};

}  // namespace spp
