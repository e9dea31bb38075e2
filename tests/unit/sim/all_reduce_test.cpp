// All-reduce: limits, order, and a few published values.
#include "sim/all_reduce.hpp"

#include "base/error.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/worlds.hpp"

#include <cmath>
#include <string>
#include <vector>

using namespace spp;
using namespace spp::sim;
using namespace spp::unit_literals;
using Catch::Approx;

namespace {

Cluster cluster(const std::string& gpu, int gpus_per_node, int nodes,
                const std::string& inter = "") {
  const Catalog& catalog = test::catalog();
  std::vector<Assumption> assumed;
  const ComposedMachine request{.gpu = gpu, .gpus_per_node = gpus_per_node, .inter = inter};
  return {catalog.compose(request, assumed), nodes, nodes * gpus_per_node};
}

Cluster alps(int nodes) { return cluster("gh200", 4, nodes, "slingshot:4x200Gb/s"); }

/// Over the first GPUs of the cluster.
AllReduceCost cost_of(Bytes bytes, int ranks, const Cluster& where,
                      const AllReduceOptions& options = {}) {
  return all_reduce_cost(bytes, {.first = 0, .stride = 1, .size = ranks},
                         Placement(where, where.gpus(), RankOrder::block), options);
}

double microseconds(Bytes bytes, int ranks, const Cluster& where) {
  return cost_of(bytes, ranks, where).time.count() * 1e6;
}

/// Bytes of the buffer per second, in GB/s ("algbw").
double rate(Bytes bytes, int ranks, const Cluster& where, const AllReduceOptions& options = {}) {
  return bytes.as_double() / cost_of(bytes, ranks, where, options).time.count() / 1e9;
}

/// Every kind of cluster that has its own branch: switches or none, network with constants or not.
std::vector<Cluster> kinds() {
  std::vector<Cluster> list;
  list.push_back(cluster("h100", 8, 1));
  list.push_back(cluster("a100", 8, 1));
  list.push_back(cluster("gb200", 72, 2, "ib:72x400Gb/s"));
  list.push_back(cluster("h100", 8, 8, "ib:8x400Gb/s"));
  list.push_back(cluster("a100", 8, 2, "efa:4x100Gb/s"));
  list.push_back(cluster("a800-80g-sxm", 8, 4, "ib:8x200Gb/s"));  // links without own constants
  list.push_back(cluster("l20", 8, 1));
  list.push_back(cluster("l20", 8, 2, "ethernet:100Gb/s"));
  list.push_back(alps(16));
  return list;
}

}  // namespace

TEST_CASE("an all-reduce of one rank or of nothing takes no time") {
  const Cluster node = cluster("h100", 8, 1);
  CHECK(cost_of(1_GiB, 1, node).time == Seconds(0));
  CHECK(cost_of(0_B, 8, node).time == Seconds(0));
}

TEST_CASE("a larger all-reduce is never faster, whatever algorithms take over") {
  for (const Cluster& where : kinds()) {
    for (int ranks = 2; ranks <= where.gpus(); ranks *= 2) {
      double before = 0;
      for (double size = 1; size < 40e9; size *= 1.13) {
        const Bytes bytes(std::llround(size));
        const double now = microseconds(bytes, ranks, where);
        INFO(where.machine().name << ", " << ranks << " ranks, " << bytes.value() << " bytes");
        CHECK(now >= before * (1 - 1e-12));
        CHECK(std::isfinite(now));
        before = now;
      }
    }
  }
}

TEST_CASE("more nodes never make an all-reduce faster") {
  for (const Bytes bytes : {8_B, 32_KiB, 2_MiB, 64_MiB, 4_GiB}) {
    double before = microseconds(bytes, 4, alps(1));
    for (int nodes = 2; nodes <= 512; nodes *= 2) {
      const double now = microseconds(bytes, 4 * nodes, alps(nodes));
      CHECK(now > before);
      before = now;
    }
  }
}

TEST_CASE("small messages grow with the logarithm of the nodes") {
  // A tree: latency + log2(N) stage(S), so that doubling the nodes adds the same each time.
  const double step = microseconds(2_KiB, 32, alps(8)) - microseconds(2_KiB, 16, alps(4));
  CHECK(microseconds(2_KiB, 1024, alps(256)) - microseconds(2_KiB, 512, alps(128)) ==
        Approx(step).epsilon(1e-3));
  CHECK(step == Approx(17.5).epsilon(0.01));  // slingshot.json, stage of 2 KiB
}

TEST_CASE(
    "a rank of each node, with one NIC of four, takes little less than all four for four times the "
    "bytes") {
  const Cluster where = alps(32);
  const RankGroup thin{.first = 0, .stride = 4, .size = 32};
  for (const double mebibytes : {16.0, 64.0, 512.0}) {
    const Bytes bytes(static_cast<std::int64_t>(mebibytes * (1 << 20)));
    const double alone =
        all_reduce_cost(bytes, thin, Placement(where, where.gpus(), RankOrder::block)).time.count();
    const double together = cost_of(bytes * 4, 128, where).time.count();
    CHECK(alone < together);  // fewer ranks, fewer channels
    CHECK(alone > together / 2);
  }
}

TEST_CASE("the algorithm is the one with the least time") {
  const Cluster hopper = cluster("h100", 8, 1);
  CHECK(cost_of(1_MiB, 8, hopper).algorithm == "ring");
  CHECK(cost_of(1_GiB, 8, hopper).algorithm == "nvls");
  CHECK(cost_of(1_GiB, 4, hopper).algorithm == "ring");  // too few ranks for the switches
  CHECK(cost_of(1_GiB, 8, hopper, {.nvls = false}).algorithm == "ring");
  CHECK(cost_of(1_GiB, 8, cluster("a100", 8, 1)).algorithm == "ring");  // no such switches
  CHECK(cost_of(1_KiB, 64, alps(16)).algorithm == "tree");
  CHECK(cost_of(4_GiB, 64, alps(16)).algorithm == "ring");
  CHECK(cost_of(1_GiB, 16, cluster("h100", 8, 2, "ib:8x400Gb/s")).algorithm == "nvls tree");
  CHECK(cost_of(1_MiB, 8, cluster("l20", 8, 1)).algorithm == "scatter, gather");
}

TEST_CASE("long messages reach the rate of what limits them") {
  // Ring: n / (2 (n-1)) of 0.825 * 450 GB/s; the rank's own part costs 0.3 / 14 more.
  CHECK(rate(Bytes(1'000'000'000'000), 8, cluster("h100", 8, 1), {.nvls = false}) ==
        Approx(0.825 * 450 * 8 / 14 / (1 + 0.3 / 14)).epsilon(0.01));
  // Two trees between two nodes: once through the NICs, 0.91 of 100 GB/s.
  CHECK(rate(Bytes(1'000'000'000'000), 8, alps(2)) == Approx(91).epsilon(0.01));
  // Ring over many nodes: about half of 0.94 of 100 GB/s.
  CHECK(rate(Bytes(1'000'000'000'000), 64, alps(16)) == Approx(47 * 64 / 63.0).epsilon(0.01));
}

TEST_CASE("links without constants take a scatter and a gather in one launch") {
  // Latency 2 us, ring steps 1 us, 100 GB/s, 4 ranks, 4 MB: each sends 3 MB twice in 30 us, has
  // two calls of 2 us of latency less one launch, and 3 steps a call.
  const Cluster plain(test::machine({.gpus_per_node = 4,
                                     .port = Bandwidth(100e9),
                                     .latency = Seconds(2e-6),
                                     .hop = Seconds(1e-6)}),
                      1, 4);
  CHECK(microseconds(Bytes(4'000'000), 4, plain) == Approx(2 + 2 * (3 + 30)));
}

TEST_CASE("published all-reduces are met within the stated error") {
  struct Published {
    Cluster where;
    int ranks;
    Bytes bytes;
    double us, band;
  };
  const std::vector<Published> list{
      // ai-dynamo/aiconfigurator nccl_perf, one node
      {cluster("h100", 8, 1), 8, 512_B, 15.6, 0.08},
      {cluster("h100", 8, 1), 8, 512_MiB, 2111.1, 0.05},
      {cluster("b200", 8, 1), 8, 512_MiB, 1334.6, 0.05},
      {cluster("a100", 8, 1), 8, 512_MiB, 4225.9, 0.05},
      {cluster("a100", 8, 1), 2, 1_KiB, 10.1, 0.08},
      // boeschf/nccl-benchmark-on-alps-2025
      {alps(1), 4, 4_GiB, 19002, 0.06},
      {alps(4), 16, 2_KiB, 42.3, 0.08},
      {alps(64), 256, 16_KiB, 298.7, 0.08},
      {alps(512), 2048, 8_MiB, 1799.9, 0.10},
      {alps(8), 32, 2_GiB, 45898, 0.06},
      // aws-samples/awsome-distributed-training, two p4de nodes
      {cluster("a100", 8, 2, "efa:4x100Gb/s"), 16, 1_GiB, 26217, 0.05},
      // coreweave/nccl-tests, 72 ranks of a rack and 1440 of twenty
      {cluster("gb200", 72, 1), 72, 8_GiB, 20299, 0.05},
      {cluster("gb200", 72, 20, "ib:72x400Gb/s"), 1440, 8_GiB, 45004, 0.05},
  };
  for (const Published& p : list) {
    INFO(p.where.machine().name << ", " << p.ranks << " ranks, " << p.bytes.value() << " bytes");
    CHECK(microseconds(p.bytes, p.ranks, p.where) == Approx(p.us).epsilon(p.band));
  }
}
