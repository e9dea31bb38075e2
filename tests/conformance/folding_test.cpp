// Simulating one rank of each orbit gives what simulating all ranks gives: for every strategy, on
// clusters whose symmetry is whole, partly broken, or none of the plan's.
#include "schedule/breakdown.hpp"
#include "schedule/measure.hpp"
#include "sim/rank_window.hpp"
#include "sim/simulate.hpp"
#include "tests/conformance/layer_cases.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/worlds.hpp"

#include <array>
#include <cmath>
#include <map>

using namespace spp;
using namespace spp::sim;
using Catch::Approx;
using test::Case;
using test::PlainMachine;

namespace {

struct World {
  std::string name;
  PlainMachine machine;
  RankOrder order = RankOrder::block;
};

/// Clusters that `ranks` ranks fill. Rates are small, so that the small tiles of the cases take
/// time.
std::vector<World> worlds(int ranks) {
  const PlainMachine node{.gpus_per_node = ranks,
                          .port = Bandwidth(3e6),
                          .latency = Seconds(7e-6),
                          .hop = Seconds(1e-6),
                          .nic = Bandwidth(1e6),
                          .nic_latency = Seconds(11e-6),
                          .nic_hop = Seconds(2e-6)};
  PlainMachine cores = node;  // CPU ranks: copying takes core time, and ranks share cores
  cores.cpu_share = 0.8;
  cores.network_cpu_share = 0.3;
  std::vector<World> list{{"one node", node}, {"cores of their own", cores}};
  cores.cores = (ranks + 1) / 2;
  list.push_back({"shared cores", cores});
  if (ranks % 2 == 0 && ranks > 2) {
    PlainMachine pcie = node;
    pcie.sockets = 2;
    pcie.bridge = Bandwidth(2e6);
    pcie.socket_link = Bandwidth(1.7e6);
    list.push_back({"PCIe, two sockets", pcie});
    PlainMachine two = node;
    two.gpus_per_node = ranks / 2;
    list.push_back({"two nodes", two});
    list.push_back({"two nodes, ranks dealt out", two, RankOrder::cyclic});
    two.gpus_per_nic = ranks / 2;
    list.push_back({"two nodes, shared NIC", two});
    list.push_back({"two nodes, shared NIC, ranks dealt out", two, RankOrder::cyclic});
    cores.gpus_per_node = ranks / 2;
    cores.cores = ranks / 4 + 1;
    list.push_back({"two nodes of shared cores, ranks dealt out", cores, RankOrder::cyclic});
    cores.gpus_per_nic = ranks / 2;
    cores.nodes_on_cores = 0;
    list.push_back({"two nodes emulated on the same cores", cores});
  }
  if (ranks % 4 == 0) {
    PlainMachine four = node;
    four.gpus_per_node = ranks / 4;
    list.push_back({"four nodes", four});
    list.push_back({"four nodes, ranks dealt out", four, RankOrder::cyclic});
    cores.gpus_per_node = ranks / 4;
    cores.gpus_per_nic = 1;
    cores.nodes_on_cores = 2;
    list.push_back({"four nodes, two emulated on the same cores", cores});
    four.nodes_per_leaf = 2;
    four.oversubscription = 2;
    list.push_back({"four nodes, fat tree 2:1", four});
  }
  return list;
}

/// Some time per FLOP and per byte, so that kernels differ as much as their shapes do.
SimulationCosts costs(double launch) {
  SimulationCosts costs{.kernel =
                            [](const Kernel& kernel, const Shapes& shapes) {
                              return Seconds(1e-6 + attention_flops(kernel, shapes).value() * 3e-9 +
                                             touched_bytes(kernel, shapes).as_double() * 2e-8);
                            },
                        .local_copy = Bandwidth(20e6),
                        .sm_share = {0, 0.125, 0.0625}};
  costs.host.fill(Seconds(launch));
  return costs;
}

void check_same(Seconds a, Seconds b, Seconds scale) {
  CHECK(a.count() == Approx(b.count()).epsilon(0).margin(1e-12 * scale.count()));
}

/// What ranks sent, by the timeline, against what their programs say.
void check_bytes(const Simulation& s, const Schedule& schedule) {
  std::map<Rank, std::int64_t> sent;
  for (const TimelineEvent& e : s.timeline.events) {
    sent[e.rank] += is_transfer(e.kind) ? e.bytes : 0;
  }
  std::array<Bytes, comm_kinds> of_most{};
  Bytes most(-1);
  for (const Rank rank : s.representatives) {
    const Totals totals = totals_of(schedule.program(rank), schedule.contract.attention, rank);
    Bytes all{};
    for (const Bytes b : totals.sent) {
      all += b;
    }
    CHECK(sent[rank] == all.value());
    if (all > most) {
      most = all;
      of_most = totals.sent;
    }
  }
  CHECK(s.sent == of_most);
}

struct Count {
  int cases = 0, folded = 0;
};

/// What the simulator counts on its way is what its timeline says, as a measured one would be read.
void check_account(const Simulation& s, const Schedule& schedule) {
  const Breakdown b =
      breakdown_of(s.timeline, store(schedule), sim::RankWindow::lookahead_of(schedule));
  check_same(b.attention, s.breakdown.attention, s.makespan);
  check_same(b.gemm, s.breakdown.gemm, s.makespan);
  check_same(b.other_kernels, s.breakdown.other_kernels, s.makespan);
  check_same(b.exposed + b.imbalance, s.breakdown.exposed + s.breakdown.imbalance, s.makespan);
  // In which order things happened at one instant a timeline does not say.
  CHECK(std::abs(b.imbalance / s.makespan - s.breakdown.imbalance / s.makespan) < 2e-3);
  check_same(b.hidden, s.breakdown.hidden, s.makespan);
  check_same(b.launch_bound, s.breakdown.launch_bound, s.makespan);
  check_same(b.total(), s.makespan, s.makespan);
}

void check_schedule(const Schedule& schedule, const World& world, Count& count) {
  const int ranks = schedule.mesh.size();
  const Cluster cluster(test::machine(world.machine), ranks / world.machine.gpus_per_node, ranks);
  const Placement placement(cluster, ranks, world.order);
  const bool launches = count.cases % 3 == 0;
  const SimulationCosts cost = costs(launches ? 4e-6 : 0.0);
  const Simulation all = simulate(schedule, placement, cost, {.fold = false, .timeline = true});
  const Simulation few = simulate(schedule, placement, cost, {.fold = true, .timeline = true});
  const Seconds scale = all.makespan;
  if (!launches) {  // a timeline does not say how much later than it could an op was issued
    check_account(all, schedule);
    CHECK(all.breakdown.launch_bound == Seconds(0));  // such a host keeps nobody waiting
  }
  check_same(few.makespan, all.makespan, scale);
  check_same(few.breakdown.attention, all.breakdown.attention, scale);
  check_same(few.breakdown.other_kernels, all.breakdown.other_kernels, scale);
  check_same(few.breakdown.exposed, all.breakdown.exposed, scale);
  check_same(few.breakdown.imbalance, all.breakdown.imbalance, scale);
  check_same(few.breakdown.hidden, all.breakdown.hidden, scale);
  check_same(few.breakdown.launch_bound, all.breakdown.launch_bound, scale);
  CHECK(few.ops * few.folded == all.ops);
  CHECK(few.messages * few.folded == all.messages);
  CHECK(few.sent == all.sent);
  for (std::size_t i = 0; i < few.representatives.size(); ++i) {
    check_same(few.rank_end[i], all.rank_end.at(few.representatives[i].index()), scale);
  }
  check_bytes(few, schedule);
  check_bytes(all, schedule);
  ++count.cases;
  count.folded += few.folded > 1 ? 1 : 0;
}

void check_case(const Case& c, const World& world, Count& count) {
  check_schedule(c.build(), world, count);
}

}  // namespace

TEST_CASE("a folded simulation equals the unfolded one") {
  Count count;
  for (const int ranks : {2, 3, 4, 6, 8, 12, 16}) {
    for (const Case& c : test::cases(ranks, ranks <= 8 ? 24 : 8)) {
      for (const World& world : worlds(ranks)) {
        INFO(c.text() << " | " << world.name);
        check_case(c, world, count);
      }
    }
  }
  CHECK(count.folded > count.cases / 4);  // or the test tests nothing
}

TEST_CASE("a folded simulation of documents that are dealt out equals the unfolded one") {
  Count count;
  for (const int ranks : {4, 6}) {
    for (const Case& c : test::document_cases(ranks, 16)) {
      for (const World& world : worlds(ranks)) {
        INFO(c.text() << " | " << world.name);
        check_case(c, world, count);
      }
    }
  }
  CHECK(count.folded > 0);
}

TEST_CASE("a folded simulation equals the unfolded one on 64 ranks") {
  Count count;
  for (const Case& c : test::cases(64, 1)) {
    for (const World& world : worlds(64)) {
      INFO(c.text() << " | " << world.name);
      check_case(c, world, count);
    }
  }
}

TEST_CASE("a folded simulation of whole steps equals the unfolded one") {
  Count count;
  test::OneIn some(3 * test::halving);
  for (const int tensor : {1, 2}) {
    for (const int sequence : {1, 2, 4}) {
      for (const test::StepCase& c : test::step_cases(sequence, tensor, 3)) {
        for (const World& world : worlds(c.plan().ranks())) {
          if (!some.takes()) {
            continue;
          }
          INFO(c.text() << " | " << world.name);
          check_schedule(c.build(), world, count);
        }
      }
    }
  }
  CHECK(count.folded > 10 / test::halving);
}

// Nodes of six ranks dealt out over four nodes: a turn of the replicas by one gives each node other
// indices in the ring of all.
TEST_CASE("a folded simulation of a step in groups of odd sizes equals the unfolded one") {
  Count count;
  test::StepCase step{.layer = test::small_layer(), .zero = 3, .replicas = 4};
  Problem& problem = step.layer.attention.problem;
  problem.seq = 24;
  problem.q_heads = problem.kv_heads = 12;
  step.layer.attention.plan = {.strategy = "ulysses", .ulysses = 3};
  for (const World& world : worlds(step.plan().ranks())) {
    INFO(world.name);
    check_schedule(step.build(), world, count);
  }
  CHECK(count.folded == count.cases);
}

TEST_CASE("a folded simulation of steps whose shards have copies equals the unfolded one") {
  Count count;
  for (const test::StepCase& c : test::hybrid_cases()) {
    const int group = c.plan().shard_ranks();
    const int replica = c.plan().model_ranks();
    if (group % replica != 0 && replica % group != 0) {
      const bool tensor_alike = c.expert_groups == 1;
      CHECK(c.build().symmetry == (tensor_alike
                                       ? std::vector{SymmetricAxis{"tensor", AxisMoves::equal}}
                                       : std::vector<SymmetricAxis>{}));
      // Nothing to fold. Of such steps the timeline's account counts up to 4 % more or less as
      // imbalance than the simulator's, at instants at which ranks that wait for each other meet.
      continue;
    }
    for (const World& world : worlds(c.plan().ranks())) {
      INFO(c.text() << " | " << world.name);
      check_schedule(c.build(), world, count);
    }
  }
  CHECK(count.folded > 4);
}

// What waits for whom at the turns of rings through all ranks differs a little; latent attention's
// matrices that are whole on every tensor rank turn in them, too.
TEST_CASE("a step whose tensor ranks are alike takes nearly as long as it does") {
  int folded = 0;
  test::OneIn some(3 * test::halving);
  for (const int tensor : {2, 4}) {
    for (const int sequence : {1, 2, 4}) {
      for (const test::StepCase& c : test::step_cases(sequence, tensor, 3)) {
        for (const World& world : worlds(c.plan().ranks())) {
          if (world.machine.cpu_share > 0 || !some.takes()) {
            continue;  // ranks that share cores wait for each other in other ways
          }
          INFO(c.text() << " | " << world.name);
          const Schedule schedule = c.build();
          const int ranks = schedule.mesh.size();
          const Cluster cluster(test::machine(world.machine), ranks / world.machine.gpus_per_node,
                                ranks);
          const Placement placement(cluster, ranks, world.order);
          const Folding alike = Folding::largest(schedule, placement, true);
          const SimulationCosts cost = costs(0);
          const Simulation all = simulate(schedule, placement, cost, {.fold = false});
          const Simulation few = simulate(schedule, placement, cost, {.folding = &alike});
          const double ratio = few.makespan / all.makespan;
          const double limit = c.layer.latent ? 0.05 : 0.02;
          CHECK(std::abs(ratio - 1) < limit);
          folded += alike.size() > 1 ? 1 : 0;
        }
      }
    }
  }
  CHECK(folded > 10 / test::halving);
}

TEST_CASE("loops that are like another are simulated as what they are, bit for bit") {
  for (const int zero : {1, 2}) {
    test::StepCase step{.layer = test::small_layer(),
                        .zero = zero,
                        .replicas = 2,
                        .pipeline = {.stages = 2, .micro_batches = 7}};
    step.layer.attention.problem.seq = 16;
    const Schedule likes = step.build();
    Schedule unlike = likes;
    unlike.program = [&](Rank rank) {
      Program program = likes.program(rank);
      for (Loop& loop : program.loops) {
        loop.like = Loop::none;
      }
      return program;
    };
    for (const World& world : worlds(likes.mesh.size())) {
      INFO(world.name);
      const int ranks = likes.mesh.size();
      const Cluster cluster(test::machine(world.machine), ranks / world.machine.gpus_per_node,
                            ranks);
      const Placement placement(cluster, ranks, world.order);
      const Simulation a = simulate(likes, placement, costs(2e-6), {.timeline = true});
      const Simulation b = simulate(unlike, placement, costs(2e-6), {.timeline = true});
      CHECK(a.makespan == b.makespan);
      CHECK(a.breakdown == b.breakdown);
      CHECK(a.sent_on == b.sent_on);
      CHECK(a.timeline.events == b.timeline.events);
    }
  }
}

TEST_CASE("two simulations of one schedule are the same, bit for bit") {
  for (const Case& c : test::cases(8, 6)) {
    for (const World& world : worlds(8)) {
      INFO(c.text() << " | " << world.name);
      const Schedule schedule = c.build();
      const Cluster cluster(test::machine(world.machine), 8 / world.machine.gpus_per_node, 8);
      const Placement placement(cluster, 8, world.order);
      const SimulationCosts cost = costs(2e-6);
      const SimulationOptions options{.fold = false, .timeline = true};
      const Simulation a = simulate(schedule, placement, cost, options);
      const Simulation b = simulate(schedule, placement, cost, options);
      CHECK(a.makespan == b.makespan);
      CHECK(a.rank_end == b.rank_end);
      CHECK(a.breakdown == b.breakdown);
      CHECK(a.timeline.events == b.timeline.events);
    }
  }
}

// Causal rings in balanced layouts: ranks differ in what their tiles look like, and in what they
// merge. As if all were like those at the slower end, the call takes as long as it does or longer.
TEST_CASE("a ring whose ranks are alike takes no less than it does, and little more") {
  constexpr int ranks = 16;
  int seen = 0;
  double most = 0;
  for (const Layout layout : {Layout::zigzag, Layout::striped, Layout::document_zigzag}) {
    Problem problem{.seq = 2048,
                    .q_heads = 4,
                    .kv_heads = 2,
                    .head_dim = 16,
                    .mask = {.kind = MaskKind::causal}};
    if (layout == Layout::document_zigzag) {
      problem.mask.document_ends = {900, 1000, 2048};
    }
    const SequencePlan plan{.strategy = layout == Layout::striped ? "striped-ring" : "zigzag-ring",
                            .ring = ranks,
                            .layout = layout};
    for (const World& world : worlds(ranks)) {
      if (world.machine.cpu_share > 0) {
        continue;  // ranks that share cores wait for each other in other ways
      }
      const Cluster cluster(test::machine(world.machine), ranks / world.machine.gpus_per_node,
                            ranks);
      const Placement placement(cluster, ranks, world.order);
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        const Schedule schedule =
            strategies::by_name(plan.strategy, "test").build(problem, plan, phase, {});
        CHECK(Folding::largest(schedule, placement).size() == 1);
        const Folding alike = Folding::largest(schedule, placement, true);
        if (!alike.alike()) {
          continue;
        }
        CHECK(alike.size() > 1);
        const SimulationCosts cost = costs(0);
        const Simulation all = simulate(schedule, placement, cost, {.fold = false});
        const Simulation few = simulate(schedule, placement, cost, {.folding = &alike});
        INFO(world.name << ", " << plan.strategy << " " << to_string(phase));
        const double ratio = few.makespan / all.makespan;
        // At some lengths (2112 tokens striped, these documents) ranks between the ends wait for
        // each other a little longer.
        CHECK(ratio > (layout == Layout::document_zigzag ? 1 - 2e-3 : 1 - 1e-9));
        most = std::max(most, ratio);
        ++seen;
      }
    }
  }
  CHECK(seen > 8);
  CHECK(most < 1.05);
}
