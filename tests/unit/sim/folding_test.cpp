// Which ranks stand for which, by hand on small clusters.
#include "sim/folding.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/worlds.hpp"

using namespace spp;
using namespace spp::sim;
using test::PlainMachine;

namespace {

std::vector<int> values(std::span<const Rank> ranks) {
  std::vector<int> list;
  for (const Rank r : ranks) {
    list.push_back(r.value);
  }
  return list;
}

struct World {
  Cluster cluster;
  Placement placement;
  Schedule schedule;
  Folding folding;

  World(const PlainMachine& plain, int nodes, const Schedule& s, RankOrder order = RankOrder::block)
      : World(plain, nodes, s.mesh.size(), s, order) {}
  World(const PlainMachine& plain, int nodes, int ranks, Schedule s, RankOrder order)
      : cluster(test::machine(plain), nodes,
                order == RankOrder::cyclic ? nodes * plain.gpus_per_node : ranks),
        placement(cluster, ranks, order),
        schedule(std::move(s)),
        folding(Folding::largest(schedule, placement)) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] LinkId link(LinkKind kind, int gpu) const { return cluster.link(kind, gpu); }
  /// Links in the class of the link of a kind that a GPU has.
  [[nodiscard]] int alike(LinkKind kind, int gpu) const {
    return folding.links_in_class(folding.link_class(link(kind, gpu)));
  }
};

Schedule ring(int ranks) { return test::ring_of_steps({.ranks = ranks}); }

}  // namespace

TEST_CASE("in one node one rank stands for the whole ring") {
  const World w({.gpus_per_node = 4}, 1, ring(4));
  CHECK(w.folding.size() == 4);
  CHECK(values(w.folding.representatives()) == std::vector{0});
  CHECK(w.folding.class_of(Rank(3)) == 0);
  // Moving rank 2 onto rank 0 moves its neighbour 3 onto 1, and 1 onto 3.
  CHECK(w.folding.image(Rank(3), Rank(2)) == Rank(1));
  CHECK(w.folding.image(Rank(1), Rank(2)) == Rank(3));
  // One class of 4 ports; a route that crosses one of them loads it with 4 * 1/4 = 1 of its flow.
  CHECK(w.alike(LinkKind::gpu_out, 2) == 4);
  CHECK(w.folding.link_class(w.link(LinkKind::gpu_out, 3)) == w.link(LinkKind::gpu_out, 0));
  CHECK(w.folding.link_class(w.link(LinkKind::gpu_in, 3)) == w.link(LinkKind::gpu_in, 0));
}

TEST_CASE("across nodes a ring is turned by whole nodes") {
  const World w({.gpus_per_node = 4}, 2, ring(8));
  CHECK(w.folding.size() == 2);
  CHECK(values(w.folding.representatives()) == std::vector{0, 1, 2, 3});
  CHECK(w.folding.class_of(Rank(6)) == 2);
  CHECK(w.folding.image(Rank(0), Rank(7)) == Rank(4));
  CHECK(w.alike(LinkKind::nic_out, 1) == 2);
  CHECK(w.folding.link_class(w.link(LinkKind::nic_out, 1)) !=
        w.folding.link_class(w.link(LinkKind::nic_out, 2)));
}

// Ranks 0, 2, 4, 6 are in node 0: a turn by one maps node 0 onto node 1. One rank stands for 8, but
// there are only 2 NICs each way: a flow across loads its NIC with 8 * 1/2 = 4 of itself, as the
// four that share it do.
TEST_CASE("dealt out in turn, a ring folds into one rank and its NIC carries four times its flow") {
  const World w(test::oracle_machine(), 2, ring(8), RankOrder::cyclic);
  CHECK(w.folding.size() == 8);
  CHECK(w.alike(LinkKind::nic_out, 0) == 2);
  CHECK(w.alike(LinkKind::gpu_out, 0) == 8);
}

TEST_CASE("GPUs that share a NIC stay different from each other") {
  const World w({.gpus_per_node = 4, .gpus_per_nic = 2}, 2, ring(8));
  CHECK(w.folding.size() == 2);
  CHECK(w.folding.link_class(w.link(LinkKind::nic_out, 0)) ==
        w.folding.link_class(w.link(LinkKind::nic_out, 5)));
  CHECK(w.folding.link_class(w.link(LinkKind::nic_out, 0)) !=
        w.folding.link_class(w.link(LinkKind::nic_out, 2)));
}

// Nodes of one GPU, leaves {0, 1} and {2, 3}. A turn by one maps leaf {0, 1} onto {1, 2}: no leaf.
TEST_CASE("a turn that does not map leaves onto leaves is refused") {
  const World w({.gpus_per_node = 1, .nodes_per_leaf = 2, .oversubscription = 2}, 4, ring(4));
  CHECK(w.folding.size() == 2);
  CHECK(values(w.folding.representatives()) == std::vector{0, 1});
  CHECK(w.alike(LinkKind::leaf_out, 0) == 2);
}

// 6 ranks on nodes of 4 lie as {0..3}, {4, 5}: neither a turn by 2 nor by 3 maps the one onto the
// other.
TEST_CASE("a turn that does not map nodes onto nodes is refused") {
  const World w({.gpus_per_node = 4}, 2, ring(6));
  CHECK(w.folding.size() == 1);
  CHECK(w.folding.representatives().size() == 6);
}

TEST_CASE("PCIe switches and sockets must map onto each other, too") {
  const World w(
      {.gpus_per_node = 4, .sockets = 2, .bridge = Bandwidth(20e9), .socket_link = Bandwidth(20e9)},
      1, ring(4));
  CHECK(w.folding.size() == 2);
  CHECK(w.alike(LinkKind::bridge_out, 3) == 2);
}

// Within a node and over the nodes: u = low + 4 * high, both digits turn by ones. Moving rank 6
// (low 2, high 1) onto rank 0 moves rank 1 (low 1, high 0) onto low 3, high 1.
TEST_CASE("an all-to-all folds along its own axis, across nodes in both digits") {
  const World one({.gpus_per_node = 4}, 1, test::one_all_to_all(4, 1));
  CHECK(one.folding.size() == 4);
  const World two({.gpus_per_node = 4}, 2, test::one_all_to_all(8, 1));
  CHECK(two.folding.size() == 8);
  CHECK(values(two.folding.representatives()) == std::vector{0});
  CHECK(two.folding.image(Rank(1), Rank(6)) == Rank(7));
  CHECK(two.alike(LinkKind::nic_out, 1) == 8);
}

TEST_CASE("both axes fold together") {
  Schedule s = ring(4);
  s.mesh = Mesh({{.name = "ulysses", .size = 2}, {.name = "ring", .size = 2}});
  s.symmetry = {{.axis = "ulysses", .under = AxisMoves::permutations},
                {.axis = "ring", .under = AxisMoves::rotations}};
  const World w({.gpus_per_node = 4}, 1, s);
  CHECK(w.folding.size() == 4);
  CHECK(values(w.folding.representatives()) == std::vector{0});
  CHECK(w.folding.image(Rank(0), Rank(3)) == Rank(3));  // (u, p): (0,0) moved by (-1,-1) is (1,1)
}

TEST_CASE("without a claimed symmetry nothing folds") {
  Schedule s = ring(4);
  s.symmetry = {};
  const World w({.gpus_per_node = 4}, 1, s);
  CHECK(w.folding.size() == 1);
  CHECK(w.alike(LinkKind::gpu_out, 0) == 1);
}

TEST_CASE("Folding::none keeps every rank") {
  const World w({.gpus_per_node = 4}, 1, ring(4));
  const Folding none = Folding::none(w.schedule, w.placement);
  CHECK(none.size() == 1);
  CHECK(none.representatives().size() == 4);
  CHECK(none.image(Rank(3), Rank(2)) == Rank(3));
}
