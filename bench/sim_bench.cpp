// Speed of the simulator on the traffic of sequence parallelism, beside SimGrid in one run.
//
//   sim_bench [--filter TEXT] [--max-ranks N] [--simgrid PATH] [--json]
//
// ring      P ranks, P-1 steps: send a block right, receive one from the left, compute 1 ms, all
//           three at once
// ag        ring all-gather as point-to-point steps: the same without computing
// a2a       direct all-to-all: P(P-1) equal messages at once
// jitter    the same with sizes that differ by 5 %, so that every message ends at a time of its
//           own. No schedule has such sizes: runs on FlowNetwork itself, rate_staleness 0.02.
//
// flat      one switch, a 50 GB/s port per rank          } 64 MB blocks; 1 us per link of a route,
// node8     8 ranks with 450 GB/s ports share 400 GB/s   } as in bench/simgrid/simgrid_bench.cpp.
// fattree   leaves of 8 ports of 50 GB/s, 2:1            } A leaf's four cables are one of 200 GB/s
//                                                        here and always cost 4 us.
//
// "folded" simulates one rank of each orbit (sim/folding.hpp), "unfolded" every rank. Each case
// runs in a process of its own, so peak RSS is its own. Seconds are CPU seconds, of the whole
// process; messages per second count what the schedule sends, whether it was simulated rank by rank
// or folded. `--simgrid` runs the driver (target simgrid_bench) on the same cases, except those
// that take it more than a minute.
#include "base/json.hpp"
#include "base/version.hpp"
#include "sim/flow_network.hpp"
#include "tests/support/worlds.hpp"

#include <fmt/core.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace spp;

enum class Pattern { ring, ag, a2a, jitter };
enum class Topology { flat, node8, fattree };
constexpr std::array<std::string_view, 4> pattern_names{"ring", "ag", "a2a", "jitter"};
constexpr std::array<std::string_view, 3> topology_names{"flat", "node8", "fattree"};

struct Case {
  Pattern pattern;
  int ranks;
  Topology topology;
  bool fold;

  [[nodiscard]] std::string_view pattern_name() const {
    return pattern_names.at(static_cast<std::size_t>(pattern));
  }
  [[nodiscard]] std::string_view topology_name() const {
    return topology_names.at(static_cast<std::size_t>(topology));
  }
  [[nodiscard]] std::string_view how() const {
    return pattern == Pattern::jitter ? "stale 2%" : fold ? "folded" : "unfolded";
  }
  [[nodiscard]] std::string name() const {
    return fmt::format("{}/{}/{}/{}", pattern_name(), ranks, topology_name(), how());
  }
  [[nodiscard]] double messages() const { return static_cast<double>(ranks) * (ranks - 1); }
};

struct Measured {
  double simulated = 0;  // seconds
  double wall = 0;       // of building the schedule's cluster and simulating
  double cpu = 0;
  double peak_mib = 0;
  int folded = 1;  // ranks that one stands for
};

constexpr std::int64_t block_tokens = 16'000;  // of 4,000 bytes: 64 MB
constexpr double block_bytes = 64e6;
constexpr double jitter = 0.05;
constexpr double staleness = 0.02;

test::PlainMachine machine_of(Topology topology) {
  switch (topology) {
    case Topology::flat:
      return test::star_machine(Bandwidth(50e9), Seconds(2e-6));
    case Topology::node8:
      return {.port = Bandwidth(450e9),
              .latency = Seconds(2e-6),
              .nic = Bandwidth(400e9),
              .gpus_per_nic = 8,
              .nic_latency = Seconds(4e-6)};
    case Topology::fattree:
      break;
  }
  test::PlainMachine tree = test::star_machine(Bandwidth(50e9), Seconds(4e-6));
  tree.nodes_per_leaf = 8;
  tree.oversubscription = 2;
  return tree;
}

sim::Cluster cluster_of(const Case& c) {
  const test::PlainMachine plain = machine_of(c.topology);
  return {test::machine(plain), c.ranks / plain.gpus_per_node, c.ranks};
}

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

/// P(P-1) flows of sizes of their own. All start after the longest latency.
double jittered_all_to_all(const Case& c) {
  const sim::Cluster cluster = cluster_of(c);
  sim::FlowNetwork network({.rate_staleness = staleness});
  for (const sim::Link& link : cluster.links()) {
    network.add_link(link.capacity.value());
  }
  const auto flows = static_cast<std::size_t>(c.messages());
  network.reserve(flows, 4 * flows, flows);
  std::vector<sim::Usage> usages;
  for (int from = 0; from < c.ranks; ++from) {
    for (int step = 1; step < c.ranks; ++step) {
      usages.clear();
      const sim::Path path = cluster.path(from, (from + step) % c.ranks);
      for (const LinkId link : path.links()) {
        usages.push_back({.link = link});
      }
      const double bytes = block_bytes * (1 + jitter * frac(static_cast<std::uint64_t>(from),
                                                            static_cast<std::uint64_t>(step)));
      network.start({.route = network.add_route(usages), .volume = bytes});
    }
  }
  while (network.active_flows() > 0) {
    network.advance_to(network.next_completion());
  }
  return (network.now() + machine_of(c.topology).nic_latency).count();
}

Measured simulate_case(const Case& c) {
  if (c.pattern == Pattern::jitter) {
    return {.simulated = jittered_all_to_all(c)};
  }
  const Schedule schedule = c.pattern == Pattern::a2a
                                ? test::one_all_to_all(c.ranks, block_tokens)
                                : test::ring_of_steps({.ranks = c.ranks,
                                                       .tokens = block_tokens,
                                                       .steps = c.ranks - 1,
                                                       .compute = c.pattern == Pattern::ring});
  const sim::Cluster cluster = cluster_of(c);
  const sim::Placement placement(cluster, c.ranks, RankOrder::block);
  const sim::Simulation s =
      sim::simulate(schedule, placement, test::every_kernel(Seconds(1e-3)), {.fold = c.fold});
  return {.simulated = s.makespan.count(), .folded = s.folded};
}

/// Runs a case in a child process; nothing if the child failed.
std::optional<Measured> measure(const Case& c) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) {
    return std::nullopt;
  }
  const pid_t child = fork();
  if (child == 0) {
    const auto begin = std::chrono::steady_clock::now();
    Measured m = simulate_case(c);
    m.wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    m.cpu = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
            static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    m.peak_mib = static_cast<double>(usage.ru_maxrss) / 1024;
    const bool written = write(ends[1], &m, sizeof m) == static_cast<ssize_t>(sizeof m);
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  Measured m;
  const bool complete = read(ends[0], &m, sizeof m) == static_cast<ssize_t>(sizeof m);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return complete && status == 0 ? std::optional(m) : std::nullopt;
}

struct Peer {
  double simulated = 0, wall = 0, cpu = 0, peak_mib = 0;
};

/// What takes SimGrid more than a minute: 3.32 needs more than 15 for an all-to-all of 1024 ranks.
bool too_long_for_peer(const Case& c) {
  const int most = c.pattern == Pattern::jitter ? 64 : c.pattern == Pattern::a2a ? 256 : 1024;
  return c.ranks > most;
}

/// The driver on the same case; nothing if it is not asked for it, or failed.
std::optional<Peer> run_peer(const std::string& driver, const Case& c) {
  if (driver.empty() || too_long_for_peer(c)) {
    return std::nullopt;
  }
  const bool jittered = c.pattern == Pattern::jitter;
  const std::string command =
      fmt::format("'{}' {} {} {}{} 2>/dev/null", driver, jittered ? "a2a" : c.pattern_name(),
                  c.ranks, c.topology_name(), jittered ? fmt::format(" --jitter={}", jitter) : "");
  FILE* out = popen(command.c_str(), "r");
  if (out == nullptr) {
    return std::nullopt;
  }
  std::string text;
  for (int character = std::fgetc(out); character != EOF; character = std::fgetc(out)) {
    text.push_back(static_cast<char>(character));
  }
  if (pclose(out) != 0) {
    return std::nullopt;
  }
  const Json answer = parse_json(text, driver);
  return Peer{.simulated = answer.at("sim_s").get<double>(),
              .wall = answer.at("setup_s").get<double>() + answer.at("run_s").get<double>(),
              .cpu = answer.at("cpu_s").get<double>(),
              .peak_mib = answer.at("peak_rss_mib").get<double>()};
}

std::vector<Case> cases(int max_ranks, std::string_view filter) {
  std::vector<Case> list;
  for (const Pattern pattern : {Pattern::ring, Pattern::ag, Pattern::a2a, Pattern::jitter}) {
    for (const int ranks : {64, 256, 1024, 4096}) {
      for (const Topology topology : {Topology::flat, Topology::node8, Topology::fattree}) {
        for (const bool fold : {true, false}) {
          const Case c{.pattern = pattern, .ranks = ranks, .topology = topology, .fold = fold};
          const bool there = ranks <= 1024 || pattern == Pattern::ring;
          if (there && ranks <= max_ranks && !(pattern == Pattern::jitter && fold) &&
              c.name().find(filter) != std::string::npos) {
            list.push_back(c);
          }
        }
      }
    }
  }
  return list;
}

/// "Intel(R) Xeon(R) …, 2026-11-21, commit 0123abc"
std::string where_and_when() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  std::string cpu = "unknown CPU";
  while (std::getline(info, line)) {
    if (line.starts_with("model name")) {
      cpu = line.substr(line.find(':') + 2);
      break;
    }
  }
  const std::time_t now = std::time(nullptr);
  std::array<char, 16> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%d", std::gmtime(&now));
  return fmt::format("{}, {}, commit {}", cpu, date.data(), commit());
}

Json to_json(const Case& c, const Measured& m, const std::optional<Peer>& peer) {
  Json row = {{"case", c.name()},
              {"pattern", c.pattern_name()},
              {"ranks", c.ranks},
              {"topology", c.topology_name()},
              {"how", c.how()},
              {"ranks_per_simulated_rank", m.folded},
              {"simulated_s", m.simulated},
              {"wall_s", m.wall},
              {"cpu_s", m.cpu},
              {"messages", c.messages()},
              {"messages_per_s", c.messages() / m.cpu},
              {"peak_rss_mib", m.peak_mib}};
  if (peer) {
    row["simgrid"] = {{"simulated_s", peer->simulated},
                      {"wall_s", peer->wall},
                      {"cpu_s", peer->cpu},
                      {"peak_rss_mib", peer->peak_mib},
                      {"times_faster", peer->cpu / m.cpu},
                      {"simulated_relative_difference", m.simulated / peer->simulated - 1}};
  }
  return row;
}

std::string to_row(const Case& c, const Measured& m, const std::optional<Peer>& peer, bool peers) {
  std::string row = fmt::format("| {} | {} | {} | {} | {:.6f} | {:.4f} | {:.3g} M | {:.0f} |",
                                c.pattern_name(), c.ranks, c.topology_name(), c.how(), m.simulated,
                                m.cpu, c.messages() / m.cpu * 1e-6, m.peak_mib);
  if (peer) {
    row += fmt::format(" {:.3f} | {:.0f} | {:.3g} x | {:+.1e} |", peer->cpu, peer->peak_mib,
                       peer->cpu / m.cpu, m.simulated / peer->simulated - 1);
  } else if (peers) {
    row += " - | - | - | - |";
  }
  return row;
}

struct Options {
  std::string filter, simgrid;
  int max_ranks = 4096;
  bool json = false;
};

std::optional<Options> options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const bool valued = i + 1 < argc;
    if (name == "--json") {
      options.json = true;
    } else if (name == "--filter" && valued) {
      options.filter = argv[++i];
    } else if (name == "--simgrid" && valued) {
      options.simgrid = argv[++i];
    } else if (name == "--max-ranks" && valued) {
      options.max_ranks = std::atoi(argv[++i]);
    } else {
      return std::nullopt;
    }
  }
  return options;
}

int run(const Options& options) {
  Json rows = Json::array();
  const bool peers = !options.simgrid.empty();
  if (!options.json) {
    fmt::print("{}\n\n", where_and_when());
    fmt::print("| case | P | network | how | simulated s | CPU s | messages/s | MiB |{}\n",
               peers ? " SimGrid CPU s | its MiB | faster | simulated differs |" : "");
    fmt::print("|---|---|---|---|---|---|---|---|{}\n", peers ? "---|---|---|---|" : "");
  }
  std::optional<Peer> peer;
  std::string peer_case;
  bool failed = false;
  for (const Case& c : cases(options.max_ranks, options.filter)) {
    const std::optional<Measured> m = measure(c);
    if (!m) {
      fmt::print(stderr, "{}: failed\n", c.name());
      failed = true;
      continue;
    }
    const std::string same = fmt::format("{}/{}/{}", c.pattern_name(), c.ranks, c.topology_name());
    if (same != peer_case) {  // once for folded and unfolded
      peer = run_peer(options.simgrid, c);
      peer_case = same;
    }
    if (options.json) {
      rows.push_back(to_json(c, *m, peer));
    } else {
      fmt::print("{}\n", to_row(c, *m, peer, peers));
      std::fflush(stdout);
    }
  }
  if (options.json) {
    fmt::print("{}\n", Json{{"machine", where_and_when()},
                            {"rate_staleness_of_jitter", staleness},
                            {"cases", rows}}
                           .dump(2));
  }
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Options> options = options_of(argc, argv);
  if (!options) {
    fmt::print(stderr,
               "usage: sim_bench [--filter TEXT] [--max-ranks N] [--simgrid PATH] [--json]\n");
    return 2;
  }
  return run(*options);
}
