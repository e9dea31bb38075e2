// Speed of the flow solver on the traffic of sequence parallelism: the cases and numbers of
// bench/simgrid/simgrid_bench.cpp (64 MB blocks, 50 GB/s ports), without its actors.
//
//   flow_network_bench --benchmark_filter='all_to_all/1024'
//
// all_to_all   P(P-1) flows, each on a route of its own, start at once; until the last one ends.
//              Arguments: P, jitter of the sizes in percent, staleness in percent.
//              star: one switch; fat_tree: leaves of 8 ports, 4 uplinks each (2:1), spine = dst
//              mod 4.
// ring         P flows to the right neighbour start at once and end together, 64 steps.
//
// Counters: ns_per_flow (wall), simulated seconds, fillings (components solved), peak RSS of the
// process so far: run one case alone to read it.
#include "sim/flow_network.hpp"

#include <benchmark/benchmark.h>

#include <sys/resource.h>

#include <array>
#include <cstdint>
#include <vector>

namespace {

using spp::LinkId;
using spp::sim::FlowNetwork;
using spp::sim::RouteId;
using spp::sim::Usage;

constexpr double port = 50e9;  // bytes/s
constexpr double block = 64e6;
constexpr std::uint32_t leaf_ports = 8;
constexpr std::uint32_t uplinks = 4;

/// The jitter of simgrid_bench.cpp: a value in [-1, 1) for a pair.
double frac(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15ULL + b * 0xBF58476D1CE4E5B9ULL + 0x94D049BB133111EBULL;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 29;
  x *= 0x94D049BB133111EBULL;
  x ^= x >> 32;
  return static_cast<double>(x >> 11) * (2.0 / 9007199254740992.0) - 1.0;
}

enum class Topology { star, fat_tree };

/// Links of P ports: out, in, then up and down links of each leaf.
struct Fabric {
  Topology topology;
  std::uint32_t ports;

  [[nodiscard]] std::uint32_t links() const {
    return 2 * ports + (topology == Topology::fat_tree ? 2 * uplinks * (ports / leaf_ports) : 0);
  }
  void add_links(FlowNetwork& network) const {
    for (std::uint32_t i = 0; i < links(); ++i) {
      network.add_link(port);
    }
  }
  [[nodiscard]] RouteId add_route(FlowNetwork& network, std::uint32_t from,
                                  std::uint32_t to) const {
    const auto link = [](std::uint32_t i) { return Usage{LinkId(std::size_t{i})}; };
    const std::uint32_t spine = to % uplinks;
    const std::uint32_t up = 2 * ports + 2 * (from / leaf_ports * uplinks + spine);
    const std::uint32_t down = 2 * ports + 2 * (to / leaf_ports * uplinks + spine) + 1;
    if (topology == Topology::star || from / leaf_ports == to / leaf_ports) {
      return network.add_route(std::array{link(from), link(ports + to)});
    }
    return network.add_route(std::array{link(from), link(up), link(down), link(ports + to)});
  }
};

double peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void run_to_end(FlowNetwork& network) {
  while (network.active_flows() > 0) {
    benchmark::DoNotOptimize(network.advance_to(network.next_completion()).data());
  }
}

void all_to_all(benchmark::State& state, Topology topology) {
  const Fabric fabric{topology, static_cast<std::uint32_t>(state.range(0))};
  const double jitter = static_cast<double>(state.range(1)) / 100;
  const double staleness = static_cast<double>(state.range(2)) / 100;
  const std::size_t flows = std::size_t{fabric.ports} * (fabric.ports - 1);
  double simulated = 0;
  double fillings = 0;
  double filled = 0;
  for (auto _ : state) {
    FlowNetwork network({.rate_staleness = staleness});
    fabric.add_links(network);
    network.reserve(flows, topology == Topology::star ? 2 * flows : 4 * flows, flows);
    for (std::uint32_t from = 0; from < fabric.ports; ++from) {
      for (std::uint32_t step = 1; step < fabric.ports; ++step) {
        const std::uint32_t to = (from + step) % fabric.ports;
        network.start({.route = fabric.add_route(network, from, to),
                       .volume = block * (1 + jitter * frac(from, step)),
                       .token = step});
      }
    }
    run_to_end(network);
    simulated = network.now().count();
    fillings = static_cast<double>(network.statistics().fillings);
    filled = static_cast<double>(network.statistics().filled_routes);
  }
  state.counters["simulated_s"] = simulated;
  state.counters["fillings"] = fillings;
  state.counters["filled_routes"] = filled;
  state.counters["peak_rss_mib"] = peak_rss_mib();
  state.counters["flow_time"] =
      benchmark::Counter(static_cast<double>(flows), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}

void ring(benchmark::State& state) {
  const Fabric fabric{Topology::star, static_cast<std::uint32_t>(state.range(0))};
  FlowNetwork network;
  fabric.add_links(network);
  std::vector<RouteId> right;
  for (std::uint32_t i = 0; i < fabric.ports; ++i) {
    right.push_back(fabric.add_route(network, i, (i + 1) % fabric.ports));
  }
  constexpr int steps = 64;
  for (auto _ : state) {
    for (int step = 0; step < steps; ++step) {
      for (const RouteId route : right) {
        network.start({.route = route, .volume = block});
      }
      run_to_end(network);
    }
  }
  state.counters["flow_time"] = benchmark::Counter(
      steps * static_cast<double>(fabric.ports),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(all_to_all, star, Topology::star)
    ->ArgNames({"P", "jitter_pct", "stale_pct"})
    ->Args({64, 0, 0})
    ->Args({64, 5, 0})
    ->Args({64, 5, 2})
    ->Args({1024, 0, 0})
    ->Args({1024, 5, 2})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(all_to_all, fat_tree, Topology::fat_tree)
    ->ArgNames({"P", "jitter_pct", "stale_pct"})
    ->Args({1024, 0, 0})
    ->Args({1024, 5, 2})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(ring)->Arg(64)->Arg(1024)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
