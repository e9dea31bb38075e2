#include "sim/cluster.hpp"

#include "base/error.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <set>

using namespace spp;
using namespace spp::sim;
using namespace spp::unit_literals;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using spp::test::catalog;
using spp::test::message_of;

namespace {

MachineSpec machine(const std::string& name) { return catalog().machine(name, "test"); }

std::vector<std::string> names(const Cluster& cluster, int from, int to) {
  std::vector<std::string> result;
  const Path path = cluster.path(from, to);
  for (const LinkId id : path.links()) {
    result.push_back(cluster.name_of(cluster.links()[id.index()]));
  }
  return result;
}

using Names = std::vector<std::string>;

/// Eight GPUs on PCIe, two to a switch, four to a socket.
MachineSpec switched() {
  MachineSpec m = machine("8xl40-pcie");
  m.gpus_per_pcie_switch = Sourced<std::int64_t>{.value = 2, .spread = 0, .source = "test"};
  return m;
}

Cluster fat_tree(double oversubscription) {
  MachineSpec m = machine("dgx-h100");
  m.fabric.nodes_per_leaf->value = 2;
  m.fabric.oversubscription.value = oversubscription;
  return {m, 5, 40};
}

bool is_out(LinkKind kind) { return static_cast<int>(kind) % 2 == 0; }

}  // namespace

TEST_CASE("inside a DGX a route is the two NVLink ports") {
  const Cluster dgx(machine("dgx-h100"), 2, 16);
  CHECK(names(dgx, 0, 7) == Names{"node 0 gpu 0 out", "node 0 gpu 7 in"});
  CHECK(names(dgx, 9, 8) == Names{"node 1 gpu 1 out", "node 1 gpu 0 in"});
  CHECK(names(dgx, 3, 3).empty());
  CHECK(dgx.scope(3, 3) == Scope::self);
  CHECK(dgx.scope(0, 7) == Scope::intra);
  CHECK(dgx.scope(7, 8) == Scope::inter);
}

TEST_CASE("between two DGX a route is the two GPUs' own NICs") {
  const Cluster dgx(machine("dgx-h100"), 2, 16);
  CHECK(names(dgx, 3, 12) == Names{"node 0 nic 3 out", "node 1 nic 4 in"});
  CHECK(dgx.path(3, 12).scope == Scope::inter);
  CHECK(dgx.gpus_per_nic() == 1);
  CHECK(dgx.nominal_rate(Scope::inter) == 50.0_GBps);
  CHECK(dgx.transport(Scope::inter).name == "ib");
  CHECK(dgx.transport(Scope::intra).name == "nvlink4");
}

TEST_CASE("a link carries the nominal rate times the best share of it") {
  // nvlink4: the best of its segments is 0.825 (all-gather) of 450 GB/s; ib: 0.92 of 50 GB/s.
  const Cluster dgx(machine("dgx-h100"), 2, 16);
  CHECK(dgx.links()[dgx.link(LinkKind::gpu_out, 0).index()].capacity.value() ==
        Approx(0.825 * 450e9));
  CHECK(dgx.links()[dgx.link(LinkKind::nic_in, 0).index()].capacity.value() == Approx(0.92 * 50e9));
}

TEST_CASE("GPUs that share a NIC share its links") {
  const Cluster p4d(machine("p4d"), 2, 16);  // 4 NICs of 2 GPUs each
  CHECK(names(p4d, 0, 15) == Names{"node 0 nic 0 out", "node 1 nic 3 in"});
  CHECK(p4d.link(LinkKind::nic_out, 0) == p4d.link(LinkKind::nic_out, 1));
  CHECK(p4d.link(LinkKind::nic_out, 1) != p4d.link(LinkKind::nic_out, 2));
  CHECK(p4d.block(LinkKind::nic_out, 9) == 4);
  CHECK(p4d.nominal_rate(Scope::inter) == 12.5_GBps);  // whole, even when shared
}

TEST_CASE("PCIe routes pass host bridges, and sockets where they must") {
  const Cluster l20(machine("8xl20-pcie"), 1, 8);
  CHECK(names(l20, 0, 1) ==
        Names{"node 0 gpu 0 out", "node 0 bridge 0 out", "node 0 bridge 0 in", "node 0 gpu 1 in"});
  CHECK(names(l20, 3, 4) == Names{"node 0 gpu 3 out", "node 0 bridge 0 out", "node 0 socket 0 out",
                                  "node 0 socket 1 in", "node 0 bridge 1 in", "node 0 gpu 4 in"});
  CHECK(l20.links()[l20.link(LinkKind::bridge_out, 5).index()].capacity == 46.0_GBps);
  CHECK(l20.links()[l20.link(LinkKind::socket_in, 5).index()].capacity == 22.0_GBps);
  CHECK_FALSE(l20.link(LinkKind::nic_out, 0).valid());
  CHECK_FALSE(l20.link(LinkKind::switch_out, 0).valid());
}

TEST_CASE("GPUs under one PCIe switch do not pass the host bridge") {
  const Cluster cluster(switched(), 2, 16);
  CHECK(names(cluster, 0, 1) == Names{"node 0 gpu 0 out", "node 0 gpu 1 in"});
  CHECK(names(cluster, 1, 2) == Names{"node 0 gpu 1 out", "node 0 pcie switch 0 out",
                                      "node 0 bridge 0 out", "node 0 bridge 0 in",
                                      "node 0 pcie switch 1 in", "node 0 gpu 2 in"});
  CHECK(names(cluster, 9, 14) == Names{"node 1 gpu 1 out", "node 1 pcie switch 0 out",
                                       "node 1 bridge 0 out", "node 1 socket 0 out",
                                       "node 1 socket 1 in", "node 1 bridge 1 in",
                                       "node 1 pcie switch 3 in", "node 1 gpu 6 in"});
}

TEST_CASE("a PCIe GPU reaches the network through its slot") {
  const Cluster cluster(switched(), 2, 16);  // one NIC for eight GPUs
  CHECK(names(cluster, 2, 13) ==
        Names{"node 0 gpu 2 out", "node 0 nic 0 out", "node 1 nic 0 in", "node 1 gpu 5 in"});
}

TEST_CASE("an oversubscribed fat tree has uplinks between its leaves") {
  // Two nodes to a leaf: 16 NICs of 0.92 * 50 GB/s; 2:1 leaves half of it for the way up.
  const Cluster tree = fat_tree(2);
  CHECK(names(tree, 0, 8) == Names{"node 0 nic 0 out", "node 1 nic 0 in"});
  CHECK(names(tree, 0, 39) ==
        Names{"node 0 nic 0 out", "leaf 0 out", "leaf 2 in", "node 4 nic 7 in"});
  const Link& up = tree.links()[tree.link(LinkKind::leaf_out, 17).index()];
  CHECK(up.capacity.value() == Approx(16 * 0.92 * 50e9 / 2));
  CHECK(up.first_gpu == 16);
  CHECK(tree.block(LinkKind::leaf_in, 39) == 2);
}

TEST_CASE("a full fat tree needs no uplinks") {
  const Cluster tree = fat_tree(1);
  CHECK(names(tree, 0, 39) == Names{"node 0 nic 0 out", "node 4 nic 7 in"});
  CHECK_FALSE(tree.link(LinkKind::leaf_out, 0).valid());
}

TEST_CASE("the last node may be used in part") {
  const Cluster dgx(machine("dgx-h100"), 3, 17);
  CHECK(dgx.gpus() == 17);
  CHECK(names(dgx, 15, 16) == Names{"node 1 nic 7 out", "node 2 nic 0 in"});
  const auto of_kind = [&](LinkKind kind) {
    return std::count_if(dgx.links().begin(), dgx.links().end(),
                         [kind](const Link& l) { return l.kind == kind; });
  };
  CHECK(of_kind(LinkKind::gpu_out) == 17);
  CHECK(of_kind(LinkKind::nic_in) == 17);
}

TEST_CASE("every machine connects every pair of its GPUs") {
  std::vector<MachineSpec> machines{switched()};
  for (const std::string& name : catalog().machine_names()) {
    machines.push_back(machine(name));
  }
  for (const MachineSpec& spec : machines) {
    for (const int nodes : {1, 2}) {
      if (nodes > 1 && !spec.inter) {
        continue;
      }
      INFO(spec.name << ", " << nodes << " nodes");
      const Cluster cluster(spec, nodes, nodes * static_cast<int>(spec.gpus_per_node.value));
      for (int from = 0; from < cluster.gpus(); ++from) {
        for (int to = 0; to < cluster.gpus(); ++to) {
          const Path path = cluster.path(from, to);
          REQUIRE(path.links().empty() == (from == to));
          std::set<LinkId> seen;
          bool down = false;
          for (const LinkId id : path.links()) {
            REQUIRE(id.index() < cluster.links().size());
            const Link& link = cluster.links()[id.index()];
            REQUIRE(link.capacity > Bandwidth(0));
            REQUIRE(seen.insert(id).second);        // no link twice
            REQUIRE(!(down && is_out(link.kind)));  // up, then down
            down = !is_out(link.kind);
            REQUIRE(id == cluster.link(link.kind, down ? to : from));
          }
        }
      }
    }
  }
}

TEST_CASE("links of one kind have one capacity, and know their first GPU") {
  for (const std::string& name : catalog().machine_names()) {
    const MachineSpec spec = machine(name);
    const Cluster cluster(spec, 1, static_cast<int>(spec.gpus_per_node.value));
    std::set<std::string> link_names;
    for (std::size_t i = 0; i < cluster.links().size(); ++i) {
      const Link& link = cluster.links()[i];
      CHECK(link_names.insert(cluster.name_of(link)).second);
      CHECK(cluster.link(link.kind, link.first_gpu) == LinkId(i));
      CHECK(link.capacity == cluster.links()[cluster.link(link.kind, 0).index()].capacity);
    }
  }
}

TEST_CASE("a cluster that cannot be is refused") {
  const auto error = [](const MachineSpec& spec, int nodes, int gpus) {
    return message_of<InputError>([&] { Cluster(spec, nodes, gpus); });
  };
  const MachineSpec dgx = machine("dgx-h100");
  CHECK_THAT(error(dgx, 0, 8), StartsWith("dgx-h100: 0 nodes is out of range (1 to 131072 nodes"));
  CHECK_THAT(error(dgx, 131073, 8), ContainsSubstring("131073 nodes is out of range"));
  CHECK_THAT(error(dgx, 2, 17),
             StartsWith("dgx-h100: 17 GPUs is out of range (2 nodes have 1 to 16)"));
  CHECK_THAT(error(dgx, 2, 0), ContainsSubstring("0 GPUs is out of range"));
  CHECK_THAT(error(machine("8xl20-pcie"), 2, 16), ContainsSubstring("has no network"));
  MachineSpec odd = dgx;
  odd.inter->gpus_per_nic.value = 3;
  CHECK_THAT(error(odd, 2, 16), StartsWith("dgx-h100: inter.nics: 8 NICs x 3 GPUs per NIC is 24"));
}

TEST_CASE("every kind of link has a name") {
  std::set<std::string_view> seen;
  for (std::size_t k = 0; k < link_kinds; ++k) {
    CHECK(seen.insert(to_string(static_cast<LinkKind>(k))).second);
  }
}
