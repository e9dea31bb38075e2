// NCCL's topology as XML (NCCL_TOPO_DUMP_FILE, or what clouds ship for NCCL_TOPO_FILE): CPUs, below
// them PCI devices, GPUs with their NVLinks, network adapters.
//
// What clouds ship often lacks GPUs (a PCI device of class 0x03… is one), NVLinks and rates, and
// has widths of 0; in virtual machines the other end of an NVLink may be hidden.
#include "base/error.hpp"
#include "base/parse.hpp"
#include "machine/import/format.hpp"
#include "machine/import/xml.hpp"

#include <algorithm>
#include <iterator>

namespace spp::imports::formats::nccl_xml {
namespace {

constexpr std::string_view origin = "NCCL's topology XML";

struct NvlinkFact {
  std::string target;  // bus
  int count = 0;
  bool to_switch = false;
};

/// A GPU or a network adapter where it hangs.
struct Device {
  std::string name;  // of an adapter
  std::string bus;
  std::vector<std::string> above;  // PCI switches, the nearest last
  std::size_t cpu = 0;
  std::vector<NvlinkFact> nvlinks;
  Place place;
  std::optional<Bandwidth> slot;  // of an adapter: what its link passes
};

struct Found {
  std::vector<Device> gpus, cards;
  std::vector<std::string> numa;  // by CPU
  std::vector<CardFact> rates;
  std::vector<GpuFact> facts;
};

std::string_view attribute(const pugi::xml_node& node, const char* name) {
  return node.attribute(name).value();
}

/// PCI classes: display controllers, network controllers (0x0207: InfiniBand), switches.
bool is_gpu(const pugi::xml_node& pci) {
  const std::string_view pci_class = attribute(pci, "class");
  const std::string_view vendor = attribute(pci, "vendor");
  return pci.child("gpu") ||
         ((pci_class.starts_with("0x0302") || pci_class.starts_with("0x0300")) &&
          (vendor.empty() || vendor == "0x10de"));
}
bool is_card(const pugi::xml_node& pci) {
  const std::string_view pci_class = attribute(pci, "class");
  return pci.child("nic") || pci_class.starts_with("0x0200") || pci_class.starts_with("0x0207");
}

/// "16.0 GT/s PCIe" -> 4.
int generation_of(std::string_view speed) {
  const int rate = leading_int(speed);
  return rate == 8 ? 3 : rate == 16 ? 4 : rate == 32 ? 5 : rate == 64 ? 6 : 0;
}

/// Of PCI Express from 8 GT/s on, 128b/130b.
std::optional<Bandwidth> slot_of(const pugi::xml_node& pci) {
  constexpr double lane_of_generation_3 = 8e9 / 8 * 128 / 130;
  const int generation = generation_of(attribute(pci, "link_speed"));
  const int width = std::clamp(pci.attribute("link_width").as_int(0), 0, 32);
  return generation == 0 || width == 0
             ? std::nullopt
             : std::optional(Bandwidth(lane_of_generation_3 * (1 << (generation - 3)) * width));
}

void add_gpu(const pugi::xml_node& pci, Device device, Found& found) {
  const pugi::xml_node gpu = pci.child("gpu");
  GpuFact fact;
  if (const int dev = gpu.attribute("dev").as_int(-1); dev >= 0) {
    fact.index = dev;
  }
  fact.place = device.place;
  fact.compute_capability = std::clamp(gpu.attribute("sm").as_int(0), 0, 999);
  fact.pcie_generation = generation_of(attribute(pci, "link_speed"));
  fact.pcie_width = std::clamp(pci.attribute("link_width").as_int(0), 0, 32);
  const std::string_view id = attribute(pci, "device");
  if (attribute(pci, "vendor") == "0x10de" && id.starts_with("0x") && id.size() == 6) {
    fact.name = fmt::format("10de:{}", id.substr(2));
  }
  for (const pugi::xml_node link : gpu.children("nvlink")) {
    device.nvlinks.push_back({.target = std::string(attribute(link, "target")),
                              .count = std::clamp(link.attribute("count").as_int(0), 0, 64),
                              .to_switch = attribute(link, "tclass").starts_with("0x0680")});
  }
  found.gpus.push_back(std::move(device));
  found.facts.push_back(std::move(fact));
}

void add_nets(const pugi::xml_node& nic, const Device& device, Found& found) {
  constexpr int most_megabits = 100'000'000;
  for (const pugi::xml_node net : nic.children("net")) {
    if (found.cards.size() > most_gpus_of_host) {
      return;  // refused by who called
    }
    Device card = device;
    card.name = std::string(attribute(net, "name"));
    card.place = device.place;
    const int megabits = net.attribute("speed").as_int(0);
    CardFact fact{.name = card.name,
                  .rate = {},
                  .transport = "",
                  .up = true,
                  .place = card.place,
                  .slot = device.slot};
    if (megabits < 0 || megabits > most_megabits) {
      throw InputError(
          to_string(card.place),
          fmt::format("speed=\"{}\": Mb/s of an adapter, 0 if not known", attribute(net, "speed")));
    }
    if (megabits > 0) {
      fact.rate = bandwidth_from(megabits, "Mb/s", to_string(card.place));
    }
    found.rates.push_back(std::move(fact));
    found.cards.push_back(std::move(card));
  }
}

void add_card(const pugi::xml_node& pci, const Device& device, Found& found) {
  if (pci.child("nic")) {
    for (const pugi::xml_node nic : pci.children("nic")) {
      add_nets(nic, device, found);
    }
    return;
  }
  Device card = device;
  card.name = card.bus;
  const bool efa =
      attribute(pci, "vendor") == "0x1d0f" && attribute(pci, "device").starts_with("0xefa");
  found.rates.push_back({.name = card.name,
                         .rate = {},
                         .transport = efa                                             ? "efa"
                                      : attribute(pci, "class").starts_with("0x0207") ? "ib"
                                                                                      : "",
                         .up = true,
                         .place = card.place,
                         .slot = card.slot});
  found.cards.push_back(std::move(card));
}

void walk(const pugi::xml_node& parent, const Source& source, const Device& at, Found& found) {
  if (at.above.size() > most_xml_levels) {
    throw InputError(to_string(place_of(source, parent)),
                     fmt::format("PCI switches below each other, more than {}", most_xml_levels));
  }
  for (const pugi::xml_node child : parent.children()) {
    const std::string_view name = child.name();
    if (name == "nic") {
      add_nets(child, at, found);  // an adapter whose PCI device is not known
    } else if (name == "pci") {
      Device device = at;
      device.bus = std::string(attribute(child, "busid"));
      device.place = place_of(source, child);
      if (is_gpu(child)) {
        add_gpu(child, std::move(device), found);
      } else if (is_card(child)) {
        device.slot = slot_of(child);
        add_card(child, device, found);
      } else {
        device.above.push_back(device.bus);
        walk(child, source, device, found);
      }
      if (found.gpus.size() > most_gpus_of_host || found.cards.size() > most_gpus_of_host) {
        throw InputError(
            to_string(place_of(source, child)),
            fmt::format("more than {} GPUs, or network adapters, of one host", most_gpus_of_host));
      }
    }
  }
}

Between over_pci(const Device& a, const Device& b) {
  Between between{.way = Way::sys, .nvlinks = 0, .place = a.place};
  if (a.cpu != b.cpu) {
    return between;
  }
  between.way = Way::phb;
  for (std::size_t i = 0; i < std::min(a.above.size(), b.above.size()); ++i) {
    if (a.above[i] != b.above[i]) {
      break;
    }
    const bool last = i + 1 == a.above.size() && i + 1 == b.above.size();
    between.way = last ? Way::pix : Way::pxb;
  }
  return between;
}

/// NVLinks of `a` to `b`, or to the switches that both hang on.
int nvlinks_between(const Device& a, const Device& b) {
  int direct = 0;
  int switched = 0;
  for (const NvlinkFact& link : a.nvlinks) {
    if (link.to_switch) {
      switched += link.count;
    } else if (link.target == b.bus) {
      direct += link.count;
    }
  }
  const bool other_too = std::ranges::any_of(b.nvlinks, &NvlinkFact::to_switch);
  return direct > 0 ? direct : other_too ? switched : 0;
}

void note_hidden(const Found& found, Facts& facts) {
  std::vector<std::string> hidden;
  for (std::size_t g = 0; g < found.gpus.size(); ++g) {
    const Device& gpu = found.gpus[g];
    if (std::ranges::any_of(gpu.nvlinks, [&](const NvlinkFact& link) {
          return !link.to_switch && std::ranges::none_of(found.gpus, [&](const Device& other) {
            return &other != &gpu && other.bus == link.target;
          });
        })) {
      hidden.push_back(fmt::format("GPU {}", g));
    }
  }
  if (!hidden.empty()) {
    facts.notes.push_back({.what = "import.nvlink_hidden",
                           .value = fmt::format("the other ends of NVLinks of {} are hidden "
                                                "(a virtual machine?): these links are not used",
                                                fmt::join(hidden, ", ")),
                           .source = to_string(found.gpus.front().place)});
  }
}

Layout layout_of(const Found& found, const Place& place) {
  const std::size_t n = found.gpus.size();
  Layout layout{
      .place = place, .origin = std::string(origin), .between = {}, .numa = {}, .cards = {}};
  layout.between.assign(n, std::vector<Between>(n));
  for (std::size_t a = 0; a < n; ++a) {
    const Device& gpu = found.gpus[a];
    layout.numa.push_back(found.numa[gpu.cpu]);
    for (std::size_t b = 0; b < n; ++b) {
      if (a == b) {
        continue;
      }
      Between& between = layout.between[a][b] = over_pci(gpu, found.gpus[b]);
      if (const int links = nvlinks_between(gpu, found.gpus[b]); links > 0) {
        between = {.way = Way::nvlink, .nvlinks = links, .place = gpu.place};
      }
    }
  }
  for (const Device& card : found.cards) {
    Card c{.name = card.name, .to = {}};
    for (const Device& gpu : found.gpus) {
      c.to.push_back(over_pci(gpu, card));
    }
    layout.cards.push_back(std::move(c));
  }
  return layout;
}

bool recognises(const Source& source) {
  return source.xml && (source.text.find("<system") != std::string::npos ||
                        source.text.find("<graphs") != std::string::npos);
}

void read(const Source& source, Facts& facts) {
  pugi::xml_document document;
  parse_xml(source, document, Doctype::none);
  if (const pugi::xml_node graphs = document.child("graphs")) {
    throw InputError(to_string(place_of(source, graphs)),
                     "these are NCCL's graphs (NCCL_GRAPH_DUMP_FILE), not the machine: give the "
                     "file of NCCL_TOPO_DUMP_FILE");
  }
  const pugi::xml_node system = document.child("system");
  const Place place = place_of(source, system);
  Found found;
  for (const pugi::xml_node cpu : system.children("cpu")) {
    const std::string_view numa = attribute(cpu, "numaid");
    found.numa.emplace_back(numa.starts_with('-') ? "" : numa);
    const std::string_view arch = attribute(cpu, "arch");
    facts.cpus.push_back({.vendor = std::string(arch == "arm64" ? arch : attribute(cpu, "vendor")),
                          .family = cpu.attribute("familyid").as_int(0),
                          .model = cpu.attribute("modelid").as_int(0),
                          .place = place_of(source, cpu)});
    walk(cpu, source, {.cpu = found.numa.size() - 1, .place = place}, found);
  }
  if (found.numa.size() > most_gpus_of_host) {
    throw InputError(to_string(place), fmt::format("{} CPUs; no host has more than {}",
                                                   found.numa.size(), most_gpus_of_host));
  }
  if (found.numa.empty()) {
    throw InputError(to_string(place), "has no <cpu>, below which NCCL lists what a machine has");
  }
  std::ranges::move(found.rates, std::back_inserter(facts.cards));
  if (found.gpus.empty()) {
    facts.notes.push_back({.what = "import.no_gpus",
                           .value = "this file marks no GPU: only its CPUs and adapters are used",
                           .source = to_string(place)});
    return;
  }
  note_hidden(found, facts);
  facts.counts.push_back(
      {.gpus = static_cast<int>(found.gpus.size()), .origin = std::string(origin), .place = place});
  facts.layouts.push_back(layout_of(found, place));
  std::ranges::move(found.facts, std::back_inserter(facts.gpus));
}

}  // namespace

extern const Format entry{
    .name = "nccl-xml", .title = origin, .recognises = recognises, .read = read};

}  // namespace spp::imports::formats::nccl_xml
