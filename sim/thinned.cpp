#include "sim/thinned.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp::sim {
namespace {

int dividing(int n, int at_most) {
  int d = std::clamp(at_most, 1, n);
  while (n % d != 0) {
    --d;
  }
  return d;
}

/// A node's network as `share`-th of its GPUs see it: cards of their own where there are enough,
/// else one with their part of the rate.
void thin_network(InterSpec& inter, int gpus, int share) {
  const auto nics = static_cast<int>(inter.nics.value);
  if (nics % share == 0 && gpus % (nics / share) == 0) {
    inter.nics.value = nics / share;
  } else {
    const double rate = inter.rate().value() * nics / share;
    const int left = dividing(gpus, std::max(1, nics / share));
    inter.nics.value = left;
    inter.rate_per_nic.value = Bandwidth(rate / left);
    inter.transport.most.reset();
  }
  inter.gpus_per_nic.value = gpus / inter.nics.value;
}

/// Of groups of so many neighbours, filled into nodes one after the other: members in a node of the
/// one that is cut most evenly between two; all, if none is.
int most_evenly_cut(int members, int per_node, int nodes) {
  int larger = members;
  for (int n = 1; members < per_node && n < nodes; ++n) {
    const int first = static_cast<int>(std::int64_t{per_node} * n % members);
    larger = first > 0 ? std::min(larger, std::max(first, members - first)) : larger;
  }
  return larger;
}

}  // namespace

Cluster thinned(const Cluster& cluster, int stride, int ranks) {
  MachineSpec machine = cluster.machine();
  const int per_node = cluster.gpus_per_node();
  const int share = dividing(per_node, stride);
  if (stride > 1 && (machine.host || machine.device)) {
    throw InputError(
        machine.name,
        "ranks share cores or a GPU: nobody knows what a step with tensor parallelism, "
        "or with stages of several ranks, costs there (--scope step simulates it op by op)");
  }
  const int left = per_node / share;
  machine.gpus_per_node.value = left;
  if (machine.fabric.nodes_per_leaf) {
    std::int64_t& leaf = machine.fabric.nodes_per_leaf->value;
    leaf = std::max<std::int64_t>(1, leaf / ((stride + per_node - 1) / per_node));
  }
  if (share > 1) {
    machine.sockets.value = dividing(left, static_cast<int>(machine.sockets.value));
    if (machine.gpus_per_pcie_switch) {
      const int group = std::max(1, static_cast<int>(machine.gpus_per_pcie_switch->value) / share);
      machine.gpus_per_pcie_switch->value =
          dividing(left / static_cast<int>(machine.sockets.value), group);
    }
    for (auto* shared : {&machine.host_bridge, &machine.socket_link}) {
      if (*shared) {
        (*shared)->value = Bandwidth((*shared)->value.value() / share);
      }
    }
    if (machine.inter) {
      thin_network(*machine.inter, left, share);
    }
  }
  if (const int cut = most_evenly_cut(ranks, left, cluster.nodes()); cut < ranks) {
    return {evenly_filled(std::move(machine), 2, 2 * cut), 2, ranks};
  }
  const int needed = (ranks + left - 1) / left;
  // A stride beyond a node leaves nodes out between the members.
  return {std::move(machine), std::max(needed, 1), ranks};
}

MachineSpec part_of_node(MachineSpec machine, int gpus) {
  const auto all = static_cast<int>(machine.gpus_per_node.value);
  const auto sockets = static_cast<int>(machine.sockets.value);
  const int left = dividing(gpus, (sockets * gpus + all - 1) / all);
  const double of_socket =
      std::min(1.0, static_cast<double>(gpus) / left / (static_cast<double>(all) / sockets));
  machine.gpus_per_node.value = gpus;
  machine.sockets.value = left;
  if (machine.gpus_per_pcie_switch) {
    machine.gpus_per_pcie_switch->value =
        dividing(gpus / left, static_cast<int>(machine.gpus_per_pcie_switch->value));
  }
  for (auto* shared : {&machine.host_bridge, &machine.socket_link}) {
    if (*shared) {
      (*shared)->value = Bandwidth((*shared)->value.value() * of_socket);
    }
  }
  if (machine.inter) {
    InterSpec& inter = *machine.inter;
    const std::int64_t nics = inter.nics.value * gpus;
    if (nics % all == 0 && (nics / all) > 0 && gpus % (nics / all) == 0) {
      inter.nics.value = nics / all;
    } else {
      inter.rate_per_nic.value =
          inter.rate() * (static_cast<double>(inter.nics.value) * gpus / all);
      inter.nics.value = 1;
      inter.transport.most.reset();
    }
    inter.gpus_per_nic.value = gpus / inter.nics.value;
  }
  return machine;
}

MachineSpec evenly_filled(MachineSpec machine, int nodes, int gpus) {
  const int each = gpus / nodes;
  if (gpus % nodes != 0 || each == machine.gpus_per_node.value) {
    return machine;
  }
  std::optional<MachineSpec> part = part_of_domain(machine, each);
  return part ? std::move(*part) : part_of_node(std::move(machine), each);
}

std::optional<MachineSpec> part_of_domain(const MachineSpec& machine, int gpus) {
  const std::int64_t all = machine.gpus_per_node.value;
  const auto divides = [&](std::int64_t count) { return count * gpus % all == 0; };
  if (!machine.gpu.nvlink_domain || gpus >= all || !divides(machine.sockets.value) ||
      (machine.inter && !divides(machine.inter->nics.value))) {
    return std::nullopt;
  }
  MachineSpec part = machine;
  part.gpus_per_node.value = gpus;
  part.sockets.value = machine.sockets.value * gpus / all;
  if (part.inter) {
    part.inter->nics.value = machine.inter->nics.value * gpus / all;
  }
  return part;
}

}  // namespace spp::sim
