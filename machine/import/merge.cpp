#include "machine/import/merge.hpp"

#include "base/error.hpp"
#include "machine/import/draft.hpp"

#include <algorithm>
#include <iterator>
#include <map>

namespace spp::imports {
namespace {

std::vector<NodeGroup> groups_where(const Facts& facts, const auto& wanted) {
  std::vector<NodeGroup> groups;
  std::ranges::copy_if(facts.groups, std::back_inserter(groups), wanted);
  return groups;
}

/// Of the most frequent size, the first; that others have another is said of `what`.
NodeGroup usual_of(Draft& d, const std::vector<NodeGroup>& groups, std::string what,
                   std::string_view kind) {
  std::map<int, int> frequency;
  for (const NodeGroup& group : groups) {
    ++frequency[group.nodes];
  }
  const NodeGroup usual = *std::ranges::max_element(
      groups, {}, [&](const NodeGroup& group) { return frequency.at(group.nodes); });
  const auto other = std::ranges::find_if(
      groups, [&](const NodeGroup& group) { return group.nodes != usual.nodes; });
  if (other != groups.end()) {
    d.assume(std::move(what),
             fmt::format("{} as of most {}; {} has {}", usual.nodes, kind, to_string(other->place),
                         other->nodes),
             to_string(usual.place));
  }
  return usual;
}

/// Trays of GPUs that NVLink joins, as Slurm's blocks have them.
int boards_of_node(Draft& d) {
  if (!d.gpu.nvlink_domain || d.gpu.nvlink_domain->value <= d.gpus) {
    return 1;
  }
  const std::int64_t domain = d.gpu.nvlink_domain->value;
  const std::vector<NodeGroup> blocks = groups_where(d.facts, [&](const NodeGroup& group) {
    return group.nvlink && std::int64_t{group.nodes} * d.gpus <= domain;
  });
  if (blocks.empty()) {
    d.assume(
        "gpus_per_node",
        fmt::format("{}: a node is one host; NVLink may join up to {} of these GPUs, but none of "
                    "the files says which hosts (Slurm's block topology would)",
                    d.gpus, domain),
        d.files());
    return 1;
  }
  const NodeGroup usual = usual_of(d, blocks, "gpus_per_node", "blocks");
  d.assume("gpus_per_node",
           fmt::format("{} hosts of {} GPUs are one node, joined by NVLink", usual.nodes, d.gpus),
           to_string(usual.place));
  return usual.nodes;
}

/// Nodes below one switch of the network.
void put_fabric(Draft& d) {
  const std::vector<NodeGroup> leaves =
      groups_where(d.facts, [](const NodeGroup& group) { return !group.nvlink; });
  if (leaves.empty()) {
    return;
  }
  const NodeGroup usual = usual_of(d, leaves, "fabric.nodes_per_leaf", "switches");
  d.assume("fabric.oversubscription", "1: Slurm's topology has no rates", "assumed");
  d.document.put_fat_tree(
      d.numbers.counted(std::max(1, usual.nodes / d.boards), to_string(usual.place)),
      d.numbers.assumed(1, "fraction", "Slurm's topology says nothing of rates", 0.2));
}

/// 0: no file says how many hosts there are.
int nodes_of(const Draft& d) {
  int hosts = 0;
  for (const HostCount& count : d.facts.hosts) {
    hosts = std::max(hosts, count.hosts);
  }
  return hosts == 0 ? 0 : std::max(1, hosts / d.boards);
}

}  // namespace

Imported merge(const Facts& facts, const MergeOptions& options, const Catalog& catalog) {
  Draft d{.facts = facts, .options = options, .catalog = catalog};
  d.assumptions = facts.notes;
  expect_whole_gpus(d);
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
  return {.machine = d.document.take(), .tests = facts.tests, .nodes = nodes_of(d)};
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
