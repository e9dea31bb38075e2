#include "machine/import/merge.hpp"

#include "base/error.hpp"
#include "machine/import/draft.hpp"

#include <algorithm>

namespace spp::imports {
namespace {

/// Trays of GPUs that NVLink joins, as Slurm's blocks have them.
int boards_of_node(Draft& d) {
  if (!d.gpu.nvlink_domain || d.gpu.nvlink_domain->value <= d.gpus) {
    return 1;
  }
  const std::int64_t domain = d.gpu.nvlink_domain->value;
  for (const NodeGroup& group : d.facts.groups) {
    if (group.nvlink && std::int64_t{group.nodes} * d.gpus <= domain) {
      d.assume(
          "gpus_per_node",
          fmt::format("{} hosts of {} GPUs are one node, joined by NVLink", group.nodes, d.gpus),
          to_string(group.place));
      return group.nodes;
    }
  }
  d.assume(
      "gpus_per_node",
      fmt::format("{}: a node is one host; NVLink may join up to {} of these GPUs, but none of "
                  "the files says which hosts (Slurm's block topology would)",
                  d.gpus, domain),
      d.files());
  return 1;
}

/// Nodes below one switch of the network: the most frequent number.
void put_fabric(Draft& d) {
  std::vector<const NodeGroup*> leaves;
  for (const NodeGroup& group : d.facts.groups) {
    if (!group.nvlink) {
      leaves.push_back(&group);
    }
  }
  if (leaves.empty()) {
    return;
  }
  const auto alike = [&](const NodeGroup* leaf) {
    return std::ranges::count(leaves, leaf->nodes, &NodeGroup::nodes);
  };
  const NodeGroup& usual = **std::ranges::max_element(leaves, {}, alike);
  if (const auto other = std::ranges::find_if(
          leaves, [&](const NodeGroup* leaf) { return leaf->nodes != usual.nodes; });
      other != leaves.end()) {
    d.assume("fabric.nodes_per_leaf",
             fmt::format("{} as of most switches; {} has {}", usual.nodes,
                         to_string((*other)->place), (*other)->nodes),
             to_string(usual.place));
  }
  d.assume("fabric.oversubscription", "1: Slurm's topology has no rates", "assumed");
  d.document.put_fat_tree(
      d.numbers.counted(std::max(1, usual.nodes / d.boards), to_string(usual.place)),
      d.numbers.assumed(1, "fraction", "Slurm's topology says nothing of rates", 0.2));
}

int hosts_of(const Facts& facts) {
  int hosts = 0;
  for (const HostCount& count : facts.hosts) {
    hosts = std::max(hosts, count.hosts);
  }
  return hosts;
}

}  // namespace

Imported merge(const Facts& facts, const MergeOptions& options, const Catalog& catalog) {
  Draft d{.facts = facts, .options = options, .catalog = catalog};
  d.assumptions = facts.notes;
  d.gpus = gpus_of_node(d);
  Json gpu;
  d.gpu = gpu_of_node(d, gpu);
  d.layout = layout_of_node(d);
  d.boards = boards_of_node(d);

  d.document = MachineDocument(
      options.name.empty() ? fmt::format("{}x{}", d.gpus * d.boards, d.gpu.name) : options.name);
  d.document.put_gpu(std::move(gpu));
  const std::string counted = options.gpus_per_node > 0 ? "--gpus-per-node"
                              : facts.counts.empty()    ? d.files()
                                                        : to_string(facts.counts.front().place);
  d.document.put_gpus_per_node(d.numbers.counted(std::int64_t{d.gpus} * d.boards, counted));
  put_inside(d);
  put_network(d);
  put_fabric(d);
  d.document.put_assumptions(d.assumptions);
  return {.machine = d.document.take(), .tests = facts.tests, .hosts = hosts_of(facts)};
}

// ---- what the parts rest on
// ------------------------------------------------------------------------

int gpus_of_node(Draft& d) {
  const std::vector<GpuCount>& counts = d.facts.counts;
  if (d.options.gpus_per_node > 0) {
    const int given = d.options.gpus_per_node;
    for (const GpuCount& count : counts) {
      if (count.gpus != given) {
        d.assume("gpus_per_node",
                 fmt::format("{}, though {} shows {}", given, count.origin, count.gpus),
                 fmt::format("--gpus-per-node, against {}", to_string(count.place)));
      }
    }
    return given;
  }
  for (const GpuCount& count : counts) {
    if (count.gpus != counts.front().gpus) {
      throw InputError(
          to_string(count.place),
          fmt::format("{} GPUs a node ({}), but {} at {} ({}): files of one machine agree; "
                      "--gpus-per-node N decides",
                      count.gpus, count.origin, counts.front().gpus,
                      to_string(counts.front().place), counts.front().origin));
    }
  }
  if (!counts.empty()) {
    return counts.front().gpus;
  }
  int ranks = 0;
  for (const NcclTest& test : d.facts.tests) {
    ranks = std::max(ranks, test.ranks_per_host);
  }
  if (ranks > 0) {
    d.assume("gpus_per_node", fmt::format("{}: as many as ranks ran on a host", ranks), d.files());
    return ranks;
  }
  throw InputError(d.files(),
                   "says nowhere how many GPUs a node has; add nvidia-smi topo -m, or "
                   "give --gpus-per-node N");
}

}  // namespace spp::imports
