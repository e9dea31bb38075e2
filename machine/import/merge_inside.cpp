// Links inside a node, from the ways between its GPUs. One decision, hence one file.
//
//   every pair has NVLinks, more than a GPU has for each   switches: NVLink at all of a GPU's links
//   every pair has NVLinks of its own                      a mesh, a share of them to each peer
//   NVLinks join all, but not every pair                   a mesh with holes: wide intervals
//   NVLinks join some, or none                             PCIe, by sockets and switches
#include "base/error.hpp"
#include "machine/import/draft.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace spp::imports {
namespace {

/// NVLinks of a GPU, by generation (NVIDIA's architecture white papers and product briefs): boards
/// with PCIe have them for bridges. None: Ada's, and Blackwell's workstation cards.
int most_nvlinks(const GpuSpec& gpu) {
  switch (gpu.compute_capability) {
    case 70:
      return 6;
    case 80:
      return 12;
    case 86:
      return 4;
    case 89:
    case 120:
      return 0;
    default:
      return 18;
  }
}

/// One direction of one NVLink (NVIDIA's architecture white papers and product briefs).
Bandwidth nvlink_rate(const GpuSpec& gpu) {
  const bool bridge = gpu.compute_capability == 86;  // A40, A6000: four links make 56.25 GB/s
  return Bandwidth(gpu.compute_capability >= 100 ? 50e9 : bridge ? 14.0625e9 : 25e9);
}

/// The transport of the same generation.
std::string usual_nvlink(const GpuSpec& gpu) {
  const int capability = gpu.compute_capability;
  return capability >= 100  ? "nvlink5"
         : capability >= 90 ? "nvlink4"
         : capability >= 80 ? "nvlink3"
                            : "nvlink2";
}

bool knows(const Catalog& catalog, const std::string& transport) {
  const std::vector<std::string> names = catalog.transport_names();
  return std::ranges::find(names, transport) != names.end();
}

/// Tests of NCCL that ran on all GPUs of one node: what they timed is measured, and replaces what
/// is put down here (cli/import_machine.cpp).
std::vector<std::string> timed_inside(const Draft& d) {
  std::vector<std::string> names;
  for (const NcclTest& test : d.facts.tests) {
    if (test.hosts.size() == 1 && test.ranks() == d.gpus && test.name != "all_reduce") {
      names.push_back(test.name);
    }
  }
  return names;
}

bool is_all_to_all_timed(const Draft& d) {
  const std::vector<std::string> names = timed_inside(d);
  return std::ranges::find(names, "alltoall") != names.end();
}

struct Nvlinks {
  int groups = 1;        // that NVLink joins
  bool complete = true;  // every pair has some, as far as pairs are known
  int least = 0;         // of a pair that has some
  int most = 0;
  int most_of_gpu = 0;  // of a GPU to all others, if they are no switch
  Place place;
};

Nvlinks nvlinks_of(const Layout& layout) {
  Nvlinks n{.least = std::numeric_limits<int>::max(), .place = layout.place};
  const auto joined = [&](int a, int b) {
    return layout.between[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)].way ==
           Way::nvlink;
  };
  const std::vector<int> groups = groups_of(layout.gpus(), joined);
  n.groups = 1 + *std::ranges::max_element(groups);
  for (int a = 0; a < layout.gpus(); ++a) {
    int of_gpu = 0;
    for (int b = 0; b < layout.gpus(); ++b) {
      if (a == b) {
        continue;
      }
      const Between& between =
          layout.between[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
      if (!joined(a, b)) {
        n.complete = n.complete && between.way == Way::unknown;
        continue;
      }
      of_gpu += between.nvlinks;
      n.least = std::min(n.least, between.nvlinks);
      n.most = std::max(n.most, between.nvlinks);
      n.place = between.place;
    }
    n.most_of_gpu = std::max(n.most_of_gpu, of_gpu);
  }
  return n;
}

/// One peer of a mesh is reached over its own links only.
Json mesh_of(const Draft& d, const std::string& base, double share_of_one_peer,
             const std::string& source) {
  Json json = d.catalog.transport_document(base);
  json["name"] = base + "-mesh";
  json.erase("aliases");
  json.erase("all_reduce");
  for (Json& segment : json["p2p"]) {
    Json& fraction = segment["fraction"];
    const double value = fraction["value"].get<double>() * share_of_one_peer;
    fraction = d.numbers.assumed(value, "fraction",
                                 fmt::format("one peer of a mesh has {:.3g} of a GPU's links ({})",
                                             share_of_one_peer, source),
                                 0.2);
  }
  return json;
}

void put_rate(Draft& d, Bandwidth rate, const TransportSpec& transport, const std::string& source) {
  const double usual = transport.rate->value.value();
  if (std::abs(rate.value() / usual - 1) > 0.01) {
    d.assume("intra.rate",
             fmt::format("{:.4g} GB/s a GPU and direction, where {} has {:.4g}", rate.value() / 1e9,
                         transport.name, usual / 1e9),
             source);
    d.document.put_intra_rate(d.numbers.quantity(rate.value() / 1e9, "GB/s", source, 0.0));
  }
}

void put_nvlink(Draft& d, const Nvlinks& n) {
  const int peers = d.gpus - 1;
  const std::string source = to_string(n.place);
  const int has = most_nvlinks(d.gpu);
  if (n.most > has) {
    throw InputError(
        source,
        fmt::format("NV{} between GPUs, but {} has {}; --gpu says which GPU it "
                    "is",
                    n.most, d.gpu.name, has == 0 ? "no NVLink" : fmt::format("{} NVLinks", has)));
  }
  // One link that is down is missing at all pairs of its GPU.
  const bool switched = n.complete && n.least * peers > has;
  if (n.complete && n.least != n.most) {
    d.assume("intra", fmt::format("NV{} to NV{} between GPUs: the least counts", n.least, n.most),
             source);
  }
  const Bandwidth link = nvlink_rate(d.gpu);
  const TransportSpec own = d.catalog.transport(d.gpu.intra, source);
  const int of_gpu = switched ? n.least : n.most_of_gpu;
  const Bandwidth rate = link * static_cast<double>(of_gpu);
  const bool own_fits = own.medium == "nvlink" && own.name.find("-mesh") == std::string::npos &&
                        std::abs(own.rate->value.value() / rate.value() - 1) < 0.01;
  const std::string base = own_fits ? own.name : usual_nvlink(d.gpu);
  if (switched || peers == 1) {
    d.document.put_intra(base, "nvlink");
    put_rate(d, rate, d.catalog.transport(base, source), source);
    d.assume("intra",
             switched ? fmt::format("switches join the GPUs: NV{} to each of {} are more in all "
                                    "than the {} links of a GPU",
                                    n.least, peers, has)
                      : fmt::format("a pair with {} NVLinks", n.most),
             source);
    return;
  }
  const bool known_mesh =
      n.complete && n.least == n.most && d.gpus == 4 && knows(d.catalog, base + "-mesh4");
  const std::string name = known_mesh ? base + "-mesh4" : base;
  const double share = static_cast<double>(n.least) / of_gpu;
  d.document.put_intra(known_mesh ? Json(name) : mesh_of(d, base, share, source), "nvlink");
  put_rate(d, rate, d.catalog.transport(name, source), source);
  if (n.complete) {
    d.assume("intra",
             fmt::format("a mesh without switches: {} of a GPU's {} NVLinks to each peer", n.least,
                         of_gpu),
             source);
    return;
  }
  const bool timed = is_all_to_all_timed(d);
  if (!timed) {
    d.document.put_intra_spread(mesh_with_holes_spread);
  }
  d.assume(
      "intra",
      fmt::format(
          "a mesh with holes: not every pair has NVLinks; predicted as if messages "
          "went over others' links{}",
          timed ? "" : fmt::format(", and only within {:.0f} %", 100 * mesh_with_holes_spread)),
      source);
}

// ---- PCIe

/// By the CPU (NCCL 2.30.7, src/graph/topo.h); nothing if that is not known.
std::optional<std::pair<Bandwidth, std::string>> socket_link_of(const Facts& facts) {
  constexpr int sapphire_rapids = 143;
  constexpr int emerald_rapids = 207;
  for (const CpuFact& cpu : facts.cpus) {
    const bool intel = cpu.vendor == "GenuineIntel" && cpu.family == 6;
    const double rate = cpu.vendor == "AuthenticAMD"            ? 16e9
                        : cpu.vendor == "arm64"                 ? 6e9
                        : intel && cpu.model == emerald_rapids  ? 40e9
                        : intel && cpu.model == sapphire_rapids ? 22e9
                        : intel && cpu.model > 0                ? 10e9
                                                                : 0;
    if (rate > 0) {
      return std::pair{
          Bandwidth(rate),
          fmt::format("NCCL 2.30.7 src/graph/topo.h, by the CPU at {}", to_string(cpu.place))};
    }
  }
  return std::nullopt;
}

/// With equal, consecutive parts; 0 if groups are not.
int equal_groups(const std::vector<int>& groups) {
  const int count = 1 + *std::ranges::max_element(groups);
  const auto size = static_cast<int>(groups.size()) / count;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] != static_cast<int>(i) / size) {
      return 0;
    }
  }
  return static_cast<int>(groups.size()) % count == 0 ? count : 0;
}

/// GPUs whose way is no longer than `longest`.
std::vector<int> joined_by(const Layout& layout, Way longest) {
  return groups_of(layout.gpus(), [&](int a, int b) {
    const Way way = layout.between[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)].way;
    return way >= Way::pix && way <= longest;
  });
}

int sockets_of(Draft& d) {
  const int n = d.gpus;
  const int usual = n > 4 && n % 2 == 0 ? 2 : 1;
  if (!d.layout || n == 1) {
    if (n > 1) {
      d.assume("sockets", fmt::format("{}: no file says which GPUs share one", usual), "assumed");
    }
    return usual;
  }
  const std::string place = to_string(d.layout->place);
  const auto numa_joined = [&](int a, int b) {
    const std::string& x = d.layout->numa[static_cast<std::size_t>(a)];
    return !x.empty() && x == d.layout->numa[static_cast<std::size_t>(b)];
  };
  const std::vector<int> by_way = groups_of(n, [&](int a, int b) {
    const Way way = d.layout->between[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)].way;
    return (way >= Way::pix && way <= Way::node) ||
           ((way == Way::nvlink || way == Way::unknown) && numa_joined(a, b));
  });
  const int count = equal_groups(by_way);
  if (count == 0) {
    const int taken = n % 2 == 0 ? 2 : 1;
    d.assume("sockets",
             fmt::format("{}: GPUs of a NUMA node are not equally many, or not neighbours in "
                         "number, which a description here cannot say",
                         taken),
             place);
    return taken;
  }
  if (count > 2) {
    const int taken = n % 2 == 0 ? 2 : 1;
    d.assume("sockets",
             fmt::format("{}, though {} NUMA nodes have GPUs: servers have two sockets at most, "
                         "and a socket may be several NUMA nodes",
                         taken, count),
             place);
    return taken;
  }
  return count;
}

int gpus_per_switch(Draft& d, int per_socket) {
  if (!d.layout || d.gpus == 1) {
    return 1;
  }
  const std::vector<int> groups = joined_by(*d.layout, Way::pxb);
  const int all = 1 + *std::ranges::max_element(groups);
  const int count = equal_groups(groups);
  const int size = count == 0 ? 0 : d.gpus / count;
  if (size > 1 && per_socket % size == 0) {
    return size;
  }
  if (all < d.gpus) {
    d.assume("gpus_per_pcie_switch",
             "none: some GPUs share a PCIe switch, but not all of them, equally many and "
             "neighbours in number",
             to_string(d.layout->place));
  }
  return 1;
}

/// Which description of PCIe.
std::string pcie_transport(Draft& d) {
  const TransportSpec own = d.catalog.transport(d.gpu.intra, "gpu");
  std::string name = own.medium == "pcie" ? own.name : d.gpu.pcie;
  if (name.empty()) {
    throw InputError(d.files(),
                     fmt::format("shows PCIe between GPUs, which {} has not", d.gpu.name));
  }
  const bool bounced = name.ends_with("-shm");
  for (const PeerAccess& peers : d.facts.peers) {  // where some pairs cannot, whoever says so
    if (peers.cannot > 0) {
      const std::string shm = bounced ? name : name + "-shm";
      const bool known = knows(d.catalog, shm);
      d.assume("intra.transport",
               fmt::format("{}: {} of {} pairs cannot reach each other's memory{}",
                           known ? shm : name, peers.cannot, peers.can + peers.cannot,
                           known ? ", so messages go through the host's"
                                 : "; slower than this, as messages go through the host's memory"),
               to_string(peers.place));
      return known ? shm : name;
    }
  }
  if (std::ranges::any_of(d.facts.peers, [](const PeerAccess& peers) { return peers.can > 0; })) {
    return d.gpu.pcie.empty() ? name : d.gpu.pcie;
  }
  if (bounced) {
    d.assume("intra.transport",
             fmt::format("{}: drivers give these GPUs no access to each other's memory (nvidia-smi "
                         "topo -p2p r would tell)",
                         name),
             "assumed");
  }
  return name;
}

/// Generation of a description's PCIe: "pcie4-switch" is of 4. 0: it says none.
int pcie_generation_of(std::string_view name) {
  constexpr std::string_view pcie = "pcie";
  return name.starts_with(pcie) && name.size() > pcie.size() ? name[pcie.size()] - '0' : 0;
}
/// The same of another.
std::string of_generation(std::string name, int generation) {
  constexpr std::string_view pcie = "pcie";
  return name.replace(pcie.size(), 1, fmt::format("{}", generation));
}

/// What slots and GPUs reach of it: the description's name, which may be an older one's, and the
/// part of its rate.
std::string put_pcie_rate(Draft& d, std::string name, double& part) {
  for (const GpuFact& fact : d.facts.gpus) {
    const int generation = fact.pcie_generation;
    const bool older = generation > 0 && generation < pcie_generation_of(name);
    if (older && knows(d.catalog, of_generation(name, generation))) {
      name = of_generation(name, generation);
      d.assume("intra.transport", fmt::format("{}: what slot and GPU reach", name),
               to_string(fact.place));
    }
    const int short_of = generation > 0 ? std::max(0, pcie_generation_of(name) - generation) : 0;
    const int lanes = fact.pcie_width > 0 ? std::min(fact.pcie_width, 16) : 16;
    if (const double reached = std::pow(0.5, short_of) * lanes / 16; reached < part) {
      part = reached;
      d.assume("intra.rate",
               fmt::format("of {} lanes of 16{}", lanes,
                           short_of > 0 ? fmt::format(", of generation {}", generation) : ""),
               to_string(fact.place));
    }
  }
  d.document.put_intra(name, "pcie");
  if (part < 1) {
    const TransportSpec transport = d.catalog.transport(name, "intra");
    d.document.put_intra_rate(
        d.numbers.quantity(transport.rate->value.value() * part / 1e9, "GB/s", d.files(), 0.1));
  }
  return name;
}

/// How far off PCIe may be where nobody timed an all-to-all on it.
void tell_unmeasured(Draft& d) {
  if (is_all_to_all_timed(d)) {
    return;
  }
  d.document.put_intra_spread(unmeasured_pcie_spread);
  constexpr std::string_view differ =
      "two published servers with the same GPUs and the same table differ nine-fold in an "
      "all-to-all";
  const std::vector<std::string> timed = timed_inside(d);
  d.assume("intra",
           timed.empty()
               ? fmt::format("PCIe: nothing here tells how fast messages of all GPUs at once are; "
                             "{}: only within {:.0f} % (nccl-tests of alltoall and sendrecv would "
                             "tell)",
                             differ, 100 * unmeasured_pcie_spread)
               : fmt::format("PCIe: measured are {}, but no all-to-all, and {} (nccl-tests of "
                             "alltoall would tell)",
                             fmt::join(timed, ", "), differ),
           d.files());
}

void put_pcie(Draft& d, const std::string& best) {
  const int sockets = sockets_of(d);
  const int per_socket = d.gpus / sockets;
  const int per_switch = gpus_per_switch(d, per_socket);
  double part = 1;
  const std::string name = put_pcie_rate(d, best, part);
  const TransportSpec transport = d.catalog.transport(name, "intra");
  tell_unmeasured(d);
  d.document.put_sockets(d.numbers.counted(
      sockets, d.layout ? to_string(d.layout->place) : std::string("assumed: not said")));
  // A socket passes what 1.5 slots can, or the switches' uplinks, if they are fewer.
  const double spread = is_all_to_all_timed(d) ? 0.2 : 0.5;  // what all of them pass is measured
  const double slots = per_switch > 1 ? std::min(1.5, 0.8 * per_socket / per_switch) : 1.5;
  d.document.put_host_bridge(d.numbers.assumed(
      transport.rate->value.value() * part * slots / 1e9, "GB/s",
      per_switch > 1 ? "uplinks of the PCIe switches of a socket, 0.8 of a slot each"
                     : "1.5 slots a socket, as four concurrent ring hops show (arXiv:2405.07719)",
      spread));
  if (sockets > 1) {
    const auto known = socket_link_of(d.facts);
    d.document.put_socket_link(
        known ? d.numbers.quantity(known->first.value() / 1e9, "GB/s", known->second,
                                   std::min(0.3, spread))
              : d.numbers.assumed(usual_socket_link(d.gpu, name).value() / 1e9, "GB/s",
                                  "the CPU is not said; between Xeons of the GPU's time (NCCL "
                                  "2.28.9 src/graph/topo.h)",
                                  spread));
  }
  if (per_switch > 1) {
    d.document.put_gpus_per_pcie_switch(d.numbers.counted(per_switch, to_string(d.layout->place)));
  }
}

void put_nvlink_of_gpu(Draft& d, const std::string& why) {
  const TransportSpec own = d.catalog.transport(d.gpu.intra, "gpu");
  d.document.put_intra(own.name, "nvlink");
  const bool holes = is_mesh_with_holes(d.gpu, d.gpus);
  if (holes) {
    d.document.put_intra_spread(mesh_with_holes_spread);
  }
  d.assume("intra",
           fmt::format("{}, as boards of {} have it: {}{}", own.name, d.gpu.name, why,
                       holes ? fmt::format("; not every pair has NVLinks, so only within {:.0f} %",
                                           100 * mesh_with_holes_spread)
                             : ""),
           fmt::format("topologies/gpus/{}.json", d.gpu.name));
}

}  // namespace

void put_inside(Draft& d) {
  const bool own_nvlink = d.catalog.transport(d.gpu.intra, "gpu").medium == "nvlink";
  const bool table = d.layout && d.layout->origin == smi_topo_origin;
  const auto put_one_socket = [&] {  // NVLink goes past sockets and bridges
    d.document.put_sockets(d.numbers.counted(1, "not needed: NVLink goes past sockets"));
  };
  if (d.gpus == 1) {
    if (own_nvlink) {
      put_nvlink_of_gpu(d, "a node of one GPU does not use it");
      put_one_socket();
    } else {
      put_pcie(d, d.gpu.pcie);
    }
    return;
  }
  std::optional<Nvlinks> links;
  if (d.layout) {
    links = nvlinks_of(*d.layout);
  }
  if (links && links->groups == 1) {
    put_nvlink(d, *links);
    put_one_socket();
    return;
  }
  const bool some = links && links->groups < d.gpus;
  if (!some && own_nvlink && !table) {
    put_nvlink_of_gpu(d, "no file shows the NVLinks (clouds and virtual machines hide them)");
    put_one_socket();
    return;
  }
  if (some) {
    d.assume("intra.nvlink",
             fmt::format("not used: NVLinks join the GPUs of {} groups, and a description here has "
                         "one kind of link inside a node; calls inside a group are faster than "
                         "predicted",
                         links->groups),
             to_string(links->place));
  } else if (own_nvlink) {
    d.assume("intra",
             fmt::format("PCIe: the table shows no NVLink, though {} usually has it", d.gpu.name),
             to_string(d.layout->place));
  }
  put_pcie(d, pcie_transport(d));
}

}  // namespace spp::imports
