#include "sim/thinned.hpp"

#include "base/error.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

sim::Cluster whole(const std::string& machine, int nodes) {
  const Catalog& catalog = test::catalog();
  MachineSpec spec = catalog.machine(machine, "test");
  const int gpus = nodes * static_cast<int>(spec.gpus_per_node.value);
  return {std::move(spec), nodes, gpus};
}

double network_of_a_gpu(const sim::Cluster& cluster) {
  return cluster.nominal_rate(sim::Scope::inter).value() / cluster.gpus_per_nic();
}

}  // namespace

TEST_CASE("every second GPU keeps its port and its card") {
  const sim::Cluster cluster = whole("dgx-h100", 4);
  const sim::Cluster half = sim::thinned(cluster, 2, 16);
  CHECK(half.gpus_per_node() == 4);
  CHECK(half.nodes() == 4);
  CHECK(half.gpus() == 16);
  CHECK(half.nominal_rate(sim::Scope::intra) == cluster.nominal_rate(sim::Scope::intra));
  CHECK_THAT(network_of_a_gpu(half), WithinRel(network_of_a_gpu(cluster)));
}

TEST_CASE("a stride of a node or more leaves a GPU a node, with its part of the network") {
  const sim::Cluster cluster = whole("dgx-h100", 4);
  for (const int stride : {8, 16}) {
    const sim::Cluster one = sim::thinned(cluster, stride, 2);
    CHECK(one.gpus_per_node() == 1);
    CHECK(one.nodes() == 2);
    CHECK_THAT(network_of_a_gpu(one), WithinRel(network_of_a_gpu(cluster)));
  }
}

TEST_CASE("what GPUs share is divided between the groups") {
  const sim::Cluster cluster = whole("8xl20-pcie", 1);
  const sim::Cluster half = sim::thinned(cluster, 2, 4);
  CHECK(half.gpus_per_node() == 4);
  REQUIRE(half.machine().host_bridge);
  CHECK_THAT(half.machine().host_bridge->value.value(),
             WithinRel(cluster.machine().host_bridge->value.value() / 2));
}

TEST_CASE("GPUs of a node have their part of all its cards, of how many it may be") {
  MachineSpec three = whole("p4d", 1).machine();  // eight GPUs
  const double rate = three.inter->rate().value() * static_cast<double>(three.inter->nics.value);
  three.inter->rate_per_nic.value = Bandwidth(rate / 2);
  three.inter->nics.value = 2;
  three.inter->gpus_per_nic.value = 4;
  const InterSpec part = *sim::part_of_node(three, 6).inter;
  CHECK_THAT(part.rate().value() * static_cast<double>(part.nics.value), WithinRel(rate * 6 / 8));
}

TEST_CASE("a stride of one is the cluster itself") {
  const sim::Cluster cluster = whole("p4d", 2);
  const sim::Cluster same = sim::thinned(cluster, 1, 16);
  CHECK(same.gpus_per_node() == cluster.gpus_per_node());
  CHECK(same.machine().inter->nics.value == cluster.machine().inter->nics.value);
  CHECK_THAT(network_of_a_gpu(same), WithinRel(network_of_a_gpu(cluster)));
}

TEST_CASE("a part of a rack's NVLink domain has its own sockets and cards") {
  const Catalog& catalog = test::catalog();
  const MachineSpec rack = catalog.machine("gb200-nvl72", "test");
  const auto part = sim::part_of_domain(rack, 64);
  REQUIRE(part.has_value());
  const sim::Cluster two(*part, 2, 128);
  CHECK(two.gpus_per_node() == 64);
  CHECK(two.scope(63, 64) == sim::Scope::inter);
  CHECK_THAT(network_of_a_gpu(two), WithinRel(network_of_a_gpu(whole("gb200-nvl72", 2))));
  CHECK_FALSE(sim::part_of_domain(rack, 72).has_value());
  CHECK_FALSE(sim::part_of_domain(rack, 63).has_value());  // of 36 sockets
  CHECK_FALSE(sim::part_of_domain(catalog.machine("dgx-h100", "test"), 6).has_value());
}

TEST_CASE("groups that do not divide a rack's NVLink domain are taken as one that lies in two") {
  const sim::Cluster racks = whole("gb200-nvl72", 2);
  const sim::Cluster cut = sim::thinned(racks, 1, 16);  // 64 to 79
  CHECK(cut.nodes() == 2);
  CHECK(cut.gpus_per_node() == 8);
  CHECK(cut.scope(7, 8) == sim::Scope::inter);
  CHECK_THAT(network_of_a_gpu(cut), WithinRel(network_of_a_gpu(racks)));
  CHECK(sim::thinned(racks, 1, 18).nodes() == 1);
  CHECK(sim::thinned(racks, 2, 8).gpus_per_node() == 4);  // every second of these
  CHECK(sim::thinned(whole("gb200-nvl72", 1), 1, 16).nodes() == 1);
}

TEST_CASE("groups that do not divide a node are taken as one that lies in two") {
  const sim::Cluster nodes = whole("dgx-h100", 3);
  const sim::Cluster cut = sim::thinned(nodes, 1, 6);  // 6 and 7, 8 to 11
  CHECK(cut.nodes() == 2);
  CHECK(cut.gpus_per_node() == 4);
  CHECK(cut.scope(3, 4) == sim::Scope::inter);
  CHECK_THAT(network_of_a_gpu(cut), WithinRel(network_of_a_gpu(nodes)));
  CHECK(sim::thinned(nodes, 1, 4).gpus_per_node() == 8);
  CHECK(sim::thinned(whole("dgx-h100", 1), 1, 6).gpus_per_node() == 8);
  CHECK(sim::thinned(nodes, 2, 3).gpus_per_node() == 2);  // every second of these
  // A card and a bridge that GPUs share: their part of it.
  const sim::Cluster shared =
      sim::thinned(whole("cloud-a100-ethernet", 2), 1, 5);  // 5 to 7, 8 and 9
  CHECK(shared.gpus_per_node() == 3);
  CHECK_THAT(network_of_a_gpu(shared),
             WithinRel(network_of_a_gpu(whole("cloud-a100-ethernet", 2))));
}
