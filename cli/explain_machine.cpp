#include "cli/explain_machine.hpp"

#include "cli/human.hpp"
#include "sim/cluster.hpp"

#include <algorithm>

namespace spp::cli {
namespace {

using sim::Cluster;
using sim::Link;
using sim::LinkKind;

std::string_view word_for(LinkKind kind, bool pcie) {
  switch (kind) {
    case LinkKind::gpu_out:
    case LinkKind::gpu_in:
      return pcie ? "PCIe slot" : "NVLink port";
    case LinkKind::switch_out:
    case LinkKind::switch_in:
      return "uplink of a PCIe switch";
    case LinkKind::bridge_out:
    case LinkKind::bridge_in:
      return "host bridge";
    case LinkKind::socket_out:
    case LinkKind::socket_in:
      return "link between sockets";
    case LinkKind::nic_out:
    case LinkKind::nic_in:
      return "network adapter";
    case LinkKind::leaf_out:
    case LinkKind::leaf_in:
      return "uplinks of a leaf switch";
    case LinkKind::cores:
      return "cores";
    case LinkKind::memory:
      return "memory of a GPU";
  }
  return "link";
}

/// Blocks of equal size: "GPUs 0 to 3, 4 to 7".
std::string blocks_of(int gpus, int size) {
  constexpr int most = 8;
  std::string text = "GPUs ";
  int shown = 0;
  for (int first = 0; first < gpus; first += size) {
    if (shown++ == most) {
      return text + ", …";
    }
    text += shown == 1 ? "" : ", ";
    text += size == 1   ? fmt::format("{}", first)
            : size == 2 ? fmt::format("{} and {}", first, first + 1)
                        : fmt::format("{} to {}", first, first + size - 1);
  }
  return text;
}

constexpr Bytes large{std::int64_t{1} << 30};  // a message that shows the rate

class Explainer {
 public:
  explicit Explainer(const MachineSpec& machine)
      : m_(machine),
        n_(static_cast<int>(machine.gpus_per_node.value)),
        nodes_(machine.inter && machine.intra.medium != "host" ? 2 : 1),
        cluster_(machine, nodes_, nodes_ * n_),
        pcie_(machine.intra.medium == "pcie") {}

  Explanation all() {
    sharing();
    if (n_ > 1) {
      hop("A ring's hop inside a node, GPU 0 to GPU 1", 0, 1);
      if (pcie_ && m_.sockets.value > 1) {
        const int last = n_ / static_cast<int>(m_.sockets.value) - 1;
        hop(fmt::format("The ring's hop across sockets, GPU {} to GPU {}", last, last + 1), last,
            last + 1);
      }
      all_to_all();
    }
    if (nodes_ > 1) {
      hop(fmt::format("A hop between nodes, GPU {} to GPU 0 of the next", n_ - 1), n_ - 1, n_);
      network();
    } else {
      say("It has no network: one node only (--inter, or inter in the file, gives it one).");
    }
    draw();
    return std::move(out_);
  }

 private:
  void say(std::string sentence) { out_.sentences.push_back(std::move(sentence)); }

  void sharing() {
    say(fmt::format("A node has {} {}, joined by {} ({} a GPU and direction).", n_, m_.gpu.name,
                    m_.intra.name, human(m_.intra_rate)));
    if (!pcie_) {
      if (n_ > 1 && m_.intra.name.find("-mesh") != std::string::npos) {
        say("There are no switches between them: a message to one GPU uses its share of the "
            "links.");
      } else if (n_ > 1 && m_.intra.medium == "nvlink" && m_.intra_spread > 0) {
        say(fmt::format("Not every pair of GPUs has NVLinks: messages only within {:.0f} %.",
                        100 * m_.intra_spread));
      } else if (n_ > 1 && m_.intra.medium == "nvlink") {
        say("Every GPU reaches every other at the full rate; no GPUs share a link.");
      }
      return;
    }
    const int per_socket = n_ / static_cast<int>(m_.sockets.value);
    const int per_switch =
        m_.gpus_per_pcie_switch ? static_cast<int>(m_.gpus_per_pcie_switch->value) : 1;
    if (per_switch > 1) {
      say(fmt::format("A PCIe switch joins {}; each switch has one uplink.",
                      blocks_of(n_, per_switch)));
    } else {
      say("No GPUs share a PCIe switch: each has a root port of its own.");
    }
    say(fmt::format("A host bridge ({}) is shared by {}.", human(m_.host_bridge->value),
                    blocks_of(n_, per_socket)));
  }

  /// The narrowest link of a path.
  [[nodiscard]] const Link& narrowest(const sim::Path& path) const {
    const auto links = path.links();
    return cluster_.links()[(*std::ranges::min_element(links, {}, [&](LinkId id) {
                              return cluster_.links()[id.index()].capacity;
                            })).index()];
  }

  void hop(const std::string& what, int from, int to) {
    const sim::Path path = cluster_.path(from, to);
    std::vector<std::string_view> words;
    for (const LinkId id : path.links()) {
      words.push_back(word_for(cluster_.links()[id.index()].kind, pcie_));
    }
    const bool inside = path.scope == sim::Scope::intra;
    const TransportSpec& transport = cluster_.transport(path.scope);
    const MessageCost cost =
        transport.cost(CommKind::send_recv, large, cluster_.nominal_rate(path.scope));
    const Link& least = narrowest(path);
    say(fmt::format("{}: {}; {} alone{}.", what, fmt::join(words, " > "),
                    human(std::min(cost.rate, least.capacity)),
                    inside && m_.intra_spread > 0
                        ? fmt::format(", within {:.0f} %", 100 * m_.intra_spread)
                        : ""));
  }

  /// Of one byte from every GPU to every other, the link that takes longest.
  void all_to_all() {
    std::vector<double> load(cluster_.links().size());
    for (int from = 0; from < n_; ++from) {
      for (int to = 0; to < n_; ++to) {
        const sim::Path path = cluster_.path(from, to);
        for (const LinkId id : path.links()) {
          load[id.index()] += 1.0 / (n_ - 1);
        }
      }
    }
    std::size_t slowest = 0;
    for (std::size_t i = 0; i < load.size(); ++i) {
      const auto seconds = [&](std::size_t l) {
        return load[l] / cluster_.links()[l].capacity.value();
      };
      slowest = seconds(i) > seconds(slowest) ? i : slowest;
    }
    const Link& link = cluster_.links()[slowest];
    const Bandwidth by_links(link.capacity.value() / load[slowest]);
    const Bandwidth by_transport = m_.intra.cost(CommKind::all_to_all, large, m_.intra_rate).rate *
                                   m_.intra.all_to_all_factor(n_);
    if (by_links < by_transport) {
      say(fmt::format(
          "An all-to-all of the node waits for the {} ({}, over which {:.3g} times "
          "what a GPU sends goes): {} a GPU.",
          word_for(link.kind, pcie_), human(link.capacity), load[slowest], human(by_links)));
    } else if (pcie_) {
      say(fmt::format(
          "An all-to-all of the node reaches {} a GPU ({}); the links above would pass {}.",
          human(by_transport), m_.intra.segment(CommKind::all_to_all, large).fraction.source,
          human(by_links)));
    } else {
      say(fmt::format("An all-to-all of the node waits for each GPU's own links: {} a GPU.",
                      human(by_transport)));
    }
  }

  void network() {
    const InterSpec& inter = *m_.inter;
    const auto share = static_cast<double>(inter.gpus_per_nic.value);
    say(fmt::format(
        "Between nodes: {} x {:.0f} Gb/s of {}, {}; an all-to-all between nodes has {} a "
        "GPU at most.",
        inter.nics.value, inter.rate_per_nic.value.value() * 8e-9, inter.transport.name,
        share > 1 ? fmt::format("each shared by {:.0f} GPUs", share)
                  : std::string("one for each GPU"),
        human(Bandwidth(inter.rate().value() * inter.transport.best_fraction() / share))));
    if (m_.fabric.nodes_per_leaf) {
      say(fmt::format("{} nodes hang on a leaf switch, oversubscription {}.",
                      m_.fabric.nodes_per_leaf->value, m_.fabric.oversubscription.value));
    }
  }

  /// Rows of what GPUs share, from the outside to the GPUs.
  void draw() {
    constexpr int most = 16;
    const int shown = std::min(n_, most);
    constexpr int cell = 4;
    const auto row = [&](int size, const std::string& name) {
      std::string line;
      for (int first = 0; first < shown; first += size) {
        const auto width = static_cast<std::size_t>(std::min(size, shown - first) * cell);
        if (width == cell) {
          line += fmt::format("{:^4}", shortened(name, 3));
          continue;
        }
        const std::string text = shortened(name, width - 3);
        const std::size_t free = width - 2 - width_of(text);
        line += "[" + std::string(free / 2, '-') + text + std::string(free - free / 2, '-') + "]";
      }
      out_.drawing.push_back(line);
    };
    if (nodes_ > 1) {
      row(static_cast<int>(m_.inter->gpus_per_nic.value), "nic");
    }
    if (pcie_) {
      if (m_.sockets.value > 1) {
        row(n_, "link between sockets");
      }
      row(n_ / static_cast<int>(m_.sockets.value), "host bridge");
      if (m_.gpus_per_pcie_switch) {
        row(static_cast<int>(m_.gpus_per_pcie_switch->value), "switch");
      }
    } else if (n_ > 1) {
      row(n_, m_.intra.name);
    }
    std::string gpus;
    for (int g = 0; g < shown; ++g) {
      gpus += fmt::format("{:^4}", g);
    }
    out_.drawing.push_back(gpus + (shown < n_ ? "…" : ""));
  }

  const MachineSpec& m_;
  int n_;
  int nodes_;
  Cluster cluster_;
  bool pcie_;
  Explanation out_;
};

}  // namespace

Explanation explain(const MachineSpec& machine) { return Explainer(machine).all(); }

}  // namespace spp::cli
