// What communication ops put on the network.
#include "sim/lowering.hpp"

#include "sim/all_reduce.hpp"
#include "sim/thinned.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/worlds.hpp"

#include <cmath>
#include <map>
#include <set>

using namespace spp;
using namespace spp::sim;
using Catch::Approx;
using test::PlainMachine;

namespace {

constexpr std::int64_t block = 4'000'000;  // bytes: 1000 tokens of round_problem
const Problem problem = test::round_problem(1000);

/// Buffers 0: one block, 1: `ranks` blocks.
std::vector<Buffer> buffers(int ranks) {
  return {
      {.name = "one", .dtype = DType::fp32, .tokens = 1000, .heads = 1, .width = problem.head_dim},
      {.name = "all",
       .dtype = DType::fp32,
       .tokens = 1000 * ranks,
       .heads = 1,
       .width = problem.head_dim}};
}

LoweredComm lowered(const Transfer& op, Rank rank, int ranks, const Placement& placement) {
  const std::vector<Buffer> list = buffers(ranks);
  LoweredComm out;
  lower(op, {.problem = &problem, .buffers = list, .rank = rank}, placement, out);
  return out;
}

Collective gather(RankGroup group) {
  return {
      .kind = CollectiveKind::all_gather, .group = group, .from = BufferId(0), .to = BufferId(1)};
}

/// Index of a rank among its group's members in its node.
int local_index(const RankGroup& group, Rank rank, const Placement& placement) {
  int index = 0;
  for (int i = 0; group.rank(i) != rank; ++i) {
    index += placement.node(group.rank(i)) == placement.node(rank) ? 1 : 0;
  }
  return index;
}

/// Members of its group in the rank's node.
int members_beside(const RankGroup& group, Rank rank, const Placement& placement) {
  int members = 0;
  for (int i = 0; i < group.size; ++i) {
    members += placement.node(group.rank(i)) == placement.node(rank) ? 1 : 0;
  }
  return members;
}

/// Walks ring `k` of an all-gather from every rank's own flows and checks that it meets every
/// member once before it is back. `share`: what one of the rings carries, in bytes.
void check_ring(const RankGroup& group, int k, const Placement& placement, double share) {
  Rank start;
  for (int i = group.size - 1; i >= 0; --i) {
    start = local_index(group, group.rank(i), placement) == k ? group.rank(i) : start;
  }
  std::set<int> met;
  Rank at = start;
  do {
    REQUIRE(met.insert(at.value).second);
    const LoweredComm own = lowered(gather(group), at, placement.ranks(), placement);
    // The only flow, or the one to the neighbour (of all rings but one) or into the next node.
    REQUIRE(own.flows.size() <= 2);
    const int members = members_beside(group, at, placement);
    const bool exits =
        own.flows.size() == 2 && (local_index(group, at, placement) + 1) % members == k;
    REQUIRE(own.flows[exits ? 1 : 0].bytes >= share * (1 - 1e-12));
    at = own.flows[exits ? 1 : 0].to;
  } while (at != start);
  CHECK(static_cast<int>(met.size()) == group.size);
}

}  // namespace

TEST_CASE("a message has its transport's latency and rate, inside and across nodes") {
  const Cluster cluster(test::machine({.gpus_per_node = 4,
                                       .port = Bandwidth(400e9),
                                       .latency = Seconds(2e-6),
                                       .nic = Bandwidth(25e9),
                                       .nic_latency = Seconds(5e-6)}),
                        2, 8);
  const Placement placement(cluster, 8, RankOrder::block);
  const auto send = [&](int to) {
    return lowered(
        Exchange{.to = Rank(to), .from = Rank(to), .send = {BufferId(0)}, .receive = {BufferId(1)}},
        Rank(0), 8, placement);
  };
  const LoweredComm inside = send(1);
  REQUIRE(inside.flows.size() == 1);
  CHECK(inside.algorithm == "p2p");
  CHECK(inside.scope == Scope::intra);
  CHECK(inside.flows[0].to == Rank(1));
  CHECK(inside.flows[0].bytes == block);
  CHECK(inside.flows[0].rate_cap == 400e9);
  CHECK(inside.flows[0].latency == 2e-6);
  const LoweredComm across = send(4);
  CHECK(across.scope == Scope::inter);
  CHECK(across.flows.at(0).rate_cap == 25e9);
  CHECK(across.flows.at(0).latency == 5e-6);
  CHECK(send(0).flows.empty());  // to itself: a copy
}

TEST_CASE("dealt out in turn, neighbours lie in different nodes") {
  const Cluster cluster(test::machine(test::oracle_machine()), 2, 8);
  const Placement placement(cluster, 8, RankOrder::cyclic);
  CHECK(placement.gpu(Rank(0)) == 0);
  CHECK(placement.gpu(Rank(1)) == 4);
  CHECK(placement.gpu(Rank(2)) == 1);
  CHECK(placement.gpu(Rank(7)) == 7);
  CHECK(placement.scope(Rank(0), Rank(1)) == Scope::inter);
  CHECK(placement.scope(Rank(0), Rank(2)) == Scope::intra);
}

// 4 ranks, blocks of 4 MB: each passes 3 blocks on to its next; 3 hops after the first byte's
// latency.
TEST_CASE("an all-gather in one node is one ring") {
  const Cluster cluster(test::machine({.gpus_per_node = 4,
                                       .port = Bandwidth(400e9),
                                       .latency = Seconds(10e-6),
                                       .hop = Seconds(1e-6)}),
                        1, 4);
  const Placement placement(cluster, 4, RankOrder::block);
  for (int r = 0; r < 4; ++r) {
    const LoweredComm own = lowered(gather({.size = 4}), Rank(r), 4, placement);
    REQUIRE(own.flows.size() == 1);
    CHECK(own.algorithm == "ring");
    CHECK(own.flows[0].to == Rank((r + 1) % 4));
    CHECK(own.flows[0].bytes == 3 * block);
    CHECK(own.flows[0].rate_cap == 400e9);
    CHECK(own.flows[0].latency == Approx(13e-6).epsilon(1e-12));
  }
}

// 2 nodes of 4: 4 rings. A rank sends 7 blocks in all, a quarter of them across (in the ring that
// it leaves the node in), the rest to its neighbour. 6 hops inside, 2 across.
TEST_CASE("an all-gather over two nodes of four is four rings through four NICs") {
  const Cluster cluster(test::machine({.gpus_per_node = 4,
                                       .latency = Seconds(10e-6),
                                       .hop = Seconds(1e-6),
                                       .nic_latency = Seconds(20e-6),
                                       .nic_hop = Seconds(3e-6)}),
                        2, 8);
  const Placement placement(cluster, 8, RankOrder::block);
  const LoweredComm own = lowered(gather({.size = 8}), Rank(1), 8, placement);
  CHECK(own.algorithm == "4 rings");
  CHECK(own.scope == Scope::inter);
  REQUIRE(own.flows.size() == 2);
  CHECK(own.flows[0].to == Rank(2));
  CHECK(own.flows[0].bytes == Approx(7 * block * 0.75));
  CHECK(own.flows[1].to == Rank(6));  // exit of ring 2, which enters node 1 at local index 2
  CHECK(own.flows[1].bytes == Approx(7 * block * 0.25));
  CHECK(own.flows[0].latency == Approx(20e-6 + 6 * 1e-6 + 2 * 3e-6));
}

TEST_CASE("a group of one sends nothing") {
  const Cluster cluster(test::machine({.gpus_per_node = 4}), 1, 4);
  const Placement placement(cluster, 4, RankOrder::block);
  CHECK(lowered(gather({.first = 2}), Rank(2), 4, placement).flows.empty());
}

// The claim: with g members in the node that has the fewest there are g rings, each a cycle through
// all n members; a rank sends what the op sends, and gets as much.
TEST_CASE("rings of a collective visit every member once, whatever the group and the rank order") {
  for (const int per_node : {1, 2, 4, 8}) {
    for (const int nodes : {1, 2, 3, 4}) {
      const int ranks = per_node * nodes;
      const Cluster cluster(test::machine({.gpus_per_node = per_node}), nodes, ranks);
      for (const RankOrder order : {RankOrder::block, RankOrder::cyclic}) {
        const Placement placement(cluster, ranks, order);
        for (const int stride : {1, 2, 3, 4, 8}) {
          for (int size = 2; size * stride <= ranks; ++size) {
            const RankGroup group{
                .first = ranks - 1 - (size - 1) * stride, .stride = stride, .size = size};
            INFO(per_node << " GPUs a node, " << nodes << " nodes, " << to_string(order)
                          << ", ranks " << group.first << " + i*" << stride << ", " << size
                          << " of them");
            std::map<int, double> received;
            int rings = 1;
            for (int i = 0; i < size; ++i) {
              const LoweredComm own = lowered(gather(group), group.rank(i), ranks, placement);
              double sent = 0;
              for (const Traffic& flow : own.flows) {
                CHECK(flow.to != group.rank(i));
                CHECK(flow.rate_cap > 0);
                sent += flow.bytes;
                received[flow.to.value] += flow.bytes;
              }
              CHECK(sent == Approx(double(block) * (size - 1)));
              if (own.flows.size() == 2) {
                rings = static_cast<int>(std::lround(sent / own.flows[1].bytes));
              }
            }
            for (int i = 0; i < size; ++i) {
              CHECK(received[group.rank(i).value] == Approx(double(block) * (size - 1)));
            }
            for (int k = 0; k < rings; ++k) {
              check_ring(group, k, placement, double(block) * (size - 1) / rings);
            }
          }
        }
      }
    }
  }
}

// 10 KV heads over 4 ranks go as 3, 3, 2, 2 (uneven): peers get different sizes, whose flows end
// together when each has its share of the rate.
TEST_CASE("a direct all-to-all sends every peer what the op says, each at its share of the rate") {
  const Cluster cluster(
      test::machine({.gpus_per_node = 2, .port = Bandwidth(400e9), .nic = Bandwidth(50e9)}), 2, 4);
  const Placement placement(cluster, 4, RankOrder::block);
  const Problem uneven = test::round_problem(4000, 10);
  const std::vector<Buffer> list{
      {.name = "q", .dtype = DType::fp32, .tokens = 1000, .heads = 10},
      {.name = "gathered", .dtype = DType::fp32, .tokens = 4000, .heads = 3}};
  const HeadDeal deal{.split = HeadSplit(uneven, 4, HeadPolicy::uneven), .tokens = 1000};
  const Collective op{.kind = CollectiveKind::all_to_all,
                      .group = {.size = 4},
                      .from = BufferId(0),
                      .to = BufferId(1),
                      .deal = deal};
  for (int r = 0; r < 4; ++r) {
    const Shapes shapes{.problem = &uneven, .buffers = list, .rank = Rank(r)};
    LoweredComm out;
    lower(op, shapes, placement, out);
    CHECK(out.algorithm == "direct");
    CHECK(out.scope == Scope::inter);
    REQUIRE(out.flows.size() == 3);
    double across = 0;
    double across_rate = 0;
    for (const Traffic& flow : out.flows) {
      CHECK(flow.bytes == sent_bytes_to(op, flow.to.value, shapes).as_double());
      if (placement.scope(Rank(r), flow.to) == Scope::intra) {
        CHECK(flow.rate_cap == 400e9);  // the only peer inside has the port for itself
      } else {
        across += flow.bytes;
        across_rate += flow.rate_cap;
      }
    }
    CHECK(across_rate == Approx(50e9));
    for (const Traffic& flow : out.flows) {
      if (placement.scope(Rank(r), flow.to) == Scope::inter) {
        CHECK(flow.bytes / flow.rate_cap == Approx(across / 50e9));
      }
    }
  }
}

TEST_CASE("members below one bridge share it, those that have links of their own do not") {
  const Catalog& catalog = test::catalog();
  const auto shared = [&](const char* machine, CommKind kind) {
    const Cluster cluster(catalog.machine(machine, "test"), 1, 8);
    const Placement placement(cluster, 8, RankOrder::block);
    return shared_links_time(kind, {.first = 0, .stride = 1, .size = 4}, Rank(0), Bytes(46'000'000),
                             placement)
        .count();
  };
  // L20: four GPUs of a socket through 46 GB/s, whomever they send to.
  CHECK(shared("8xl20-pcie", CommKind::all_gather) == Approx(4e-3));
  CHECK(shared("8xl20-pcie", CommKind::all_to_all) == Approx(4e-3));
  CHECK(shared("dgx-h100", CommKind::all_gather) == 0);
}

TEST_CASE("the uplinks of a leaf pass what leaves it, whatever group sends it") {
  const Catalog& catalog = test::catalog();
  const auto cluster_of = [&](double oversubscription) {
    MachineSpec machine = catalog.machine("dgx-h100", "test");
    machine.fabric.nodes_per_leaf->value = 2;
    machine.fabric.oversubscription.value = oversubscription;
    return Cluster(machine, 4, 32);
  };
  const Cluster whole = cluster_of(1);
  const Cluster thin = cluster_of(4);
  const auto time = [](const Cluster& cluster, CommKind kind, int stride, int size) {
    const Cluster view = thinned(cluster, stride, size);
    const Placement placement(view, size, RankOrder::block);
    const RankGroup group{.first = 0, .stride = 1, .size = size};
    const Bytes bytes(1'000'000'000);
    return kind == CommKind::all_reduce ? all_reduce_cost(bytes, group, placement).time.count()
                                        : collective_time(kind, group, bytes, placement).count();
  };
  // All ranks: of an all-to-all half the bytes leave a leaf, of rings as much as one rank sends
  // (a quarter of two nodes' cards instead of one node's).
  CHECK(time(thin, CommKind::all_gather, 1, 32) ==
        Approx(2 * time(whole, CommKind::all_gather, 1, 32)).epsilon(0.05));
  CHECK(time(thin, CommKind::all_to_all, 1, 32) > 2 * time(whole, CommKind::all_to_all, 1, 32));
  // One rank a leaf: every byte leaves it, through a sixteenth of the uplinks.
  for (const CommKind kind : {CommKind::all_to_all, CommKind::all_gather, CommKind::reduce_scatter,
                              CommKind::all_reduce}) {
    CHECK(time(thin, kind, 16, 2) > 3 * time(whole, kind, 16, 2));
    CHECK(time(thin, kind, 1, 8) == time(whole, kind, 1, 8));  // inside a node
  }
  const Cluster strided = thinned(thin, 16, 2);
  CHECK(strided.links()[strided.link(LinkKind::leaf_out, 0).index()].capacity.value() ==
        Approx(strided.links()[strided.link(LinkKind::nic_out, 0).index()].capacity.value() / 4));
}
