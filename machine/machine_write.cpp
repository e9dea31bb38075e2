#include "machine/machine_write.hpp"

#include "base/document.hpp"

#include <string_view>

namespace spp {
namespace {

std::string_view to_string(ItemOrder order) {
  return order == ItemOrder::shortest_first  ? "shortest_first"
         : order == ItemOrder::longest_first ? "longest_first"
                                             : "longest_first_of_all";
}

void put(Json& object, const char* key, Json value) {
  if (!value.is_null()) {
    object[key] = std::move(value);
  }
}

}  // namespace

Json segment_json(SegmentNumbers numbers) {
  return {{"up_to", std::move(numbers.up_to)},
          {"latency", std::move(numbers.latency)},
          {"fraction", std::move(numbers.fraction)}};
}

Json factor_json(Json ranks, Json factor) {
  return {{"ranks", std::move(ranks)}, {"factor", std::move(factor)}};
}

Json rings_json(Json segments, Json hop_latency, Json tree_scaling) {
  return {{"ring", std::move(segments)},
          {"hop_latency", std::move(hop_latency)},
          {"tree_scaling", std::move(tree_scaling)}};
}

void put_numbers(Json& transport, TransportNumbers numbers) {
  for (const auto& [kind, key] :
       {std::pair{CommKind::send_recv, "p2p"}, std::pair{CommKind::all_to_all, "all_to_all"},
        std::pair{CommKind::all_gather, "all_gather"},
        std::pair{CommKind::reduce_scatter, "reduce_scatter"}}) {
    put(transport, key, std::move(numbers.segments.at(static_cast<std::size_t>(kind))));
  }
  put(transport, "hop_latency", std::move(numbers.hop_latency));
  put(transport, "all_to_all_by_ranks", std::move(numbers.all_to_all_by_ranks));
  put(transport, "all_reduce", std::move(numbers.all_reduce));
  if (!numbers.fitted_at.is_null()) {
    transport.erase("most");  // its segments are what this network's NICs reach
  }
  put(transport, "fitted_at", std::move(numbers.fitted_at));
  put(transport, "cpu_share", std::move(numbers.cpu_share));
  put(transport, "sms", std::move(numbers.sms));
}

Json transport_json(TransportHead head, TransportNumbers numbers) {
  Json json = headed("transport", head.name);
  json["medium"] = head.medium;
  json["scope"] = head.medium == "network" ? "inter" : "intra";
  json["rate"] = std::move(head.rate);
  put_numbers(json, std::move(numbers));
  return json;
}

Json sms_of(const Json& transport) { return transport.at("sms"); }
Json rate_of(const Json& transport) { return transport.at("rate"); }

Json attention_json(AttentionNumbers numbers) {
  Json json = {{"q_tile", std::move(numbers.q_tile)},
               {"kv_tile", std::move(numbers.kv_tile)},
               {"backward_tile", std::move(numbers.backward_tile)},
               {"ctas_per_sm", std::move(numbers.ctas_per_sm)},
               {"item_overhead", std::move(numbers.item_overhead)},
               {"item_overhead_backward", std::move(numbers.item_overhead_backward)},
               {"forward_full", std::move(numbers.forward_full)},
               {"forward_causal", std::move(numbers.forward_causal)},
               {"backward_full", std::move(numbers.backward_full)},
               {"backward_causal", std::move(numbers.backward_causal)},
               {"head_dim_64", std::move(numbers.head_dim_64)},
               {"startup", std::move(numbers.startup)},
               {"startup_backward", std::move(numbers.startup_backward)}};
  put(json, "head_dim_256", std::move(numbers.head_dim_256));
  if (numbers.forward_order != ItemOrder::unknown) {
    json["forward_order"] = to_string(numbers.forward_order);
  }
  if (numbers.backward_order != ItemOrder::unknown) {
    json["backward_order"] = to_string(numbers.backward_order);
  }
  return json;
}

Json gemm_json(GemmNumbers numbers) {
  return {{"efficiency", std::move(numbers.efficiency)},
          {"startup", std::move(numbers.startup)},
          {"tile", std::move(numbers.tile)}};
}

Json generation_json(GenerationNumbers numbers) {
  Json json = headed("generation", numbers.name);
  json["kernel"] = numbers.kernel;
  json["attention"] = std::move(numbers.attention);
  json["gemm"] = std::move(numbers.gemm);
  json["elementwise"] = {{"memory_efficiency", std::move(numbers.memory_efficiency)}};
  put(json, "layer", std::move(numbers.layer));
  json["launch"] = std::move(numbers.launch);
  put(json, "group", std::move(numbers.group));
  return json;
}

Json gemm_of(const Json& generation) { return generation.at("gemm"); }
Json group_of(const Json& generation) {
  return generation.contains("group") ? generation.at("group") : Json();
}

Json gpu_json(GpuNumbers numbers) {
  Json json = headed("gpu", numbers.name);
  json["generation"] = std::move(numbers.generation);
  json["compute_capability"] = numbers.compute_capability;
  json["sms"] = std::move(numbers.sms);
  json["matrix_rate"] = std::move(numbers.matrix_rate);
  json["vector_rate_fp32"] = std::move(numbers.vector_rate_fp32);
  json["memory"] = std::move(numbers.memory);
  json["memory_usable"] = std::move(numbers.memory_usable);
  json["memory_bandwidth"] = std::move(numbers.memory_bandwidth);
  return json;
}

MachineDocument::MachineDocument(const std::string& name) : json_(headed("machine", name)) {}

void MachineDocument::put_gpu(Json gpu) { json_["gpu"] = std::move(gpu); }
void MachineDocument::put_gpus_per_node(Json count) { json_["gpus_per_node"] = std::move(count); }
void MachineDocument::put_sockets(Json count) { json_["sockets"] = std::move(count); }

void MachineDocument::put_intra(Json transport, const std::string& medium) {
  json_["intra"] = {{"transport", std::move(transport)}, {"medium", medium}};
}

void MachineDocument::put_intra_rate(Json rate) { json_["intra"]["rate"] = std::move(rate); }
void MachineDocument::put_intra_spread(double spread) { json_["intra"]["spread"] = spread; }
void MachineDocument::put_host_bridge(Json rate) { json_["host_bridge"] = std::move(rate); }
void MachineDocument::put_socket_link(Json rate) { json_["socket_link"] = std::move(rate); }
void MachineDocument::put_gpus_per_pcie_switch(Json count) {
  json_["gpus_per_pcie_switch"] = std::move(count);
}

void MachineDocument::put_inter(InterNumbers numbers) {
  json_["inter"] = {{"transport", std::move(numbers.transport)},
                    {"nics", std::move(numbers.nics)},
                    {"rate_per_nic", std::move(numbers.rate_per_nic)},
                    {"gpus_per_nic", std::move(numbers.gpus_per_nic)}};
}

void MachineDocument::put_inter_spread(double spread) { json_["inter"]["spread"] = spread; }

void MachineDocument::put_fat_tree(Json nodes_per_leaf, Json oversubscription) {
  json_["fabric"] = {{"kind", "fat-tree"},
                     {"nodes_per_leaf", std::move(nodes_per_leaf)},
                     {"oversubscription", std::move(oversubscription)}};
}

void MachineDocument::put_assumptions(const std::vector<Assumption>& assumptions) {
  Json list = Json::array();
  for (const Assumption& a : assumptions) {
    list.push_back({{"what", a.what}, {"value", a.value}, {"source", a.source}});
  }
  json_["assumptions"] = std::move(list);
}

void MachineDocument::put_host(HostNumbers numbers) {
  json_["host"] = {{"cores", std::move(numbers.cores)},
                   {"shared_by", std::move(numbers.shared_by)}};
}

void MachineDocument::put_device(SharedDeviceNumbers numbers) {
  Json& device = json_["device"] = {{"ranks", std::move(numbers.ranks)},
                                    {"multiprocessors", numbers.split ? "split" : "whole"},
                                    {"memory_bandwidth", std::move(numbers.memory_bandwidth)}};
  put(device, "l2", std::move(numbers.l2));
}

Json& MachineDocument::intra_transport() { return json_["intra"]["transport"]; }
Json& MachineDocument::inter_transport() { return json_["inter"]["transport"]; }

}  // namespace spp
