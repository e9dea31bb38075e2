// Simulation == closed-form timing, on networks where nobody is in nobody's way and with kernels
// that take given times. The formulas come from the dependencies of the schedules, derived above
// each.
//
// Seconds of one kernel: a attention, m merge, s accumulate, c cast, p pack or unpack, d row dot,
// r rescale or reorder. Of one communication: e exchange, x all-to-all, g all-gather.
// R ring, P ranks, B the port's rate.
#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/double_ring_core.hpp"
#include "parallel/attention/strategy.hpp"
#include "sim/simulate.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/worlds.hpp"

#include <algorithm>

using namespace spp;
using namespace spp::sim;
using Catch::Approx;

namespace {

struct Kernels {
  double a = 0, m = 0, s = 0, c = 0, p = 0, d = 0, r = 0;

  [[nodiscard]] double copy(CopyKind kind) const {
    return kind == CopyKind::cast ? c : kind == CopyKind::reorder ? r : p;
  }
  [[nodiscard]] SimulationCosts costs() const {
    return {.kernel = [k = *this](const Kernel& kernel, const Shapes&) {
      return Seconds(std::visit(
          Overloaded{[&](const AttentionForward&) { return k.a; },
                     [&](const AttentionBackward&) { return k.a; },
                     [&](const Merge&) { return k.m; }, [&](const Accumulate&) { return k.s; },
                     [&](const RowDot&) { return k.d; }, [&](const Rescale&) { return k.r; },
                     [&](const Copy& o) { return k.copy(o.kind); }, [](const Fill&) { return 0.0; },
                     [](const auto&) -> double {
                       throw InternalError("a kernel that none of these strategies has");
                     }},
          kernel));
    }};
  }
};

constexpr double port = 10e9;
constexpr double tile = 4e6;  // bytes: one head of one rank's 1000 tokens

struct Case {
  SequencePlan plan;
  int heads = 1;
  Phase phase = Phase::forward;
  Kernels kernels;
  double latency = 0;
  double hop = 0;
  double nic = 0;  // bytes/s; above 0: windows of the double ring are nodes
};

/// Makespan under the full mask; folded and unfolded must agree.
double simulated(const Case& c) {
  const int ranks = c.plan.ranks();
  const Problem problem = test::round_problem(1000 * ranks, c.heads);
  const Strategy& strategy = strategies::by_name(c.plan.strategy, "case");
  REQUIRE(why_not(strategy, problem, c.plan).detail == "");
  const Schedule schedule = strategy.build(problem, c.plan, c.phase, {.gradient = DType::fp32});
  const int nodes = c.nic > 0 ? ranks / c.plan.own[parameters::window] : 1;
  const Cluster cluster(test::machine({.gpus_per_node = ranks / nodes,
                                       .port = Bandwidth(port),
                                       .latency = Seconds(c.latency),
                                       .hop = Seconds(c.hop),
                                       .nic = Bandwidth(c.nic > 0 ? c.nic : port),
                                       .nic_latency = Seconds(c.latency)}),
                        nodes, ranks);
  const Placement placement(cluster, ranks, RankOrder::block);
  const double folded = simulate(schedule, placement, c.kernels.costs()).makespan.count();
  const double unfolded =
      simulate(schedule, placement, c.kernels.costs(), {.fold = false}).makespan.count();
  CHECK(folded == Approx(unfolded).epsilon(1e-12));
  return unfolded;
}

Approx exactly(double value) { return Approx(value).epsilon(1e-9).margin(0); }

constexpr std::array latencies{0.0, 25e-6};

}  // namespace

// Step i attends to what exchange i-1 brought; exchange i begins with the end of exchange i-1 and
// of attention i-1, whose buffer it fills.
//   e <= a+m   every exchange is hidden:                            R (a+m) + c
//   e >= a+m   exchanges follow each other; behind the last of them: e + a + m + c
TEST_CASE("forward ring: (R-1) e + a + m + c if communication binds, R (a+m) + c if not") {
  for (const int ring : {2, 3, 4, 7, 16}) {
    for (const double latency : latencies) {
      for (const int heads : {1, 5}) {
        const double e = latency + 2 * heads * tile / port;
        for (const double ratio : {0.1, 0.5, 0.99, 1.0, 1.01, 3.0, 20.0}) {
          const Kernels k{.a = 0.8 * e * ratio, .m = 0.2 * e * ratio, .c = 0.1 * e};
          const double step = k.a + k.m;
          const double expected = step >= e ? ring * step + k.c : (ring - 1) * e + step + k.c;
          CHECK(simulated({.plan = {.strategy = "ring", .ring = ring},
                           .heads = heads,
                           .kernels = k,
                           .latency = latency}) == exactly(expected));
        }
      }
    }
  }
}

// Row dot, then R steps of attention and three sums. The gradients of step i-1 pass on beside the
// attention of step i and are needed by its second sum; k and v of the next step pass on as well.
// Both share the port: hidden if both together fit beside one attention, (e + g) <= a. Behind the
// last step the gradients go home (alone), beside the cast of d_q; then the casts of d_k and d_v.
TEST_CASE("backward ring: d + R (a+3s) + max(g, c) + 2c if computing binds") {
  for (const int ring : {2, 3, 4, 7, 16}) {
    for (const double latency : latencies) {
      const double e = latency + 2 * tile / port;
      for (const double cast : {0.1 * e, 2 * e}) {
        const Kernels k{.a = 2.5 * e, .s = 0.1 * e, .c = cast, .d = 0.3 * e};
        CHECK(simulated({.plan = {.strategy = "ring", .ring = ring},
                         .phase = Phase::backward,
                         .kernels = k,
                         .latency = latency}) ==
              exactly(k.d + ring * (k.a + 3 * k.s) + std::max(e, k.c) + 2 * k.c));
      }
    }
  }
}

// q, k and v are packed one after the other, and each is sent as soon as it is packed, one after
// the other: a pipeline of two stages, p + 2 max(p, x) + x. Then attention, the way back,
// unpacking. An all-to-all sends P-1 tiles of heads/P heads at the port's rate.
TEST_CASE("Ulysses: p + 2 max(p, x) + x + a + x + p") {
  for (const int ranks : {2, 4, 8}) {
    for (const double latency : latencies) {
      const int heads = 2 * ranks;
      const double x = latency + (ranks - 1) * 2 * tile / port;
      for (const double pack : {0.0, 0.4 * x, x, 1.7 * x}) {
        const Kernels k{.a = 3 * x, .p = pack};
        CHECK(simulated({.plan = {.strategy = "ulysses", .ulysses = ranks},
                         .heads = heads,
                         .kernels = k,
                         .latency = latency}) ==
              exactly(k.p + 2 * std::max(k.p, x) + x + k.a + x + k.p));
      }
    }
  }
}

// k, then v: each a ring that carries R-1 tiles after R-1 hops. Under the zigzag layout k is
// reordered beside the gather of v.
TEST_CASE("all-gather: 2 g + a; zigzag g + max(g, r) + r + a") {
  for (const int ring : {2, 4, 8}) {
    for (const double latency : latencies) {
      const double hop = latency / 10;
      const double g = latency + (ring - 1) * hop + (ring - 1) * tile / port;
      Case c{.plan = {.strategy = "all-gather", .ring = ring, .layout = Layout::contiguous},
             .kernels = {.a = 2 * g},
             .latency = latency,
             .hop = hop};
      CHECK(simulated(c) == exactly(2 * g + c.kernels.a));
      for (const double reorder : {0.5 * g, 2 * g}) {
        c.plan.layout = Layout::zigzag;
        c.kernels.r = reorder;
        CHECK(simulated(c) == exactly(g + std::max(g, reorder) + reorder + c.kernels.a));
      }
    }
  }
}

// Windows of w ranks are nodes with a NIC per GPU, so inner and outer hops do not meet. Computing
// binds while an inner hop fits beside one step and the outer hop o beside a window of w steps. If
// the outer hop binds, a window begins when its hop ends: R/w - 1 of them, then the last window.
TEST_CASE("forward double ring: max(o, w (a+m)) (R/w - 1) + w (a+m) + c") {
  for (const auto& [ring, window] : {std::pair{4, 2}, {8, 2}, {8, 4}, {16, 4}, {64, 32}}) {
    for (const double latency : latencies) {
      const double inner = latency + 2 * tile / port;
      const Kernels k{.a = 1.1 * inner, .m = 0.2 * inner, .c = 0.3 * inner};
      const double in_window = window * (k.a + k.m);
      const int windows = ring / window;
      for (const double ratio : {0.5, 1.0, 1.5, 8.0}) {
        const double outer = ratio * in_window;
        CHECK(simulated({.plan = {.strategy = "double-ring",
                                  .ring = ring,
                                  .own = {{&parameters::window, window}},
                                  .layout = Layout::contiguous},
                         .kernels = k,
                         .latency = latency,
                         .nic = 2 * tile / (outer - latency)}) ==
              exactly(std::max(outer, in_window) * (windows - 1) + in_window + k.c));
      }
    }
  }
}

// Teams of C gather k and v (g each, C-1 tiles); then the first exchange (2 C tiles) and the gather
// of q share the port, which is busy for both: G + X together, no latency. Then S = R/C^2 steps
// whose hops are hidden, the lse (4 bytes for the 4,000 of a tile's token) of C tiles gathered,
// rescaled, and out scattered (C-1 tiles).
TEST_CASE("forward StarTrail: 2 g + (G+X)/B + S (a+m) + l + r + g") {
  for (const auto& [ring, team] : {std::pair{8, 2}, {16, 2}, {27, 3}}) {
    const double gather = (team - 1) * tile / port;
    const double exchange = 2 * team * tile / port;
    const double lse = (team - 1) * team * tile / 1000 / port;
    const Kernels k{.a = 1.5 * exchange, .m = 0.2 * exchange, .r = 0.1 * exchange};
    const int steps = ring / (team * team);
    CHECK(simulated({.plan = {.strategy = "startrail",
                              .ring = ring,
                              .own = {{&parameters::team, team}},
                              .layout = Layout::contiguous},
                     .kernels = k}) ==
          exactly(2 * gather + gather + exchange + steps * (k.a + k.m) + lse + k.r + gather));
  }
}
