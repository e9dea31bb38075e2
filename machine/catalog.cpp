// The data folder: which files there are, and how a machine is put together from them. One class,
// hence one file. All are read when the catalog is made, for their names and aliases, and kept: a
// machine names a GPU, that a generation and links, over and over again.
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "machine/machine.hpp"
#include "machine/machine_json.hpp"
#include "machine/nics.hpp"
#include "machine/stack.hpp"

#include <algorithm>

namespace spp {
namespace {

namespace fs = std::filesystem;

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".json");
}

/// Members that say that there is nothing.
void drop_nulls(Json& object) {
  for (auto it = object.begin(); it != object.end();) {
    it = it->is_null() ? object.erase(it) : std::next(it);
  }
}

}  // namespace

// ---- shelves

std::vector<std::string> Catalog::Shelf::names() const {
  std::vector<std::string> list;
  list.reserve(files.size());
  for (const auto& [name, file] : files) {
    list.push_back(name);
  }
  return list;
}

std::string Catalog::Shelf::in_any_case(const std::string& name) const {
  const std::string wanted = in_lower_case(name);
  for (const auto& [own, file] : files) {
    if (in_lower_case(own) == wanted) {
      return own;
    }
  }
  for (const auto& [alias, own] : aliases) {
    if (in_lower_case(alias) == wanted) {
      return own;
    }
  }
  return "";
}

fs::path Catalog::Shelf::find(const std::string& name, bool paths, std::string_view where) const {
  if (paths && is_path(name)) {
    return name;
  }
  if (const auto it = files.find(name); it != files.end()) {
    return it->second;
  }
  if (const auto it = aliases.find(name); it != aliases.end()) {
    return files.at(it->second);
  }
  if (const std::string known = in_any_case(name); !known.empty()) {
    return files.at(known);
  }
  if (paths && is_readable_file(name)) {
    return name;
  }
  const std::vector<std::string> known = names();
  std::vector<std::string> all = known;
  for (const auto& [alias, of] : aliases) {
    all.push_back(alias);
  }
  std::ranges::stable_sort(all, {}, &std::string::size);  // of equally near names the shortest
  const bool near = !nearest_name(name, all).empty();
  throw InputError(
      where, fmt::format("unknown {} '{}'{}", what, name, did_you_mean(name, near ? all : known)));
}

template <class Read>
auto Catalog::Shelf::read_with(const Read& read, const fs::path& file) const {
  if (const auto known = documents.find(file); known != documents.end()) {
    return read(JsonView(known->second, file.string()));
  }
  const Json document = read_json(file);
  return read(JsonView(document, file.string()));
}

Json Catalog::Shelf::document(const fs::path& file) const {
  return read_with([](const JsonView& view) { return view.value(); }, file);
}

Catalog::Shelf Catalog::shelf(const fs::path& folder, std::string_view what) {
  std::error_code ec;
  if (!fs::is_directory(folder, ec)) {
    throw InputError(folder.string(),
                     "is not a folder; topologies have gpus/, generations/, "
                     "transports/ and machines/");
  }
  Shelf shelf;
  shelf.what = what;
  for (const fs::path& file : files_in(folder, ".json")) {
    shelf.files.emplace(file.stem().string(), file);
  }
  for (const auto& [name, file] : shelf.files) {
    const Json& json = shelf.documents.emplace(file, read_json(file)).first->second;
    const JsonView document(json, file.string());
    if (const JsonView own = document.at("name"); own.string() != name) {
      own.fail(fmt::format("'{}' is not the file's name, '{}'", own.string(), name));
    }
    const auto list = document.find("aliases");
    for (const JsonView& view : list ? list->elements() : std::vector<JsonView>{}) {
      const std::string alias = view.string();
      const auto other = shelf.aliases.find(alias);
      if (shelf.files.contains(alias) || other != shelf.aliases.end()) {
        const std::string& owner = other != shelf.aliases.end() ? other->second : alias;
        view.fail(fmt::format("'{}' is taken: {} '{}' has this name or alias", alias, what, owner));
      }
      if (alias.empty() || is_path(alias)) {
        view.fail(fmt::format("'{}' cannot be an alias: empty, or looks like a path", alias));
      }
      shelf.aliases.emplace(alias, name);
    }
  }
  return shelf;
}

Catalog::Catalog(fs::path folder)
    : folder_(std::move(folder)),
      gpus_(shelf(folder_ / "gpus", "GPU")),
      generations_(shelf(folder_ / "generations", "GPU generation")),
      transports_(shelf(folder_ / "transports", "transport")),
      machines_(shelf(folder_ / "machines", "machine")),
      stacks_(shelf(folder_ / "stacks", "stack")) {}

std::vector<std::string> Catalog::gpu_names() const { return gpus_.names(); }
std::vector<std::string> Catalog::generation_names() const { return generations_.names(); }
std::vector<std::string> Catalog::transport_names() const { return transports_.names(); }
std::vector<std::string> Catalog::machine_names() const { return machines_.names(); }
std::vector<std::string> Catalog::stack_names() const { return stacks_.names(); }

// ---- one thing by name

GenerationSpec Catalog::generation(const std::string& name, std::string_view where) const {
  return generations_.read_with(read_generation, generations_.find(name, false, where));
}

StackSpec Catalog::stack(const std::string& name, std::string_view where) const {
  const auto document_of = [this](const JsonView& like) {
    return stacks_.document(stacks_.find(like.string(), false, like.where()));
  };
  return stacks_.read_with([&](const JsonView& view) { return read_stack(view, document_of); },
                           stacks_.find(name, false, where));
}

TransportSpec Catalog::transport(const std::string& name, std::string_view where) const {
  return transports_.read_with(read_transport, transports_.find(name, false, where));
}

GpuSpec Catalog::gpu(const std::string& name, std::string_view where) const {
  return gpus_.read_with([this](const JsonView& view) { return complete_gpu(view); },
                         gpus_.find(name, true, where));
}

GpuSpec Catalog::complete_gpu(const JsonView& document) const {
  GpuSpec g = read_gpu(document);
  const JsonView generation_view = document.at("generation");
  g.generation = generation_view.value().is_object()
                     ? read_generation(generation_view)
                     : generation(g.generation.name, generation_view.where());
  const auto link = [&](std::string_view key, const std::string& link_name) {
    return transport(link_name, document.at(key).where());
  };
  if (!g.pcie.empty()) {
    const TransportSpec pcie = link("pcie", g.pcie);
    if (pcie.medium != "pcie") {
      document.at("pcie").fail(fmt::format("'{}' is not PCIe (medium {})", pcie.name, pcie.medium));
    }
    g.slot = pcie.rate->value;
  }
  if (link("intra", g.intra).medium == "network") {
    document.at("intra").fail(fmt::format("'{}' is a network, no link inside a node", g.intra));
  }
  return g;
}

GpuSpec Catalog::gpu_at(const JsonView& view) const {
  return view.value().is_object() ? complete_gpu(view) : gpu(view.string(), view.where());
}

TransportSpec Catalog::transport_at(const JsonView& view) const {
  return view.value().is_object() ? read_transport(view) : transport(view.string(), view.where());
}

MachineSpec Catalog::machine(const std::string& name, std::string_view where) const {
  return machines_.read_with(
      [this](const JsonView& view) { return machine_of(view.value(), view.where()); },
      machines_.find(name, true, where));
}

MachineSpec Catalog::machine_of(const Json& document, const std::string& where) const {
  const JsonView view(document, where);
  MachineSpec m = read_machine(view);
  m.gpu = gpu_at(view.at("gpu"));
  const std::string medium = m.intra.medium;
  m.intra = transport_at(view.at("intra").at("transport"));
  if (m.inter) {
    m.inter->transport = transport_at(view.at("inter").at("transport"));
  }
  complete(m, medium, where);
  tell_fast_adapters(m, where);
  return m;
}

bool Catalog::has_machine(const std::string& name) const {
  return machines_.files.contains(name) || machines_.aliases.contains(name) ||
         !machines_.in_any_case(name).empty();
}

fs::path Catalog::file_of(const std::string& name, std::string_view where) const {
  const bool gpu =
      !has_machine(name) && (gpus_.files.contains(name) || gpus_.aliases.contains(name));
  return (gpu ? gpus_ : machines_).find(name, true, where);
}

Json Catalog::generation_document(const std::string& name) const {
  return generations_.document(folder_ / "generations" / fmt::format("{}.json", name));
}

Json Catalog::transport_document(const std::string& name) const {
  return transports_.document(folder_ / "transports" / fmt::format("{}.json", name));
}

Json Catalog::whole_machine(const std::string& name, std::string_view where) const {
  const fs::path file = file_of(name, where);
  return whole_machine_of(read_json(file), file.string());
}

Json Catalog::whole_machine_of(Json document, const std::string& where) const {
  const MachineSpec whole = machine_of(document, where);
  Json& gpu = document["gpu"];
  if (gpu.is_string()) {
    gpu = gpus_.document(gpus_.find(gpu.get<std::string>(), true, where));
  }
  if (gpu["generation"].is_string()) {
    gpu["generation"] = generation_document(whole.gpu.generation.name);
  }
  const auto put_whole = [&](Json& transport, const TransportSpec& spec) {
    if (transport.is_string()) {
      transport = transport_document(spec.name);
    }
  };
  put_whole(document["intra"]["transport"], whole.intra);
  if (whole.inter) {
    put_whole(document["inter"]["transport"], whole.inter->transport);
  }
  drop_nulls(document);
  if (document.contains("fabric")) {
    drop_nulls(document["fabric"]);
  }
  return document;
}

// ---- composed machines

namespace {

/// Collects what the request left open.
class Defaults {
 public:
  explicit Defaults(std::vector<Assumption>& to) : to_(&to) {}

  void note(std::string what, std::string value, std::string source = "default") {
    to_->push_back(
        {.what = std::move(what), .value = std::move(value), .source = std::move(source)});
  }
  Sourced<std::int64_t> count(std::string what, std::int64_t value) {
    note(std::move(what), fmt::format("{}", value));
    return {.value = value, .spread = 0, .source = "default"};
  }
  Sourced<Bandwidth> rate(std::string what, Bandwidth value, double spread) {
    note(std::move(what), fmt::format("{:.4g} GB/s", value.value() / 1e9));
    return {.value = value, .spread = spread, .source = "default"};
  }

 private:
  std::vector<Assumption>* to_;
};

/// Up to four GPUs a socket, as public `nvidia-smi topo -m` captures of 8-GPU PCIe servers show.
constexpr std::int64_t gpus_per_socket = 4;
/// A socket's host bridge passes what 1.5 slots can: four ring hops at 9 to 11 GB/s each on PCIe 4
/// (measured on L20 and RTX 4090 servers: USP, arXiv:2405.07719; ifromeast/AI_analysis).
constexpr double slots_per_host_bridge = 1.5;
/// As NCCL 2.28.9 src/graph/topo.h has them: Skylake for PCIe 3, Sapphire Rapids from Ada and
/// Hopper on.
constexpr Bandwidth skylake_socket_link{10e9};
constexpr Bandwidth sapphire_rapids_socket_link{22e9};
/// Ice Lake, the last of PCIe 4, for Ampere; consumer GPUs without P2P sit in such servers, too, as
/// far as is known. NCCL knows it as Skylake, whose links run at 10.4 GT/s; these at 11.2. (On the
/// one source of such a machine, ifromeast/AI_analysis, 10 to 11 GB/s of 10 to 22 have the least
/// error; one of its twelve choices is lost below 11.)
constexpr Bandwidth ice_lake_socket_link{11e9};

void fill_pcie(MachineSpec& m, Defaults& defaults) {
  const std::int64_t gpus = m.gpus_per_node.value;
  if (gpus > 1) {
    m.intra_spread = unmeasured_pcie_spread;
    defaults.note("intra.spread",
                  fmt::format("{:.0f} %: servers with the same GPUs differ nine-fold "
                              "in an all-to-all",
                              100 * m.intra_spread));
  }
  m.sockets = defaults.count("sockets", gpus > gpus_per_socket && gpus % 2 == 0 ? 2 : 1);
  m.host_bridge = defaults.rate("host_bridge", m.intra.rate->value * slots_per_host_bridge, 0.25);
  if (m.sockets.value > 1) {
    m.socket_link = defaults.rate("socket_link", usual_socket_link(m.gpu, m.intra.name), 0.3);
  }
  if (m.intra.name.ends_with("-switch")) {
    const std::int64_t of_socket = gpus / m.sockets.value;
    std::int64_t together = std::min(of_socket, gpus_per_socket);
    while (of_socket % together != 0) {
      --together;
    }
    m.gpus_per_pcie_switch = defaults.count("gpus_per_pcie_switch", together);
  } else {
    defaults.note("gpus_per_pcie_switch", "none: a root port per GPU");
  }
}

/// "ib:8x400Gb/s", "ethernet:100Gb/s".
InterSpec parse_inter(const std::string& text, int gpus, const Catalog& catalog,
                      Defaults& defaults) {
  constexpr std::string_view option = "--inter";
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    throw InputError(option, fmt::format("'{}' has no rate; write TRANSPORT:NICSxRATE, for example "
                                         "ib:8x400Gb/s or ethernet:100Gb/s",
                                         text));
  }
  InterSpec inter;
  inter.transport = catalog.transport(text.substr(0, colon), option);
  if (inter.transport.medium != "network") {
    throw InputError(option, fmt::format("'{}' is no network (medium {})", inter.transport.name,
                                         inter.transport.medium));
  }
  const std::string given = text.substr(colon + 1);
  const std::size_t times = given.find('x');
  if (times == std::string::npos) {
    inter.nics = defaults.count("inter.nics", 1);
  } else {
    inter.nics = {.value = parse_int(given.substr(0, times), fmt::format("{}: NICs", option), 1,
                                     most_gpus_per_node),
                  .spread = 0,
                  .source = std::string(option)};
  }
  const std::string rate = times == std::string::npos ? given : given.substr(times + 1);
  inter.rate_per_nic = {
      .value = parse_bandwidth(rate, option), .spread = 0, .source = std::string(option)};
  const auto nics = static_cast<int>(inter.nics.value);
  const int modelled = modelled_nics(nics, gpus);
  if (modelled != nics) {
    inter.nics.value = modelled;
    inter.rate_per_nic.value = inter.rate_per_nic.value * (static_cast<double>(nics) / modelled);
    defaults.note("inter.nics",
                  in_place_of(nics, modelled, inter.rate_per_nic.value.value() * 8e-9, gpus),
                  std::string(option));
  }
  inter.gpus_per_nic = {.value = gpus / modelled, .spread = 0, .source = std::string(option)};
  return inter;
}

}  // namespace

Bandwidth usual_socket_link(const GpuSpec& gpu, std::string_view transport) {
  constexpr int ampere = 80;
  constexpr int ada = 89;
  if (gpu.compute_capability < ampere) {
    return skylake_socket_link;
  }
  return gpu.compute_capability < ada || transport.ends_with("-shm") ? ice_lake_socket_link
                                                                     : sapphire_rapids_socket_link;
}

bool is_mesh_with_holes(const GpuSpec& gpu, std::int64_t gpus) {
  constexpr int volta = 70;
  return gpu.compute_capability == volta && gpus > 4 && gpus <= 8;
}

void Catalog::tell_fast_adapters(MachineSpec& machine, const std::string& where) const {
  if (!machine.inter || machine.gpu.pcie.empty() || machine.gpu.nvlink_domain) {
    return;
  }
  const Bandwidth slot = transport(machine.gpu.pcie, where).rate->value;
  const InterSpec& inter = *machine.inter;
  constexpr double newer = 2;  // generation of PCIe than that of which the GPU is known
  if (inter.rate_per_nic.value > slot * (newer * static_cast<double>(inter.gpus_per_nic.value))) {
    machine.assumptions.push_back(
        {.what = "inter.rate_per_nic",
         .value = fmt::format(
             "{:.4g} GB/s an adapter, though a GPU's slot passes {:.4g} ({}): is it "
             "in Gb/s, as adapters are rated?",
             inter.rate_per_nic.value.value() / 1e9, slot.value() / 1e9, machine.gpu.pcie),
         .source = where});
  }
}

MachineSpec Catalog::with_network(MachineSpec machine, const std::string& network,
                                  std::vector<Assumption>& assumptions) const {
  if (machine.inter) {
    throw InputError("--inter", fmt::format("{} says its network already", machine.name));
  }
  Defaults defaults(assumptions);
  machine.inter =
      parse_inter(network, static_cast<int>(machine.gpus_per_node.value), *this, defaults);
  complete(machine, machine.intra.medium, machine.name);
  tell_fast_adapters(machine, "--inter");
  return machine;
}

MachineSpec Catalog::compose(const ComposedMachine& request,
                             std::vector<Assumption>& assumptions) const {
  Defaults defaults(assumptions);
  if (request.gpus_per_node < 1 || request.gpus_per_node > most_gpus_per_node) {
    throw InputError("--gpus-per-node", fmt::format("{} is out of range (1 to {})",
                                                    request.gpus_per_node, most_gpus_per_node));
  }
  MachineSpec m;
  m.gpu = gpu(request.gpu, "--gpu");
  m.name = fmt::format("{}x{}", request.gpus_per_node, m.gpu.name);
  m.gpus_per_node = {.value = request.gpus_per_node, .spread = 0, .source = "--gpus-per-node"};

  const bool rate_given =
      !request.intra.empty() && (request.intra[0] >= '0' && request.intra[0] <= '9');
  const bool named = !request.intra.empty() && !rate_given;
  m.intra = transport(named ? request.intra : m.gpu.intra, "--intra");
  if (m.intra.medium == "network") {
    throw InputError("--intra", fmt::format("'{}' is a network; a link inside a node is nvlink…, "
                                            "pcie… or a rate such as 300GB/s",
                                            m.intra.name));
  }
  if (!named) {
    defaults.note("intra.transport", m.intra.name);
  }
  m.intra_rate = rate_given ? parse_bandwidth(request.intra, "--intra") : m.intra.rate->value;
  m.sockets = {.value = 1, .spread = 0, .source = "default"};  // NVLink goes past sockets
  if (m.intra.medium == "pcie") {
    fill_pcie(m, defaults);
  }
  if (m.intra.medium == "nvlink" && !rate_given &&
      is_mesh_with_holes(m.gpu, request.gpus_per_node)) {
    m.intra_spread = mesh_with_holes_spread;
    defaults.note("intra.spread",
                  fmt::format("{:.0f} %: not every pair of {} {} has NVLinks", 100 * m.intra_spread,
                              request.gpus_per_node, m.gpu.name));
  }
  m.fabric.oversubscription.source = "default";
  if (!request.inter.empty()) {
    m.inter = parse_inter(request.inter, request.gpus_per_node, *this, defaults);
    defaults.note("fabric", m.fabric.kind);
  }
  complete(m, m.intra.medium, m.name);
  tell_fast_adapters(m, "--inter");
  return m;
}

}  // namespace spp
