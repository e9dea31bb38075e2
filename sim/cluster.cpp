#include "sim/cluster.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp::sim {
namespace {

/// Blocks of `size` that `gpus` begin.
int blocks(int gpus, int size) { return (gpus + size - 1) / size; }

}  // namespace

std::optional<std::size_t> level_of(LinkKind kind) {
  // They come in pairs, cores and memory last.
  const std::size_t level = static_cast<std::size_t>(kind) / 2;
  return level < link_levels ? std::optional(level) : std::nullopt;
}

std::string_view to_string(LinkKind kind) {
  switch (kind) {
    case LinkKind::gpu_out:
      return "gpu_out";
    case LinkKind::gpu_in:
      return "gpu_in";
    case LinkKind::switch_out:
      return "switch_out";
    case LinkKind::switch_in:
      return "switch_in";
    case LinkKind::bridge_out:
      return "bridge_out";
    case LinkKind::bridge_in:
      return "bridge_in";
    case LinkKind::socket_out:
      return "socket_out";
    case LinkKind::socket_in:
      return "socket_in";
    case LinkKind::nic_out:
      return "nic_out";
    case LinkKind::nic_in:
      return "nic_in";
    case LinkKind::leaf_out:
      return "leaf_out";
    case LinkKind::leaf_in:
      return "leaf_in";
    case LinkKind::cores:
      return "cores";
    case LinkKind::memory:
      return "memory";
  }
  throw InternalError("unknown link kind");
}

Cluster::Cluster(MachineSpec machine, int nodes, int gpus)
    : machine_(std::move(machine)), nodes_(nodes), gpus_(gpus) {
  const std::string& where = machine_.name;
  check(machine_, where);
  per_node_ = static_cast<int>(machine_.gpus_per_node.value);
  if (nodes < 1 || nodes > most_gpus / per_node_) {
    throw InputError(where, fmt::format("{} nodes is out of range (1 to {} nodes of {} GPUs)",
                                        nodes, most_gpus / per_node_, per_node_));
  }
  if (gpus < 1 || gpus > nodes * per_node_) {
    throw InputError(where, fmt::format("{} GPUs is out of range ({} nodes have 1 to {})", gpus,
                                        nodes, nodes * per_node_));
  }
  if (nodes > 1 && !machine_.inter) {
    throw InputError(where, fmt::format("has no network (inter is null), so {} nodes cannot be "
                                        "connected; give a network or one node",
                                        nodes));
  }

  block_size_.fill(per_node_);
  const auto size_of = [this](LinkKind kind) -> int& {
    return block_size_.at(static_cast<std::size_t>(kind));
  };
  size_of(LinkKind::gpu_out) = size_of(LinkKind::gpu_in) = 1;
  const auto per_switch =
      machine_.gpus_per_pcie_switch ? static_cast<int>(machine_.gpus_per_pcie_switch->value) : 1;
  size_of(LinkKind::switch_out) = size_of(LinkKind::switch_in) = per_switch;
  const int per_socket = per_node_ / static_cast<int>(machine_.sockets.value);
  for (const LinkKind kind :
       {LinkKind::bridge_out, LinkKind::bridge_in, LinkKind::socket_out, LinkKind::socket_in}) {
    size_of(kind) = per_socket;
  }
  size_of(LinkKind::nic_out) = size_of(LinkKind::nic_in) = gpus_per_nic();
  const std::int64_t leaf =
      machine_.fabric.nodes_per_leaf
          ? std::min<std::int64_t>(machine_.fabric.nodes_per_leaf->value, nodes)
          : nodes;
  size_of(LinkKind::leaf_out) = size_of(LinkKind::leaf_in) = static_cast<int>(leaf) * per_node_;
  const int on_device =
      machine_.device ? static_cast<int>(machine_.device->ranks.value) : per_node_;
  size_of(LinkKind::cores) = machine_.host ? machine_.host->nodes_of(nodes) * per_node_ : on_device;
  size_of(LinkKind::memory) = on_device;

  first_link_.fill(-1);
  const Bandwidth port = machine_.intra_rate * machine_.intra.best_fraction();
  const bool pcie = machine_.intra.medium == "pcie";
  add(LinkKind::gpu_out, port);
  add(LinkKind::gpu_in, port);
  if (pcie) {
    if (per_switch > 1) {
      add(LinkKind::switch_out, port);
      add(LinkKind::switch_in, port);
    }
    add(LinkKind::bridge_out, machine_.host_bridge->value);
    add(LinkKind::bridge_in, machine_.host_bridge->value);
    if (machine_.sockets.value > 1) {
      add(LinkKind::socket_out, machine_.socket_link->value);
      add(LinkKind::socket_in, machine_.socket_link->value);
    }
  }
  if (nodes > 1) {
    const InterSpec& inter = *machine_.inter;
    const Bandwidth nic = inter.rate() * inter.transport.best_fraction();
    add(LinkKind::nic_out, nic);
    add(LinkKind::nic_in, nic);
    const FabricSpec& fabric = machine_.fabric;
    if (fabric.kind == "fat-tree" && fabric.oversubscription.value > 1 && leaf < nodes) {
      const Bandwidth up =
          nic * (static_cast<double>(leaf * inter.nics.value) / fabric.oversubscription.value);
      add(LinkKind::leaf_out, up);
      add(LinkKind::leaf_in, up);
    }
  }
  if (ranks_per_core() > 1) {
    add(LinkKind::cores,
        Bandwidth(machine_.host ? static_cast<double>(machine_.host->cores.value) : 1.0));
  }
  if (machine_.device) {
    add(LinkKind::memory, machine_.device->memory_bandwidth.value);
  }
}

std::string Cluster::name_of(const Link& link) const {
  const int size = block_size_.at(static_cast<std::size_t>(link.kind));
  const int block = link.first_gpu / size;
  const std::string_view direction = static_cast<int>(link.kind) % 2 == 0 ? "out" : "in";
  const int node = link.first_gpu / per_node_;
  const int local = link.first_gpu % per_node_;
  switch (link.kind) {
    case LinkKind::gpu_out:
    case LinkKind::gpu_in:
      return fmt::format("node {} gpu {} {}", node, local, direction);
    case LinkKind::switch_out:
    case LinkKind::switch_in:
      return fmt::format("node {} pcie switch {} {}", node, local / size, direction);
    case LinkKind::bridge_out:
    case LinkKind::bridge_in:
      return fmt::format("node {} bridge {} {}", node, local / size, direction);
    case LinkKind::socket_out:
    case LinkKind::socket_in:
      return fmt::format("node {} socket {} {}", node, local / size, direction);
    case LinkKind::nic_out:
    case LinkKind::nic_in:
      return fmt::format("node {} nic {} {}", node, local / size, direction);
    case LinkKind::leaf_out:
    case LinkKind::leaf_in:
      return fmt::format("leaf {} {}", block, direction);
    case LinkKind::cores:
      return fmt::format("cores {}", block);
    case LinkKind::memory:
      return fmt::format("memory of gpu {}", block);
  }
  throw InternalError("unknown link kind");
}

double Cluster::ranks_per_core() const {
  const bool in_turn = machine_.device && !machine_.device->split;
  if (!machine_.host && !in_turn) {
    return 1;
  }
  const int sharing = std::min(gpus_, block_size_[static_cast<std::size_t>(LinkKind::cores)]);
  const double cores = in_turn ? 1 : static_cast<double>(machine_.host->cores.value);
  return std::max(1.0, static_cast<double>(sharing) / cores);
}

void Cluster::add(LinkKind kind, Bandwidth capacity) {
  const int size = block_size_.at(static_cast<std::size_t>(kind));
  first_link_.at(static_cast<std::size_t>(kind)) = static_cast<std::int32_t>(links_.size());
  const int count = blocks(gpus_, size);
  links_.reserve(links_.size() + static_cast<std::size_t>(count));
  for (int b = 0; b < count; ++b) {
    links_.push_back({.kind = kind, .first_gpu = b * size, .capacity = capacity});
  }
}

Path Cluster::path(int from, int to) const {
  Path p;
  p.scope = scope(from, to);
  // A kind that this cluster has no links of adds nothing.
  const auto pass = [&](LinkKind kind, int gpu) {
    const std::int32_t first = first_link_[static_cast<std::size_t>(kind)];
    if (first >= 0) {
      p.storage[p.size++] = LinkId(first + gpu / block_size_[static_cast<std::size_t>(kind)]);
    }
  };
  const bool pcie = has(LinkKind::bridge_out);
  switch (p.scope) {
    case Scope::self:
      break;
    case Scope::intra: {
      const bool leaves_switch =
          pcie && block(LinkKind::switch_out, from) != block(LinkKind::switch_out, to);
      const bool leaves_socket =
          pcie && block(LinkKind::socket_out, from) != block(LinkKind::socket_out, to);
      pass(LinkKind::gpu_out, from);
      if (leaves_switch) {
        pass(LinkKind::switch_out, from);
        pass(LinkKind::bridge_out, from);
        if (leaves_socket) {
          pass(LinkKind::socket_out, from);
          pass(LinkKind::socket_in, to);
        }
        pass(LinkKind::bridge_in, to);
        pass(LinkKind::switch_in, to);
      }
      pass(LinkKind::gpu_in, to);
      break;
    }
    case Scope::inter: {
      if (pcie) {
        pass(LinkKind::gpu_out, from);
      }
      pass(LinkKind::nic_out, from);
      if (block(LinkKind::leaf_out, from) != block(LinkKind::leaf_out, to)) {
        pass(LinkKind::leaf_out, from);
        pass(LinkKind::leaf_in, to);
      }
      pass(LinkKind::nic_in, to);
      if (pcie) {
        pass(LinkKind::gpu_in, to);
      }
      break;
    }
  }
  return p;
}

Scope Cluster::scope(int from, int to) const {
  if (from == to) {
    return Scope::self;
  }
  return node_of(from) == node_of(to) ? Scope::intra : Scope::inter;
}

const TransportSpec& Cluster::transport(Scope scope) const {
  ensure(scope != Scope::self, "no transport from a GPU to itself");
  if (scope == Scope::intra) {
    return machine_.intra;
  }
  ensure(machine_.inter.has_value(), "machine without a network");
  return machine_.inter->transport;
}

Bandwidth Cluster::nominal_rate(Scope scope) const {
  ensure(scope != Scope::self, "no transport from a GPU to itself");
  if (scope == Scope::intra) {
    return machine_.intra_rate;
  }
  ensure(machine_.inter.has_value(), "machine without a network");
  return machine_.inter->rate();
}

int Cluster::gpus_per_nic() const {
  return machine_.inter ? static_cast<int>(machine_.inter->gpus_per_nic.value) : 1;
}

LinkId Cluster::link(LinkKind kind, int gpu) const {
  const std::int32_t first = first_link_[static_cast<std::size_t>(kind)];
  return first < 0 ? LinkId() : LinkId(first + block(kind, gpu));
}

}  // namespace spp::sim
