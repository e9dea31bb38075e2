// What can be said about devices without one.
#include "base/error.hpp"
#include "runtime/device/cuda/green_context.hpp"
#include "runtime/device/cuda/nccl_plan.hpp"
#include "runtime/device/network.hpp"
#include "schedule/text.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

#include <set>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

TEST_CASE("SMs are shared in multiples of what the device allows") {
  const cuda::ShareRules hopper = cuda::share_rules(9);
  CHECK(cuda::share_of(132, 8, hopper) == 16);
  CHECK(cuda::share_of(132, 4, hopper) == 32);
  CHECK(cuda::share_of(132, 2, hopper) == 64);
  CHECK(cuda::share_of(132, 32, hopper) == 0);
  CHECK(cuda::share_of(108, 4, cuda::share_rules(8)) == 26);
  CHECK(cuda::share_of(108, 36, cuda::share_rules(8)) == 0);  // at least 4
  CHECK(cuda::share_of(80, 40, cuda::share_rules(7)) == 2);
}

TEST_CASE("a driver that does not say what shares must be gives way to what the hardware wants") {
  const cuda::ShareRules hopper = cuda::share_rules(9);
  CHECK(hopper == cuda::ShareRules{.least = 8, .granularity = 8});
  CHECK(cuda::share_rules(10) == hopper);
  CHECK(cuda::stricter(hopper, {.least = 0, .granularity = 0}) == hopper);
  CHECK(cuda::stricter(hopper, {.least = 16, .granularity = 4}) ==
        cuda::ShareRules{.least = 16, .granularity = 8});
}

TEST_CASE("messages over one emulated link share it, links are used side by side") {
  // Ranks 0 to 3 are on node 0. Into rank 1: 300 B inside at 100 B/s, 100 B from outside at 10 B/s.
  const EmulatedNetwork network{.intra = {.alpha = Seconds(0.5), .beta = Bandwidth(100)},
                                .inter = {.alpha = Seconds(2), .beta = Bandwidth(10)},
                                .ranks_per_node = 4};
  const std::vector<Incoming> inside = {{Rank(0), 100}, {Rank(2), 200}, {Rank(1), 1000}};
  CHECK(direct_time(network, Rank(1), inside).count() == Catch::Approx(0.5 + 3));
  std::vector<Incoming> both = inside;
  both.push_back({Rank(5), 100});
  CHECK(direct_time(network, Rank(1), both).count() == Catch::Approx(2 + 10));
  CHECK(direct_time(network, Rank(1), {}).count() == 0);
}

TEST_CASE("an emulated ring goes as fast as its slowest edge") {
  const EmulatedNetwork network{.intra = {.alpha = Seconds(1), .beta = Bandwidth(100)},
                                .inter = {.alpha = Seconds(2), .beta = Bandwidth(10)},
                                .ranks_per_node = 4};
  CHECK(ring_time(network, {.first = 0, .stride = 1, .size = 4}, 100).count() ==
        Catch::Approx(3 * 2));
  CHECK(ring_time(network, {.first = 0, .stride = 4, .size = 2}, 100).count() == Catch::Approx(12));
  CHECK(ring_time(network, {.first = 3, .stride = 1, .size = 1}, 100).count() == 0);
}

TEST_CASE("emulated networks are read, and wrong ones refused") {
  const EmulatedNetwork one = parse_network("5us:100GB/s", "--emulate-link");
  CHECK(one.intra.alpha.count() == Catch::Approx(5e-6));
  CHECK(one.intra.beta.value() == Catch::Approx(1e11));
  CHECK(one.node(Rank(100)) == 0);
  const EmulatedNetwork two = parse_network("5us:100GB/s,0.02ms:12.5GB/s,4", "--emulate-link");
  CHECK(two.inter.alpha.count() == Catch::Approx(2e-5));
  CHECK(two.node(Rank(3)) == 0);
  CHECK(two.node(Rank(4)) == 1);
  for (const std::string_view wrong : {"", "5us", "100GB/s", "5:100GB/s", "-5us:1GB/s",
                                       "5us:100GB/s,5us:1GB/s", "5us:100GB/s,5us:1GB/s,0"}) {
    INFO(wrong);
    CHECK_THROWS_AS(parse_network(wrong, "--emulate-link"), InputError);
  }
}

TEST_CASE("every op that needs an NCCL communicator has one, and no rank is in two of a layer") {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const Case& c : cases(ranks, 4)) {
      INFO(c.text());
      const std::vector<StoredProgram> programs = store(c.build());
      const std::vector<StoredProgram> none;
      const std::array phases{&programs, &none};
      const auto layers = cuda::communicator_layers(phases, ranks);
      std::vector<cuda::CommunicatorKey> all;
      for (const cuda::CommunicatorLayer& layer : layers) {
        std::set<int> members;
        for (const cuda::CommunicatorKey& key : layer) {
          all.push_back(key);
          for (int i = 0; i < key.group.size; ++i) {
            CHECK(members.insert(key.group.rank(i).value).second);
          }
        }
      }
      for (const StoredProgram& program : programs) {
        for (const StoredOp& stored : program.ops) {
          const auto has = [&](const RankGroup& group) {
            return group.size == 1 ||
                   std::ranges::find(all, cuda::CommunicatorKey{.stream = stored.op.stream,
                                                                .group = group}) != all.end();
          };
          if (const auto* collective = op_if<Collective>(stored.op.body)) {
            CHECK(has(collective->group));
          } else if (is_transfer(stored.op.body)) {
            CHECK(has({.first = 0, .stride = 1, .size = ranks}));
          }
        }
      }
    }
  }
}

TEST_CASE("slow connections are found in NCCL's log") {
  const std::string log =
      "host:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
      "host:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
      "host:1:1 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via SHM/direct/direct\n"
      "host:1:1 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via SHM/direct/direct\n"
      "host:1:1 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0\n"
      "host:1:1 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[0] [send] via NET/IB/0/GDRDMA\n"
      "host:1:1 [0] NCCL INFO Connected all rings via SHM\n";
  const std::vector<std::string> lines = cuda::slow_connections(log);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].starts_with("NCCL connects 1 pairs of ranks through TCP sockets (NET/Socket)"));
  CHECK(
      lines[1].starts_with("NCCL connects 2 pairs of ranks through memory of the host (SHM), "
                           "such as 0[0] -> 1[1]"));
  CHECK(cuda::slow_connections("").empty());
}
