// The event loop on schedules of a few ops, with times derived by hand.
//
// The machine: one node, 4 GB/s ports, no latency unless said; a block of 1000 tokens is 4 MB and
// takes 1 ms. Times in ms.
#include "sim/simulate.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/worlds.hpp"

using namespace spp;
using namespace spp::sim;
using Catch::Approx;
using test::compute_stream;
using test::first_stream;
using test::second_stream;

namespace {

constexpr std::int64_t block = 1000;  // tokens; 1 ms
const Problem problem = test::round_problem(block * 8);

struct World {
  int ranks = 2;
  Seconds latency{};
};

Simulation run(const World& world, const Schedule& schedule, SimulationCosts costs) {
  const Cluster cluster(
      test::machine(
          {.gpus_per_node = world.ranks, .port = Bandwidth(4e9), .latency = world.latency}),
      1, world.ranks);
  const Placement placement(cluster, world.ranks, RankOrder::block);
  return simulate(schedule, placement, costs, {.fold = false, .timeline = true});
}

/// The event of an op of a rank.
TimelineEvent event(const Simulation& s, int rank, std::int64_t op) {
  for (const TimelineEvent& e : s.timeline.events) {
    if (e.rank == Rank(rank) && e.op == op) {
      return e;
    }
  }
  FAIL("rank " << rank << " has no op " << op);
  return {};
}

double begin_ms(const Simulation& s, int rank, std::int64_t op) {
  return event(s, rank, op).begin.count() * 1e3;
}
double end_ms(const Simulation& s, int rank, std::int64_t op) {
  return event(s, rank, op).end.count() * 1e3;
}

BufferId scratch(ProgramBuilder& b, std::string name, std::int64_t tokens = block) {
  return b.scratch(std::move(name), Tensor::k, tokens, 1);
}
Copy copy(BufferId from, BufferId to) { return {.kind = CopyKind::cast, .from = from, .to = to}; }

/// Sends `send` to the other one of two ranks and receives `receive`.
Exchange swap(const ProgramBuilder& b, BufferId send, BufferId receive) {
  const Rank other(1 - b.rank().value);
  return {.to = other, .from = other, .send = {send}, .receive = {receive}};
}

Seconds ms(double value) { return Seconds(value * 1e-3); }

/// Kernel times by their source buffer's tokens: 1 ms a block.
SimulationCosts a_block_a_ms() {
  return {.kernel = [](const Kernel& kernel, const Shapes& shapes) {
    return ms(static_cast<double>(shapes.buffers[std::get<Copy>(kernel).from.index()].tokens) /
              block);
  }};
}

}  // namespace

TEST_CASE("a message takes its latency and then its bytes over its rate") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    b.op(first_stream, swap(b, scratch(b, "mine"), scratch(b, "theirs")));
  });
  const Simulation result = run({.latency = Seconds(10e-6)}, s, a_block_a_ms());
  CHECK(end_ms(result, 0, 0) == Approx(1.010).epsilon(1e-12));
  CHECK(result.makespan.count() == Approx(1.010e-3).epsilon(1e-12));
  CHECK(result.messages == 2);
  CHECK(result.sent[0] == Bytes(4'000'000));
}

TEST_CASE("bytes are those of the rank that sends most, whichever ends last") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    const Rank other(1 - b.rank().value);
    const BufferId moved = scratch(b, "moved");
    if (b.rank() == Rank(1)) {
      b.op(first_stream, Exchange{.to = other, .from = other, .send = {moved}, .receive = {}});
    } else {
      b.op(first_stream, Exchange{.to = other, .from = other, .send = {}, .receive = {moved}});
      b.op(compute_stream, copy(scratch(b, "source", 5 * block), scratch(b, "mine")));
    }
  });
  const Simulation result = run({}, s, a_block_a_ms());
  REQUIRE(result.critical == Rank(0));
  CHECK(result.sent[0] == Bytes(4'000'000));
}

TEST_CASE("nothing flows before the later side is there, and the timeline names it") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    const BufferId mine = scratch(b, "mine");
    if (b.rank() == Rank(1)) {
      b.op(compute_stream, copy(scratch(b, "source", 5 * block), mine));
    }
    b.op(first_stream, swap(b, mine, scratch(b, "theirs")));
  });
  const Simulation result = run({}, s, a_block_a_ms());
  CHECK(begin_ms(result, 0, 0) == 0);  // it waits inside the op
  CHECK(end_ms(result, 0, 0) == Approx(6).epsilon(1e-12));
  CHECK(begin_ms(result, 1, 1) == Approx(5).epsilon(1e-12));
  CHECK(end_ms(result, 1, 1) == Approx(6).epsilon(1e-12));
  CHECK(event(result, 0, 0).waited_for_rank == Rank(1));
  CHECK(event(result, 1, 1).waited_for == 0);
  REQUIRE(result.critical == Rank(0));
  CHECK(result.breakdown.imbalance.count() == Approx(5e-3).epsilon(1e-12));
  CHECK(result.breakdown.exposed.count() == Approx(1e-3).epsilon(1e-12));
}

// Rank 2 hands on what it gets from rank 1, which computes for 5 ms: rank 3 waits for rank 2, which
// waits for a message. Only who is waited for directly counts.
TEST_CASE("a late rank that waited for a message itself is communication, not imbalance") {
  const Schedule s = test::hand_made(4, problem, [](ProgramBuilder& b) {
    const int rank = b.rank().value;
    const BufferId held = scratch(b, "held");
    if (rank == 1) {
      b.op(compute_stream, copy(scratch(b, "source", 5 * block), held));
      b.op(first_stream, Exchange{.to = Rank(2), .from = {}, .send = {held}, .receive = {}});
    } else if (rank == 2) {
      b.op(first_stream, Exchange{.to = {}, .from = Rank(1), .send = {}, .receive = {held}});
      b.op(first_stream, Exchange{.to = Rank(3), .from = {}, .send = {held}, .receive = {}});
    } else if (rank == 3) {
      b.op(first_stream, Exchange{.to = {}, .from = Rank(2), .send = {}, .receive = {held}});
      b.op(compute_stream, copy(held, scratch(b, "result")));
    }
  });
  const Simulation result = run({.ranks = 4}, s, a_block_a_ms());
  REQUIRE(result.critical == Rank(3));
  CHECK(result.breakdown.other_kernels.count() == Approx(1e-3).epsilon(1e-12));
  CHECK(result.breakdown.imbalance.count() == Approx(0).margin(1e-15));
  CHECK(result.breakdown.exposed.count() == Approx(7e-3).epsilon(1e-12));
}

// Transfer 1, compute 3. Exchange i receives into the buffer that kernel i-1 reads: it begins with
// kernel i-1's end, not with exchange i-1's. Exchanges 0-1, 3-4, 6-7; kernels 0-3, 3-6, 6-9.
TEST_CASE("a receive waits until its buffer is read") {
  const Schedule s = test::ring_of_steps({.ranks = 2, .tokens = block, .steps = 3});
  const Simulation result = run({}, s, test::every_kernel(ms(3)));
  CHECK(begin_ms(result, 0, 2) == Approx(3).epsilon(1e-12));
  CHECK(end_ms(result, 0, 2) == Approx(4).epsilon(1e-12));
  CHECK(begin_ms(result, 0, 4) == Approx(6).epsilon(1e-12));
  CHECK(end_ms(result, 0, 5) == Approx(9).epsilon(1e-12));
  CHECK(result.breakdown.exposed.count() == Approx(0).margin(1e-15));
  CHECK(result.breakdown.hidden.count() == Approx(3e-3).epsilon(1e-12));
}

// Transfer 1, compute 0.25: kernels begin with the exchanges' ends. Exposed: 0.75 before kernels 1
// and 2 each, and 0.75 behind the last.
TEST_CASE("what the compute stream waits for communication is exposed") {
  const Schedule s = test::ring_of_steps({.ranks = 2, .tokens = block, .steps = 3});
  const Simulation result = run({}, s, test::every_kernel(ms(0.25)));
  CHECK(result.makespan.count() == Approx(3e-3).epsilon(1e-12));
  CHECK(result.breakdown.attention.count() == Approx(0.75e-3).epsilon(1e-12));
  CHECK(result.breakdown.exposed.count() == Approx(2.25e-3).epsilon(1e-12));
  CHECK(result.breakdown.hidden.count() == Approx(0.75e-3).epsilon(1e-12));
  REQUIRE(result.bottlenecks.size() == 1);
  CHECK(result.bottlenecks[0].exposed.count() == Approx(2.25e-3).epsilon(1e-12));
  CHECK(result.bottlenecks[0].rate.value() == Approx(4e9).epsilon(1e-9));
  CHECK(result.bottlenecks[0].algorithm == "p2p");
}

TEST_CASE("ops of one stream run one after the other, messages of two streams share the port") {
  const auto two = [](StreamId second) {
    return test::hand_made(2, problem, [second](ProgramBuilder& b) {
      b.op(first_stream, swap(b, scratch(b, "a"), scratch(b, "b")));
      b.op(second, swap(b, scratch(b, "c"), scratch(b, "d")));
    });
  };
  const Simulation ordered = run({}, two(first_stream), a_block_a_ms());
  CHECK(end_ms(ordered, 0, 0) == Approx(1).epsilon(1e-12));
  CHECK(begin_ms(ordered, 0, 1) == Approx(1).epsilon(1e-12));
  CHECK(end_ms(ordered, 0, 1) == Approx(2).epsilon(1e-12));
  const Simulation shared = run({}, two(second_stream), a_block_a_ms());
  CHECK(begin_ms(shared, 0, 1) == 0);
  CHECK(end_ms(shared, 0, 0) == Approx(2).epsilon(1e-12));
  CHECK(end_ms(shared, 0, 1) == Approx(2).epsilon(1e-12));
}

TEST_CASE("messages between two ranks on one stream match in order") {
  // Rank 0 sends 1 block, then 3; rank 1 receives twice.
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    for (const std::int64_t tokens : {block, 3 * block}) {
      const BufferId tile = scratch(b, "tile", tokens);
      b.op(first_stream, b.rank() == Rank(0) ? Exchange{.to = Rank(1), .send = {tile}}
                                             : Exchange{.from = Rank(0), .receive = {tile}});
    }
  });
  const Simulation result = run({}, s, a_block_a_ms());
  CHECK(end_ms(result, 1, 0) == Approx(1).epsilon(1e-12));
  CHECK(end_ms(result, 1, 1) == Approx(4).epsilon(1e-12));
}

// The host issues op i at 5 (i+1) us; each runs 1 us. The last of 10 ends at 51 us, and the device
// was idle for 41 us: 5 before the first and 4 before each of the other nine.
TEST_CASE("short kernels wait for the host") {
  const Schedule s = test::hand_made(1, problem, [](ProgramBuilder& b) {
    const BufferId from = scratch(b, "from", 1);  // 1 us
    const BufferId to = scratch(b, "to", 1);
    b.loop(10, [=](std::int64_t, OpList& ops) { ops.push_back({compute_stream, copy(from, to)}); });
  });
  SimulationCosts costs = a_block_a_ms();
  costs.host.fill(Seconds(5e-6));
  const Simulation result = run({.ranks = 1}, s, costs);
  CHECK(result.makespan.count() == Approx(51e-6).epsilon(1e-12));
  CHECK(result.breakdown.launch_bound.count() == Approx(41e-6).epsilon(1e-12));
  CHECK(result.breakdown.other_kernels.count() == Approx(10e-6).epsilon(1e-12));
  CHECK(begin_ms(result, 0, 0) == Approx(0.005).epsilon(1e-12));
}

// The host runs ahead: op i is issued at 5 (i+1) us but starts when op i-1 has ended.
TEST_CASE("long kernels hide the host") {
  const Schedule s = test::hand_made(1, problem, [](ProgramBuilder& b) {
    const BufferId from = scratch(b, "from");
    const BufferId to = scratch(b, "to");
    b.loop(100,
           [=](std::int64_t, OpList& ops) { ops.push_back({compute_stream, copy(from, to)}); });
  });
  SimulationCosts costs = a_block_a_ms();
  costs.host.fill(Seconds(5e-6));
  CHECK(run({.ranks = 1}, s, costs).makespan.count() == Approx(100.005e-3).epsilon(1e-12));
}

// A message of 1, for which the host then waits 2; a message of 1 behind it on the same stream, for
// which it waits 2 as well; then a kernel of 1 that reads what they brought. The kernel before them
// runs 3 from the start.
TEST_CASE("nothing begins while the host waits for what a transfer brought") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    const BufferId first = scratch(b, "first");
    const BufferId second = scratch(b, "second");
    b.op(compute_stream, copy(scratch(b, "from", 3 * block), scratch(b, "to")));
    b.op(first_stream, swap(b, scratch(b, "mine"), first));
    b.op(first_stream, swap(b, first, second));
    b.op(compute_stream, copy(second, scratch(b, "last")));
  });
  SimulationCosts costs = a_block_a_ms();
  costs.host_of = [](const Op& op, const Shapes&) {
    return HostTime{.issue = ms(0.125),
                    .stand = std::holds_alternative<Transfer>(op.body) ? ms(2) : ms(0)};
  };
  const Simulation result = run({}, s, costs);
  CHECK(begin_ms(result, 0, 0) == Approx(0.125).epsilon(1e-12));  // issued
  CHECK(begin_ms(result, 0, 1) == Approx(0.25).epsilon(1e-12));
  CHECK(begin_ms(result, 0, 2) == Approx(3.25).epsilon(1e-12));
  CHECK(begin_ms(result, 0, 3) == Approx(6.25).epsilon(1e-12));
  // Idle from 3.125 on: 1 for a message, what is left of the waits for the host.
  CHECK(result.breakdown.exposed.count() == Approx(ms(1).count()).epsilon(1e-12));
  CHECK(result.breakdown.launch_bound.count() == Approx(ms(2.25).count()).epsilon(1e-12));
  CHECK(result.breakdown.other_kernels.count() == Approx(ms(4).count()).epsilon(1e-12));
}

// A kernel of 10 beside a message of 4 that holds a fifth of the SMs: 0.8 * 4 = 3.2 are done when
// it ends, the other 6.8 take 6.8.
TEST_CASE("communication kernels slow down the kernels beside them") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    b.op(first_stream, swap(b, scratch(b, "mine", 4 * block), scratch(b, "theirs", 4 * block)));
    b.op(compute_stream, copy(scratch(b, "from", 10 * block), scratch(b, "to")));
  });
  SimulationCosts costs = a_block_a_ms();
  costs.sm_share = {0, 0.2, 0};
  const Simulation result = run({}, s, costs);
  CHECK(end_ms(result, 0, 0) == Approx(4).epsilon(1e-12));
  CHECK(end_ms(result, 0, 1) == Approx(10.8).epsilon(1e-12));
}

TEST_CASE("an exchange with itself is a copy that reads and writes its bytes") {
  const Schedule s = test::hand_made(1, problem, [](ProgramBuilder& b) {
    b.op(first_stream, Exchange{.to = b.rank(),
                                .from = b.rank(),
                                .send = {scratch(b, "a")},
                                .receive = {scratch(b, "b")}});
  });
  SimulationCosts costs = a_block_a_ms();
  costs.local_copy = Bandwidth(4e9);
  const Simulation result = run({.ranks = 1}, s, costs);
  CHECK(result.makespan.count() == Approx(2e-3).epsilon(1e-12));
  CHECK(result.sent[0] == Bytes(0));
  CHECK(result.messages == 0);
}

TEST_CASE("kernels and messages of nothing take no time and keep their order") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    const BufferId nothing = scratch(b, "nothing", 0);
    const BufferId received = scratch(b, "received", 0);
    const BufferId last = scratch(b, "last", 0);
    b.op(compute_stream, copy(last, nothing));
    b.op(first_stream, swap(b, nothing, received));
    b.op(compute_stream, copy(received, last));
    b.op(first_stream, Exchange{});
  });
  const Simulation result = run({}, s, a_block_a_ms());
  CHECK(result.makespan.count() == 0);
  CHECK(result.ops == 8);
}

// Three ranks, the last comes at 5; each passes on 2 blocks at 1 ms a block: the ring ends at 7.
TEST_CASE("a collective starts when its last member arrives") {
  const Schedule s = test::hand_made(3, problem, [](ProgramBuilder& b) {
    const BufferId mine = scratch(b, "mine");
    if (b.rank() == Rank(2)) {
      b.op(compute_stream, copy(scratch(b, "source", 5 * block), mine));
    }
    b.op(first_stream, Collective{.kind = CollectiveKind::all_gather,
                                  .group = {.size = 3},
                                  .from = mine,
                                  .to = scratch(b, "all", 3 * block)});
  });
  const Simulation result = run({.ranks = 3}, s, a_block_a_ms());
  CHECK(begin_ms(result, 0, 0) == 0);
  CHECK(end_ms(result, 0, 0) == Approx(7).epsilon(1e-12));
  CHECK(end_ms(result, 2, 1) == Approx(7).epsilon(1e-12));
  CHECK(event(result, 1, 0).waited_for_rank == Rank(2));
}

// Each part of 1 block goes round three ranks twice, but for the last hop: 4 blocks at 1 ms.
TEST_CASE("an all-reduce takes as long as a reduce-scatter and an all-gather") {
  const Schedule s = test::hand_made(3, problem, [](ProgramBuilder& b) {
    b.op(first_stream, Collective{.kind = CollectiveKind::all_reduce,
                                  .group = {.size = 3},
                                  .from = scratch(b, "mine", 3 * block),
                                  .to = scratch(b, "sum", 3 * block)});
  });
  const Simulation result = run({.ranks = 3}, s, a_block_a_ms());
  CHECK(end_ms(result, 0, 0) == Approx(4).epsilon(1e-6));
}

TEST_CASE("groups of one kind on one stream do not mix") {
  // {0, 1} and {2, 3} gather at the same time; rank 3 is late, which {0, 1} does not notice.
  const Schedule s = test::hand_made(4, problem, [](ProgramBuilder& b) {
    const BufferId mine = scratch(b, "mine");
    if (b.rank() == Rank(3)) {
      b.op(compute_stream, copy(scratch(b, "source", 5 * block), mine));
    }
    b.op(first_stream, Collective{.kind = CollectiveKind::all_gather,
                                  .group = {.first = b.rank().value / 2 * 2, .size = 2},
                                  .from = mine,
                                  .to = scratch(b, "all", 2 * block)});
  });
  const Simulation result = run({.ranks = 4}, s, a_block_a_ms());
  CHECK(end_ms(result, 1, 0) == Approx(1).epsilon(1e-12));
  CHECK(end_ms(result, 2, 0) == Approx(6).epsilon(1e-12));
}

TEST_CASE("a schedule that deadlocks is a broken invariant") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    if (b.rank() == Rank(0)) {
      b.op(first_stream, Exchange{.from = Rank(1), .receive = {scratch(b, "never")}});
    }
  });
  CHECK_THROWS_AS(run({}, s, a_block_a_ms()), InternalError);
}

TEST_CASE("compute, exposed and launch-bound time add up to the makespan") {
  const Schedule s = test::ring_of_steps({.ranks = 4, .tokens = block, .steps = 7});
  for (const double kernel : {0.1, 0.9, 1.0, 1.1, 5.0}) {
    for (const double launch : {0.0, 0.2, 2.0}) {
      SimulationCosts costs = test::every_kernel(ms(kernel));
      costs.host.fill(ms(launch));
      const Simulation r = run({.ranks = 4, .latency = Seconds(3e-6)}, s, costs);
      const Breakdown& b = r.breakdown;
      CHECK((b.attention + b.other_kernels + b.exposed + b.imbalance + b.launch_bound).count() ==
            Approx(r.makespan.count()).epsilon(1e-12));
    }
  }
}
