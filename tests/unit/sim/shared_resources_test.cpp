// What ranks share: CPU ranks their cores, ranks of one GPU its memory and perhaps its SMs. Times
// derived by hand.
//
// A message of a block (1000 tokens, 4 MB) takes 1 ms alone on the 4 GB/s between two ranks. Rates
// are in seconds of cores per second: a kernel of K ms has K ms of them to do, a message that takes
// M ms alone share * M, half at each end. Times in ms.
#include "sim/simulate.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/worlds.hpp"

using namespace spp;
using namespace spp::sim;
using Catch::Approx;
using test::compute_stream;
using test::first_stream;
using test::PlainMachine;

namespace {

constexpr std::int64_t block = 1000;
const Problem problem = test::round_problem(block * 8);

PlainMachine cores(double share, int shared = 0) {
  return {.port = Bandwidth(4e9), .cpu_share = share, .cores = shared};
}

/// A GPU for all ranks. A kernel takes 4 GB of its memory a second, a message twice its bytes.
PlainMachine device(double memory, bool split = true, Bytes l2 = Bytes(0)) {
  return {.port = Bandwidth(4e9),
          .ranks_per_device = 4,
          .split = split,
          .device_memory = Bandwidth(memory),
          .l2 = l2};
}

Simulation run(PlainMachine plain, const Schedule& schedule) {
  const int ranks = schedule.mesh.size();
  plain.gpus_per_node = ranks;
  if (plain.ranks_per_device > 0) {
    plain.ranks_per_device = ranks;
  }
  const Cluster cluster(test::machine(plain), 1, ranks);
  const SimulationCosts costs{
      .kernel =
          [](const Kernel& kernel, const Shapes& shapes) {
            const BufferId from = std::get<Copy>(kernel).from;
            return Seconds(1e-3 * static_cast<double>(shapes.buffers[from.index()].tokens) / block);
          },
      .local_copy = Bandwidth(4e9)};
  return simulate(schedule, Placement(cluster, ranks, RankOrder::block), costs,
                  {.fold = false, .timeline = true});
}

double end_ms(const Simulation& s, int rank, std::int64_t op) {
  for (const TimelineEvent& e : s.timeline.events) {
    if (e.rank == Rank(rank) && e.op == op) {
      return e.end.count() * 1e3;
    }
  }
  FAIL("rank " << rank << " has no op " << op);
  return 0;
}

BufferId tile(ProgramBuilder& b, std::string name, std::int64_t blocks) {
  return b.scratch(std::move(name), Tensor::k, blocks * block, 1);
}

void kernel(ProgramBuilder& b, std::int64_t milliseconds) {
  b.op(compute_stream, Copy{.kind = CopyKind::cast,
                            .from = tile(b, "from", milliseconds),
                            .to = tile(b, "to", milliseconds)});
}

/// Both of two ranks send `blocks` to the other one.
void swap(ProgramBuilder& b, std::int64_t blocks) {
  const Rank other(1 - b.rank().value);
  b.op(first_stream, Exchange{.to = other,
                              .from = other,
                              .send = {tile(b, "mine", blocks)},
                              .receive = {tile(b, "theirs", blocks)}});
}

/// Rank `from` sends a block to rank `to`.
void send(ProgramBuilder& b, Rank from, Rank to, std::int64_t blocks) {
  if (b.rank() == from) {
    b.op(first_stream, Exchange{.to = to, .send = {tile(b, "sent", blocks)}});
  } else if (b.rank() == to) {
    b.op(first_stream, Exchange{.from = from, .receive = {tile(b, "received", blocks)}});
  }
}

}  // namespace

TEST_CASE("two ranks on one core take twice as long") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) { kernel(b, 10); });
  CHECK(run(cores(1), s).makespan.count() == Approx(10e-3).epsilon(1e-12));
  const Simulation shared = run(cores(1, 1), s);
  CHECK(end_ms(shared, 0, 0) == Approx(20).epsilon(1e-12));
  CHECK(end_ms(shared, 1, 0) == Approx(20).epsilon(1e-12));
}

// Three kernels of 6 on two cores: each at 2/3, all end at 9. Then 0 sends to 3, who waited.
TEST_CASE("who waits takes nothing of the shared cores") {
  const Schedule s = test::hand_made(4, problem, [](ProgramBuilder& b) {
    if (b.rank() != Rank(3)) {
      kernel(b, 6);
    }
    if (b.rank() == Rank(0)) {
      b.op(first_stream, Exchange{.to = Rank(3), .send = {BufferId(1)}});  // the kernel's result
    } else if (b.rank() == Rank(3)) {
      b.op(first_stream, Exchange{.from = Rank(0), .receive = {tile(b, "received", 6)}});
    }
  });
  const Simulation result = run(cores(1, 2), s);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(end_ms(result, rank, 0) == Approx(9).epsilon(1e-12));
  }
  CHECK(end_ms(result, 3, 0) == Approx(15).epsilon(1e-12));
}

// A kernel slower than the others leaves its cores to them when it ends: 2 + 10 + 10 on two cores.
// At 2/3 each the first ends at 3; then the others, 8 left each, have a core each: 11.
TEST_CASE("a core that becomes free goes to those who still work") {
  const Schedule s = test::hand_made(
      3, problem, [](ProgramBuilder& b) { kernel(b, b.rank() == Rank(0) ? 2 : 10); });
  const Simulation result = run(cores(1, 2), s);
  CHECK(end_ms(result, 0, 0) == Approx(3).epsilon(1e-12));
  CHECK(end_ms(result, 1, 0) == Approx(11).epsilon(1e-12));
  CHECK(end_ms(result, 2, 0) == Approx(11).epsilon(1e-12));
}

// A core has the kernel at x and half of each of two messages at x: x = 1/2. Messages end at 8; the
// kernel's 6 that are left end at 14 = 10 + 4.
TEST_CASE("copying and computing on one core add up") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    kernel(b, 10);
    swap(b, 4);
  });
  const Simulation own = run(cores(1), s);
  CHECK(end_ms(own, 0, 1) == Approx(8).epsilon(1e-12));
  CHECK(end_ms(own, 0, 0) == Approx(14).epsilon(1e-12));
  // Both ranks on one core: 2 (10 + 4).
  CHECK(run(cores(1, 1), s).makespan.count() == Approx(28e-3).epsilon(1e-12));
}

// The message moves at its own 4 ms and leaves 3/4 of the core: 3 are done then, 7 are left.
TEST_CASE("a message that needs little of a core takes no more than that") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    kernel(b, 10);
    swap(b, 4);
  });
  const Simulation result = run(cores(0.25), s);
  CHECK(end_ms(result, 0, 1) == Approx(4).epsilon(1e-12));
  CHECK(end_ms(result, 0, 0) == Approx(11).epsilon(1e-12));
}

// Half of the message's 4 ms falls on each end. On the receiver's core the kernel runs at x, half
// of the message at x/2: x = 2/3. The message ends at 6, the kernel at 6 + 6 = 10 + 2.
TEST_CASE("a message one way takes half of its share at each end") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    if (b.rank() == Rank(1)) {
      kernel(b, 10);
    }
    send(b, Rank(0), Rank(1), 4);
  });
  const Simulation result = run(cores(1), s);
  CHECK(end_ms(result, 0, 0) == Approx(6).epsilon(1e-12));
  CHECK(end_ms(result, 1, 0) == Approx(12).epsilon(1e-12));
}

// Rank 1 comes at 5. Until then rank 0's kernel has its core alone, although its exchange is open;
// then 2 ms of copying and what is left of the kernels share the cores: 0 has 5 left, 5 + 2 = 7.
TEST_CASE("a message takes no core while it waits for its partner") {
  const Schedule s = test::hand_made(2, problem, [](ProgramBuilder& b) {
    if (b.rank() == Rank(0)) {
      kernel(b, 10);
      swap(b, 2);
    } else {
      b.op(compute_stream,
           Copy{.kind = CopyKind::cast, .from = tile(b, "from", 5), .to = tile(b, "mine", 2)});
      b.op(first_stream, Exchange{.to = Rank(0),
                                  .from = Rank(0),
                                  .send = {BufferId(1)},
                                  .receive = {tile(b, "theirs", 2)}});
    }
  });
  CHECK(end_ms(run(cores(1), s), 0, 0) == Approx(12).epsilon(1e-12));
  // The NCCL way, for GPUs: SMs are held while the communication kernel waits, too.
}

// Each of four ranks sends 3 blocks: 3 ms with a core each; on one core 4 * 3.
TEST_CASE("a collective takes its share once, not once for each peer") {
  const Schedule s = test::one_all_to_all(4, block);
  CHECK(run(cores(1), s).makespan.count() == Approx(3e-3).epsilon(1e-12));
  CHECK(run(cores(1, 1), s).makespan.count() == Approx(12e-3).epsilon(1e-12));
  CHECK(run(cores(0.25, 1), s).makespan.count() == Approx(3e-3).epsilon(1e-12));
}

// The copy reads and writes 2 blocks: 4 ms, beside a kernel of 10.
TEST_CASE("an exchange with itself runs on the rank's core") {
  const Schedule s = test::hand_made(1, problem, [](ProgramBuilder& b) {
    kernel(b, 10);
    b.op(first_stream, Exchange{.to = b.rank(),
                                .from = b.rank(),
                                .send = {tile(b, "a", 2)},
                                .receive = {tile(b, "b", 2)}});
  });
  const Simulation result = run(cores(1), s);
  CHECK(end_ms(result, 0, 1) == Approx(8).epsilon(1e-12));
  CHECK(end_ms(result, 0, 0) == Approx(14).epsilon(1e-12));
  CHECK(result.messages == 0);
}

TEST_CASE("cores are a link of a node, of some or of all, if ranks must share them") {
  const auto cluster = [](int per_node, int nodes, int shared, int nodes_on_cores) {
    PlainMachine plain = cores(1, shared);
    plain.gpus_per_node = per_node;
    plain.nodes_on_cores = nodes_on_cores;
    return Cluster(test::machine(plain), nodes, nodes * per_node);
  };
  const Cluster node = cluster(4, 2, 2, 1);
  CHECK(node.link(LinkKind::cores, 0) == node.link(LinkKind::cores, 3));
  CHECK(node.link(LinkKind::cores, 3) != node.link(LinkKind::cores, 4));
  CHECK(node.ranks_per_core() == 2);
  const Cluster all = cluster(4, 2, 2, 0);
  CHECK(all.link(LinkKind::cores, 0) == all.link(LinkKind::cores, 7));
  CHECK(all.ranks_per_core() == 4);
  const Cluster two = cluster(2, 4, 1, 2);
  CHECK(two.link(LinkKind::cores, 0) == two.link(LinkKind::cores, 3));
  CHECK(two.link(LinkKind::cores, 3) != two.link(LinkKind::cores, 4));
  CHECK(two.link(LinkKind::cores, 4) == two.link(LinkKind::cores, 7));
  CHECK(two.ranks_per_core() == 4);
  const Cluster enough = cluster(4, 2, 4, 1);
  CHECK_FALSE(enough.link(LinkKind::cores, 0).valid());
  CHECK(enough.ranks_per_core() == 1);
}

// Kernels of 6 that take 4 GB/s each: on 12 GB/s three of them run at full speed, on 6 at half.
TEST_CASE("kernels that stream share the memory of their GPU") {
  const Schedule s = test::hand_made(3, problem, [](ProgramBuilder& b) { kernel(b, 6); });
  CHECK(run(device(12e9), s).makespan.count() == Approx(6e-3).epsilon(1e-12));
  CHECK(run(device(6e9), s).makespan.count() == Approx(12e-3).epsilon(1e-12));
}

// 16 MB at 4 GB/s take 4; read and written they are 8 GB/s: on 4 GB/s of memory 8.
TEST_CASE("a message reads and writes the memory") {
  const Schedule alone =
      test::hand_made(2, problem, [](ProgramBuilder& b) { send(b, Rank(0), Rank(1), 4); });
  CHECK(run(device(8e9), alone).makespan.count() == Approx(4e-3).epsilon(1e-12));
  CHECK(run(device(4e9), alone).makespan.count() == Approx(8e-3).epsilon(1e-12));
}

TEST_CASE("what fits into a rank's part of the cache takes nothing of the memory") {
  const Schedule s = test::hand_made(3, problem, [](ProgramBuilder& b) { kernel(b, 6); });
  // A kernel of 6 touches 6 + 6 blocks of 4 MB; a third of the cache is a rank's.
  CHECK(run(device(6e9, true, Bytes(3 * 48'000'000)), s).makespan.count() ==
        Approx(6e-3).epsilon(1e-12));
  CHECK(run(device(6e9, true, Bytes(3 * 47'000'000)), s).makespan.count() ==
        Approx(12e-3).epsilon(1e-12));
  const Schedule message =
      test::hand_made(2, problem, [](ProgramBuilder& b) { send(b, Rank(0), Rank(1), 4); });
  CHECK(run(device(4e9, true, Bytes(2 * 32'000'000)), message).makespan.count() ==
        Approx(4e-3).epsilon(1e-12));
}

TEST_CASE("ranks that use a GPU's SMs in turn take as many times as long as they are") {
  const Schedule s = test::hand_made(3, problem, [](ProgramBuilder& b) { kernel(b, 6); });
  CHECK(run(device(100e9, false), s).makespan.count() == Approx(18e-3).epsilon(1e-12));
}

TEST_CASE("a GPU's memory is a link of the ranks that share it, whatever nodes are emulated") {
  PlainMachine plain = device(1e9);
  plain.gpus_per_node = 2;
  const Cluster emulated(test::machine(plain), 4, 8);
  CHECK(emulated.link(LinkKind::memory, 0) == emulated.link(LinkKind::memory, 3));
  CHECK(emulated.link(LinkKind::memory, 3) != emulated.link(LinkKind::memory, 4));
  CHECK_FALSE(emulated.link(LinkKind::cores, 0).valid());
  plain.split = false;
  const Cluster in_turn(test::machine(plain), 4, 8);
  CHECK(in_turn.ranks_per_core() == 4);
  CHECK(in_turn.link(LinkKind::cores, 4) == in_turn.link(LinkKind::cores, 7));
}

TEST_CASE("a shared GPU that does not fit its machine is refused") {
  const auto refused = [](auto change) {
    MachineSpec m = test::machine(device(1e9));
    change(m);
    try {
      check(m, "m");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  using Catch::Matchers::ContainsSubstring;
  CHECK(refused([](MachineSpec&) {}) == "taken");
  CHECK_THAT(refused([](MachineSpec& m) { m.device->ranks.value = 3; }),
             ContainsSubstring("m: device.ranks: 3 ranks of a GPU and 8 of a node"));
  CHECK_THAT(refused([](MachineSpec& m) { m.device.reset(); }),
             ContainsSubstring("m: device: is missing"));
  CHECK_THAT(refused([](MachineSpec& m) { m.device->memory_bandwidth.value = Bandwidth(0); }),
             ContainsSubstring("device.memory_bandwidth"));
}
