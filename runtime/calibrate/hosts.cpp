#include "runtime/calibrate/hosts.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/host_name.hpp"
#include "runtime/calibrate/calibrate.hpp"

#include <sched.h>

#include <algorithm>
#include <set>
#include <span>
#include <sstream>

namespace spp::runtime {
namespace {

/// What a rank says of the place where it runs.
struct Place {
  std::string host, boot;
  std::int64_t memory = 0;
  std::set<int> cores;
};

std::string first_word_of(const char* file) {
  std::istringstream in(system_text(file));
  std::string word;
  in >> word;
  return word.empty() ? "-" : word;
}

std::string my_place() {
  std::istringstream meminfo(system_text("/proc/meminfo"));
  std::string word;
  std::int64_t kib = 0;
  while (meminfo >> word && word != "MemTotal:") {
  }
  meminfo >> kib;
  std::string text = fmt::format("{} {} {}", host_name(),
                                 first_word_of("/proc/sys/kernel/random/boot_id"), kib << 10);
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<std::size_t>(i), &set)) {
      text += fmt::format(" {}", i);
    }
  }
  return text;
}

Place read_place(const std::string& text) {
  std::istringstream in(text);
  Place p;
  in >> p.host >> p.boot >> p.memory;
  for (int core = 0; in >> core;) {
    p.cores.insert(core);
  }
  return p;
}

std::vector<Place> places_of_all(Transport& transport) {
  std::vector<Place> places;
  for (const std::string& text : transport.all_gather_text(my_place())) {
    places.push_back(read_place(text));
  }
  return places;
}

bool on_one_machine(const Place& a, const Place& b) {
  return a.boot != "-" ? a.boot == b.boot : a.host == b.host;
}

bool share_cores(const Place& a, const Place& b) {
  return on_one_machine(a, b) &&
         std::ranges::any_of(a.cores, [&](int core) { return b.cores.contains(core); });
}

/// Neighbouring nodes that share cores, as many everywhere; if they differ, all nodes.
int nodes_on_cores(const std::vector<Place>& nodes) {
  std::size_t together = 1;
  while (together < nodes.size() && share_cores(nodes.front(), nodes[together])) {
    ++together;
  }
  for (std::size_t a = 0; a < nodes.size(); ++a) {
    for (std::size_t b = a + 1; b < nodes.size(); ++b) {
      if (share_cores(nodes[a], nodes[b]) != (a / together == b / together)) {
        return static_cast<int>(nodes.size());
      }
    }
  }
  return static_cast<int>(together);
}

}  // namespace

Hosts find_hosts(Transport& transport) {
  const std::vector<Place> places = places_of_all(transport);
  Hosts hosts;
  std::vector<int> ranks;
  for (const Place& p : places) {
    if (!hosts.names.empty() && hosts.names.back() == p.host) {
      ++ranks.back();
      continue;
    }
    if (std::ranges::count(hosts.names, p.host) > 0) {
      throw InputError("ranks", fmt::format("those of host {} are not neighbours; start them with "
                                            "mpirun --map-by slot",
                                            p.host));
    }
    hosts.names.push_back(p.host);
    ranks.push_back(1);
  }
  hosts.per_node = ranks.front();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != hosts.per_node) {
      throw InputError("ranks",
                       fmt::format("{} on host {}, but {} on host {}: hosts need equally "
                                   "many",
                                   hosts.per_node, hosts.names.front(), ranks[i], hosts.names[i]));
    }
  }
  std::vector<Place> nodes;
  for (std::size_t r = 0; r < places.size(); ++r) {
    if (r % static_cast<std::size_t>(hosts.per_node) == 0) {
      nodes.push_back(places[r]);
    }
    nodes.back().cores.insert(places[r].cores.begin(), places[r].cores.end());
  }
  hosts.nodes_on_cores = nodes_on_cores(nodes);
  std::set<int> cores;
  for (const Place& node : std::span(nodes).first(static_cast<std::size_t>(hosts.nodes_on_cores))) {
    if (on_one_machine(node, nodes.front())) {
      cores.insert(node.cores.begin(), node.cores.end());
    }
  }
  hosts.cores = std::max<std::int64_t>(1, static_cast<std::int64_t>(cores.size()));
  const bool one_machine = std::ranges::all_of(
      places, [&](const Place& p) { return on_one_machine(p, places.front()); });
  hosts.memory = Bytes(places.front().memory / (one_machine ? hosts.nodes() : 1));
  return hosts;
}

std::vector<std::string> describe_places(Transport& transport) {
  const Place mine = read_place(my_place());
  return transport.all_gather_text(
      fmt::format("{}, {}, cores {}", mine.host, cpu_model(), fmt::join(mine.cores, ",")));
}

bool has_own_core(Transport& transport) {
  const std::vector<Place> places = places_of_all(transport);
  const Place& mine = places[transport.rank().index()];
  const auto before = std::ranges::count_if(std::span(places).first(transport.rank().index()),
                                            [&](const Place& p) { return share_cores(p, mine); });
  return before < std::max(std::ptrdiff_t{1}, std::ssize(mine.cores));
}

}  // namespace spp::runtime
