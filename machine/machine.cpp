// What machine descriptions mean: costs on a transport, rates, and whether the parts fit together.
#include "machine/machine.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <cmath>

namespace spp {

const Segment& TransportSpec::segment(CommKind kind, Bytes bytes) const {
  const std::vector<Segment>& list = segments.at(static_cast<std::size_t>(kind));
  ensure(!list.empty(), "transport without segments");
  const auto it = std::find_if(list.begin(), list.end() - 1,
                               [bytes](const Segment& s) { return bytes <= s.up_to; });
  return *it;
}

MessageCost cost_on(const std::vector<Segment>& segments, Bytes bytes, Bandwidth nominal) {
  ensure(!segments.empty(), "transport without segments");
  Seconds floor(0);  // time of the longest message of the segments before
  for (const Segment& s : segments) {
    const Bandwidth reached = nominal * s.fraction.value;
    if (bytes <= s.up_to || &s == &segments.back()) {
      return {.latency = std::max(s.latency.value, floor - bytes / reached), .rate = reached};
    }
    floor = std::max(floor, s.latency.value + s.up_to / reached);
  }
  throw InternalError("a transport's last segment has no end");
}

MessageCost TransportSpec::cost(CommKind kind, Bytes bytes, Bandwidth nominal) const {
  return cost_on(segments.at(static_cast<std::size_t>(kind)), bytes, nominal);
}

Seconds TransportSpec::time(CommKind kind, Bytes bytes, Bandwidth nominal) const {
  const MessageCost c = cost(kind, bytes, nominal);
  return c.latency + bytes / c.rate;
}

double TransportSpec::all_to_all_factor(int ranks) const {
  if (all_to_all_by_ranks.empty()) {
    return 1;
  }
  const auto after = std::find_if(all_to_all_by_ranks.begin(), all_to_all_by_ranks.end(),
                                  [ranks](const auto& row) { return row.first >= ranks; });
  if (after == all_to_all_by_ranks.end()) {
    return all_to_all_by_ranks.back().second;
  }
  if (after == all_to_all_by_ranks.begin() || after->first == ranks) {
    return after->second;
  }
  const auto before = after - 1;
  const double share = std::log2(static_cast<double>(ranks) / before->first) /
                       std::log2(static_cast<double>(after->first) / before->first);
  return before->second + share * (after->second - before->second);
}

double TransportSpec::best_fraction() const {
  double best = 0;
  for (const std::vector<Segment>& list : segments) {
    for (const Segment& s : list) {
      best = std::max(best, s.fraction.value);
    }
  }
  return best;
}

FlopRate matrix_rate(const GpuSpec& gpu, DType dtype, std::string_view where) {
  const auto it = gpu.matrix_rate.find(dtype);
  if (it == gpu.matrix_rate.end()) {
    std::string known;
    for (const auto& [type, rate] : gpu.matrix_rate) {
      known += known.empty() ? "" : ", ";
      known += to_string(type);
    }
    throw InputError(where, fmt::format("GPU '{}' has no matrix units for {} (one of: {})",
                                        gpu.name, to_string(dtype), known));
  }
  return it->second.value;
}

namespace {

/// Lower case; a leading "cudnn" without a version gets the one that is described here.
std::string kernel_key(std::string_view kernel) {
  std::string key;
  for (const char c : kernel) {
    key += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  constexpr std::string_view cudnn = "cudnn";
  const bool versioned = key.size() > cudnn.size() + 1 && key[cudnn.size()] == ' ' &&
                         key[cudnn.size() + 1] >= '0' && key[cudnn.size() + 1] <= '9';
  if (key.starts_with(cudnn) && !versioned) {
    key.insert(cudnn.size(), " 9");
  }
  return key;
}

}  // namespace

const AttentionKernelSpec& attention_kernel(const GenerationSpec& generation,
                                            const std::string& kernel, std::string_view where,
                                            int year) {
  const std::string key = kernel_key(kernel);
  std::vector<std::string> known{generation.attention.kernel};
  const AttentionKernelSpec* found =
      key == kernel_key(generation.attention.kernel) ? &generation.attention : nullptr;
  const AttentionKernelSpec* version = nullptr;
  for (const auto& [name, spec] : generation.kernels) {
    if (found == nullptr && key == kernel_key(name)) {
      found = &spec;
    }
    if (key == kernel_key(spec.version_of) && year > 0 && year <= spec.until &&
        (version == nullptr || spec.until < version->until)) {
      version = &spec;
    }
    known.push_back(name);
  }
  if (found == nullptr) {
    throw InputError(where, fmt::format("generation '{}' has no attention kernel '{}'{}",
                                        generation.name, kernel, did_you_mean(kernel, known)));
  }
  return version != nullptr ? *version : *found;
}

namespace {

/// "dgx.json: inter.nics"
std::string at_key(std::string_view where, std::string_view key) {
  return where.empty() ? std::string(key) : fmt::format("{}: {}", where, key);
}

void require_divides(std::int64_t parts, std::int64_t whole, std::string_view of_what,
                     const std::string& where) {
  if (parts < 1 || whole < 1 || whole % parts != 0) {
    throw InputError(where, fmt::format("{} does not divide the {} {}", parts, whole, of_what));
  }
}

void check_pcie(const MachineSpec& machine, std::string_view where) {
  const std::int64_t per_socket = machine.gpus_per_node.value / machine.sockets.value;
  if (machine.gpus_per_pcie_switch) {
    require_divides(machine.gpus_per_pcie_switch->value, per_socket, "GPUs of a socket",
                    at_key(where, "gpus_per_pcie_switch"));
  }
  if (machine.intra.medium != "pcie") {
    return;  // NVLink goes past sockets and bridges
  }
  if (!machine.host_bridge) {
    throw InputError(at_key(where, "host_bridge"),
                     "is missing; GPUs that talk over PCIe need it (a rate, per socket)");
  }
  if (machine.sockets.value > 1 && !machine.socket_link) {
    throw InputError(at_key(where, "socket_link"),
                     "is missing; a PCIe machine with several sockets needs it (a rate)");
  }
}

void check_inter(const InterSpec& inter, std::int64_t gpus, std::string_view where) {
  if (inter.transport.medium != "network") {
    throw InputError(at_key(where, "inter.transport"),
                     fmt::format("'{}' is no network (medium {})", inter.transport.name,
                                 inter.transport.medium));
  }
  if (inter.nics.value < 1 || inter.gpus_per_nic.value < 1 ||
      inter.nics.value * inter.gpus_per_nic.value != gpus) {
    throw InputError(at_key(where, "inter.nics"),
                     fmt::format("{} NICs x {} GPUs per NIC is {}, not the {} GPUs of the node",
                                 inter.nics.value, inter.gpus_per_nic.value,
                                 inter.nics.value * inter.gpus_per_nic.value, gpus));
  }
  if (!(inter.rate_per_nic.value.value() > 0)) {
    throw InputError(at_key(where, "inter.rate_per_nic"), "is not a positive rate");
  }
}

void check_fabric(const FabricSpec& fabric, std::string_view where) {
  if (fabric.kind != "non-blocking" && fabric.kind != "fat-tree") {
    const std::vector<std::string> kinds{"non-blocking", "fat-tree"};
    throw InputError(at_key(where, "fabric.kind"), fmt::format("unknown fabric '{}'{}", fabric.kind,
                                                               did_you_mean(fabric.kind, kinds)));
  }
  const double over = fabric.oversubscription.value;
  if (!(over >= 1)) {
    throw InputError(at_key(where, "fabric.oversubscription"),
                     fmt::format("{} is not at least 1", over));
  }
  if (fabric.kind == "fat-tree" && !fabric.nodes_per_leaf) {
    throw InputError(at_key(where, "fabric.nodes_per_leaf"), "is missing; a fat-tree needs it");
  }
  if (fabric.kind == "non-blocking" && over > 1) {
    throw InputError(
        at_key(where, "fabric.oversubscription"),
        fmt::format("a non-blocking fabric is not oversubscribed ({}); write \"kind\": "
                    "\"fat-tree\" with nodes_per_leaf",
                    over));
  }
}

/// Ranks either are GPUs, whose messages hold SMs, or CPU cores, whose messages take core time.
void check_host(const MachineSpec& machine, std::string_view where) {
  const bool cores = machine.intra.medium == "host";
  const auto check_transport = [&](const TransportSpec& transport, std::string_view key) {
    if (transport.cpu_share.has_value() != cores) {
      throw InputError(at_key(where, key),
                       cores ? fmt::format("'{}' has no cpu_share, which a machine of medium host "
                                           "needs",
                                           transport.name)
                             : fmt::format("'{}' has a cpu_share, but ranks are GPUs (medium {})",
                                           transport.name, machine.intra.medium));
    }
  };
  check_transport(machine.intra, "intra.transport");
  if (machine.inter) {
    check_transport(machine.inter->transport, "inter.transport");
  }
  if (machine.host && !cores) {
    throw InputError(
        at_key(where, "host"),
        fmt::format("ranks that share cores have intra.medium host, not {}", machine.intra.medium));
  }
  if (machine.host && machine.host->cores.value < 1) {
    throw InputError(at_key(where, "host.cores"),
                     fmt::format("{} is not at least 1", machine.host->cores.value));
  }
}

void check_device(const MachineSpec& machine, std::string_view where) {
  if (!machine.device) {
    if (machine.intra.medium == "device") {
      throw InputError(at_key(where, "device"),
                       "is missing; ranks that copy inside a GPU share one (intra.medium device)");
    }
    return;
  }
  const SharedDeviceSpec& device = *machine.device;
  if (machine.intra.medium == "host") {
    throw InputError(at_key(where, "device"), "ranks that share a GPU are no CPU cores");
  }
  const std::int64_t ranks = device.ranks.value;
  const std::int64_t node = machine.gpus_per_node.value;
  if (ranks < 2 || ranks > most_gpus_per_node || (node % ranks != 0 && ranks % node != 0)) {
    throw InputError(
        at_key(where, "device.ranks"),
        fmt::format("{} ranks of a GPU and {} of a node: at least 2, whole nodes of a GPU or whole "
                    "GPUs of a node",
                    ranks, node));
  }
  if (!(device.memory_bandwidth.value.value() > 0)) {
    throw InputError(at_key(where, "device.memory_bandwidth"), "is not a positive rate");
  }
}

}  // namespace

void check(const MachineSpec& machine, std::string_view where) {
  const std::int64_t gpus = machine.gpus_per_node.value;
  if (gpus < 1 || gpus > most_gpus_per_node) {
    throw InputError(at_key(where, "gpus_per_node"),
                     fmt::format("{} is out of range (1 to {})", gpus, most_gpus_per_node));
  }
  if (machine.intra.medium != "nvlink" && machine.intra.medium != "pcie" &&
      machine.intra.medium != "host" && machine.intra.medium != "device") {
    throw InputError(at_key(where, "intra.transport"),
                     fmt::format("'{}' is no link inside a node (medium {})", machine.intra.name,
                                 machine.intra.medium));
  }
  if (!(machine.intra_rate.value() > 0)) {
    throw InputError(at_key(where, "intra.rate"), "is not a positive rate");
  }
  require_divides(machine.sockets.value, gpus, "GPUs of the node", at_key(where, "sockets"));
  check_pcie(machine, where);
  if (machine.inter) {
    check_inter(*machine.inter, gpus, where);
  }
  check_fabric(machine.fabric, where);
  check_host(machine, where);
  check_device(machine, where);
}

}  // namespace spp
