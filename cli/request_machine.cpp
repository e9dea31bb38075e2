// The machine of a request: named, read from a file, or composed; its nodes, GPUs and memory.
#include "base/error.hpp"
#include "cli/data.hpp"
#include "cli/human.hpp"
#include "cli/request_reader.hpp"
#include "machine/stack.hpp"
#include "sim/thinned.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>

namespace spp::cli {
namespace {

/// What of a layer or a step a calibration did not time; earlier versions timed layers alone.
std::string_view kernels_assumed(const LayerKernelsSpec& timed) {
  if (timed.empty()) {
    return "GEMMs and row-wise kernels of layers";
  }
  return timed.rows.contains({.function = LayerFunction::word_sums})
             ? ""
             : "kernels of embedding, loss head, optimizer and experts";
}

/// Whether no message between its ranks was timed; numbers that are assumed say so.
bool links_assumed(const MachineSpec& machine) {
  const auto assumed = [](const Segment& s) { return s.latency.source.starts_with("assumed"); };
  return machine.gpus_per_node.value > 1 &&
         std::ranges::all_of(machine.intra.segments, [&](const std::vector<Segment>& kind) {
           return std::ranges::all_of(kind, assumed);
         });
}

}  // namespace

void Reader::machine(MachineNeed need) {
  stack();
  if (need == MachineNeed::optional && !args_.has("topology") && !args_.has("gpu") &&
      !args_.has("profile")) {
    ranks_without_machine();
    return;
  }

  MachineSpec spec = machine_spec();
  if (spec.host && job_.stack->name == "sp-plan") {
    job_.stack->step = on_cpus(job_.stack->step);
    if (request().whole_step()) {
      assume("stack.host", "our own executor's: nothing beside the launches in measured kernels",
             "ranks are CPUs");
    }
  }
  memory(spec);
  (void)matrix_rate(spec.gpu, request().problem.dtype, "--dtype");
  const auto per_node = static_cast<int>(spec.gpus_per_node.value);
  const auto gpus_given = count("gpus", most_ranks);
  const auto [usual, why] = usual_nodes(spec);
  const int needed = gpus_given ? (*gpus_given + per_node - 1) / per_node : usual;
  const int nodes = count(
      "nodes", text_or("nodes", "nodes", fmt::format("{}", needed), gpus_given ? "default" : why),
      most_ranks);
  if (std::int64_t{nodes} * per_node > most_ranks) {
    throw InputError("--nodes", fmt::format("{} nodes of {} GPUs are more than {} GPUs", nodes,
                                            per_node, most_ranks));
  }
  const int all = nodes * per_node;
  if (gpus_given && *gpus_given > all) {
    throw InputError("--gpus", fmt::format("{} GPUs, but {} x {} has {}; give --nodes {}",
                                           *gpus_given, nodes, spec.name, all, needed));
  }
  if (!gpus_given) {
    assume("gpus", fmt::format("{}", all), "default: all");
  }
  const int gpus = gpus_given.value_or(all);
  // Fewer GPUs than would fill the nodes before the last: as many of each node.
  const bool of_each = gpus <= (nodes - 1) * per_node && gpus % nodes == 0 && gpus_given &&
                       args_.has("nodes") && per_node % (gpus / nodes) == 0;
  if (gpus <= (nodes - 1) * per_node && !of_each) {
    throw InputError("--nodes", fmt::format("{} nodes for {} GPUs of {} a node: {} are enough",
                                            nodes, gpus, per_node, needed));
  }
  if (nodes > 1 && !spec.inter) {
    if (job_.profile && !args_.has("topology")) {
      throw InputError(
          "--profile",
          fmt::format("'{}' was measured with {} ranks, without a network "
                      "to others: calibrate with --gpus {}",
                      job_.profile->name, per_node, gpus_given.value_or(nodes * per_node)));
    }
    throw InputError("--inter",
                     fmt::format("{} nodes need a network, and {} has none; for example --inter "
                                 "ib:8x400Gb/s",
                                 nodes, spec.name));
  }
  const bool evenly = !of_each && !spec.host && !spec.device && nodes > 1 && gpus % nodes == 0 &&
                      gpus / nodes < per_node;
  list_constants(spec);
  job_.gpus_of_node = per_node;
  request().gpus = gpus;
  if (of_each) {
    const int each = gpus / nodes;
    assume("placement",
           fmt::format("{} of the {} GPUs of each node, alone on their part of its network cards",
                       each, per_node),
           "--gpus and --nodes");
    job_.cluster = std::make_unique<sim::Cluster>(
        sim::thinned(sim::Cluster(std::move(spec), nodes, all), per_node / each, gpus));
  } else if (evenly) {
    assume("placement",
           fmt::format("{} of the {} GPUs of each {}", gpus / nodes, per_node,
                       spec.gpu.nvlink_domain ? "NVLink domain" : "node"),
           "as many of each, as launchers do");
    job_.cluster = std::make_unique<sim::Cluster>(sim::evenly_filled(std::move(spec), nodes, gpus),
                                                  nodes, gpus);
  } else {
    job_.cluster = std::make_unique<sim::Cluster>(std::move(spec), nodes, gpus);
  }
  request().cluster = job_.cluster.get();
  resolve("nodes", nodes);
  resolve("gpus", gpus);
}

void Reader::stack() {
  const std::string name = text_or("stack", "stack", "sp-plan");
  const StackSpec spec = topologies().stack(name, "--stack");
  resolve("stack", spec.name);
  job_.stack = std::make_unique<StackSpec>(spec);
  if (spec.name == "sp-plan") {
    request().practice = &job_.stack->step;
    return;  // attention of our own runtime: what the generation or the profile says
  }
  if (args_.has("profile")) {
    throw InputError("--stack", fmt::format("'{}' beside --profile, which measured sp-plan's own "
                                            "runtime",
                                            name));
  }
  request().run_by(*job_.stack);
  if (spec.framework.empty() && spec.strategies.empty()) {
    assume("stack", fmt::format("{} ({}) runs any plan", spec.name, spec.title),
           "not known; --framework keeps to what one runs");
  }
}

void Reader::ranks_without_machine() {
  for (const std::string_view option : {"gpus-per-node", "intra", "inter", "nodes", "memory"}) {
    if (args_.has(option)) {
      throw InputError(fmt::format("--{}", option), "needs a machine: --topology or --gpu");
    }
  }
  if (const auto gpus = count("gpus", most_ranks)) {
    request().gpus = *gpus;
  } else {
    std::vector<std::string_view> given{"ulysses", "ring"};
    if (request().whole_step()) {
      given.insert(given.end(), {"tp", "dp", "pp"});
    }
    std::int64_t ranks = 1;
    std::string source;
    for (const std::string_view option : given) {
      const int degree = count(option, most_ranks).value_or(1);
      if (degree > 1 || option == "ulysses" || option == "ring") {
        source += fmt::format("{}--{}", source.empty() ? "" : " x ", option);
      }
      if (ranks * degree > most_ranks) {
        throw InputError(fmt::format("--{}", option),
                         fmt::format("{} x {} is more than {} ranks", ranks, degree, most_ranks));
      }
      ranks *= degree;
    }
    request().gpus = static_cast<int>(ranks);
    assume("gpus", fmt::format("{}", request().gpus), source);
  }
  resolve("gpus", request().gpus);
}

MachineSpec Reader::machine_spec() {
  if (args_.has("profile")) {
    return profiled_machine();
  }
  if (const auto topology = args_.find("topology")) {
    return named_machine(*topology);
  }
  return composed_machine();
}

/// Without --nodes and --gpus: as many as were measured or are listed, if a network joins these.
std::pair<int, std::string> Reader::usual_nodes(const MachineSpec& spec) const {
  if (job_.profile && !args_.has("topology")) {
    return {job_.profile->nodes, "default"};
  }
  if (listed_nodes_ <= 1) {
    return {1, "default"};
  }
  if (!spec.inter) {
    return {1, fmt::format("default: the files of --topology list {}, but no network that joins "
                           "them",
                           listed_nodes_)};
  }
  return {listed_nodes_, "as many as the files of --topology list"};
}

/// A machine of the catalog, a file of ours, or files of others.
MachineSpec Reader::named_machine(const std::string& name) {
  constexpr std::string_view option = "--topology";
  const Catalog& catalog = topologies();
  resolve("topology", name);
  if (const Json* document = args_.document("topology")) {
    resolve_given("topology", *document);
    TextFile file{.name = std::string(option),
                  .text = document->is_string() ? document->get<std::string>() : document->dump()};
    if (!is_own_document(file)) {
      return imported_machine({std::move(file)}, catalog);
    }
    return described_machine(catalog.machine_of(*document, std::string(option)), option);
  }
  std::vector<TextFile> files =
      catalog.has_machine(name) ? std::vector<TextFile>{} : files_named(name, option);
  if (!files.empty() && !(files.size() == 1 && is_own_document(files.front()))) {
    return imported_machine(std::move(files), catalog);
  }
  return described_machine(
      files.empty() ? catalog.machine(name, option)
                    : catalog.machine_of(parse_json(files.front().text, files.front().name), name),
      option);
}

/// One that says everything itself, but perhaps for a network.
MachineSpec Reader::described_machine(MachineSpec machine, std::string_view because) {
  std::vector<std::string_view> said{"gpu", "gpus-per-node", "intra"};
  if (machine.inter) {
    said.emplace_back("inter");
  }
  for (const std::string_view option : said) {
    if (args_.has(option)) {
      throw InputError(fmt::format("--{}", option),
                       fmt::format("given together with {}, which says it already", because));
    }
  }
  const auto network = args_.find("inter");
  if (!network) {
    return machine;
  }
  resolve("inter", *network);
  return topologies().with_network(std::move(machine), *network, job_.assumptions);
}

MachineSpec Reader::imported_machine(std::vector<TextFile> files, const Catalog& catalog) {
  imported_ = true;
  if (args_.has("intra")) {
    throw InputError("--intra", "given together with --topology, whose files say it");
  }
  imports::MergeOptions options{.gpu = args_.get("gpu", ""), .inter = args_.get("inter", "")};
  if (const auto gpus = count("gpus-per-node", most_gpus_per_node)) {
    options.gpus_per_node = *gpus;
    resolve("gpus_per_node", *gpus);
  }
  for (const std::string_view option : {"gpu", "inter"}) {
    if (const auto text = args_.find(option)) {
      resolve(option, *text);
    }
  }
  ImportedMachine imported = import_machine(std::move(files), options, catalog);
  listed_nodes_ = imported.nodes;
  return std::move(imported.spec);
}

/// The profile's machine; or the named one, if it has the same GPU, with the profile's constants.
MachineSpec Reader::profiled_machine() {
  const std::string file = args_.get("profile", "");
  const Json* document = args_.document("profile");
  if (document != nullptr) {
    resolve_given("profile", *document);
  }
  job_.profile = document != nullptr ? read_profile(JsonView(*document, "--profile"))
                                     : read_profile(std::filesystem::path(file));
  const Profile& p = *job_.profile;
  resolve("profile", file);
  assume("profile", fmt::format("{} of {}, measured on {}", p.name, p.date, p.machine.name), file);
  const auto topology = args_.find("topology");
  if (!topology) {
    return described_machine(p.machine, "--profile");
  }
  MachineSpec named = named_machine(*topology);
  const std::string name = named.name;
  named = calibrated(std::move(named), p, "--profile");
  if (name != p.machine.name) {
    job_.warnings.push_back(
        fmt::format("--profile '{}' was measured on {}, not on {}", p.name, p.machine.name, name));
  }
  return named;
}

MachineSpec Reader::composed_machine() {
  const auto gpu = args_.find("gpu");
  if (!gpu) {
    throw InputError(
        "--topology",
        "missing: a machine (see 'sp-plan topology list'), or --gpu with --gpus-per-node, "
        "--intra, --inter");
  }
  ComposedMachine composed{.gpu = *gpu,
                           .gpus_per_node = 8,
                           .intra = args_.get("intra", ""),
                           .inter = args_.get("inter", "")};
  composed.gpus_per_node =
      count("gpus-per-node", text_or("gpus-per-node", "gpus_per_node", "8"), most_gpus_per_node);
  resolve("gpu", *gpu);
  resolve("gpus_per_node", composed.gpus_per_node);
  resolve("intra", args_.has("intra") ? Json(composed.intra) : Json());
  resolve("inter", args_.has("inter") ? Json(composed.inter) : Json());
  return topologies().compose(composed, job_.assumptions);
}

void Reader::memory(MachineSpec& machine) {
  GpuSpec& gpu = machine.gpu;
  if (const auto text = args_.find("memory")) {
    gpu.memory = {.value = parse_bytes(*text, "--memory"), .spread = 0, .source = "--memory"};
    if (gpu.memory.value < Bytes(1'000'000)) {
      throw InputError("--memory", fmt::format("'{}' is less than a GPU can have", *text));
    }
  } else {
    assume("memory", fmt::format("{} a GPU", human(gpu.memory.value)), gpu.memory.source);
  }
  const double usable = gpu.memory.value.as_double() * gpu.memory_usable.value;
  request().memory = Bytes(static_cast<std::int64_t>(std::llround(usable)));
  assume("memory.usable",
         fmt::format("{} of {} ({:.0f} %)", human(request().memory), human(gpu.memory.value),
                     100 * gpu.memory_usable.value),
         gpu.memory_usable.source);
  resolve("memory_bytes", gpu.memory.value.value());
  resolve("usable_memory_bytes", request().memory.value());
}

void Reader::list_constants(const MachineSpec& machine) {
  std::ranges::copy(machine.assumptions, std::back_inserter(job_.assumptions));
  const GenerationSpec& generation = machine.gpu.generation;
  const std::string& transport =
      machine.intra.rate ? machine.intra.rate->source : machine.intra.name;
  assume("intra.bandwidth",
         fmt::format("{}, {} per GPU and direction", machine.intra.name, human(machine.intra_rate)),
         transport);
  if (machine.inter) {
    const InterSpec& inter = *machine.inter;
    assume("inter.bandwidth",
           fmt::format("{}, {} x {:.0f} Gb/s a node", inter.transport.name, inter.nics.value,
                       inter.rate_per_nic.value.value() * 8e-9),
           inter.rate_per_nic.source);
  }
  if (machine.host) {
    const HostSpec& host = *machine.host;
    assume("host.cores",
           fmt::format("{} shared by the ranks of {}", host.cores.value,
                       host.nodes == 0   ? "all nodes"
                       : host.nodes == 1 ? "a node"
                                         : fmt::format("{} nodes", host.nodes)),
           host.cores.source);
  }
  if (machine.device) {
    const SharedDeviceSpec& device = *machine.device;
    assume("device",
           fmt::format("{} ranks share a GPU, {}, and {} of its memory", device.ranks.value,
                       device.split ? "each with SMs of its own" : "its SMs in turn",
                       human(device.memory_bandwidth.value)),
           device.memory_bandwidth.source);
  }
  const std::string& kernel = request().stack != nullptr
                                  ? attention_of(*request().stack, generation).kernel
                                  : generation.attention.kernel;
  if (job_.profile) {
    const DType type = request().problem.dtype;
    std::set<int> head_dims;
    const auto blocks = std::ranges::count_if(machine.gpu.measured, [&](const auto& m) {
      const bool of_these = m.kernels == kernel && m.dtype == type;
      if (of_these) {
        head_dims.insert(m.head_dim);
      }
      return of_these;
    });
    const int head_dim = request().problem.head_dim;
    assume("kernels",
           fmt::format("{} on {}, {} attention blocks measured in {}{}", kernel, machine.gpu.name,
                       blocks, to_string(type),
                       blocks == 0 || head_dims.contains(head_dim)
                           ? ""
                           : fmt::format(", of head dimension {} and not {}",
                                         fmt::join(head_dims, ", "), head_dim)),
           fmt::format("{}, {}", args_.get("profile", ""), job_.profile->date));
    if (job_.profile->later) {
      job_.warnings.push_back(
          fmt::format("{}: was written by a later sp-plan ({}): what only that knows is left out",
                      args_.get("profile", ""), job_.profile->tool_version));
    }
    const auto lacks = [&](std::string_view what, std::string_view assumed,
                           std::string_view measures) {
      job_.warnings.push_back(fmt::format("{}: has no {}: times of {} are assumed (calibrate {})",
                                          args_.get("profile", ""), what, assumed, measures));
    };
    if (blocks == 0 && job_.profile->from_calibration()) {
      const bool has_others = std::ranges::any_of(
          machine.gpu.measured, [&](const auto& m) { return m.kernels == kernel; });
      lacks(fmt::format("attention blocks in {}", to_string(type)), "attention kernels",
            has_others ? fmt::format("with --dtype {}", to_string(type)) : "without --suite");
    }
    if (links_assumed(machine) && job_.profile->from_calibration()) {
      lacks("messages between ranks", "links", "without --suite");
    }
    const std::string_view assumed = kernels_assumed(generation.layer);
    if (!assumed.empty() && request().whole_step() && job_.profile->from_calibration()) {
      job_.warnings.push_back(fmt::format(
          "{}: has no {}: their times are not measured but assumed ('sp-plan calibrate' measures "
          "them)",
          args_.get("profile", ""), assumed));
    }
    return;
  }
  assume("kernels",
         fmt::format("{} on {}, no calibration of this machine", kernel, machine.gpu.name),
         fmt::format("topologies/generations/{}.json", generation.name));
}

}  // namespace spp::cli
