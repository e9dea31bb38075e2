#include "runtime/calibrate/hosts.hpp"

#include "base/error.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
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
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word.empty() ? "-" : word;
}

std::string my_place() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::ifstream meminfo("/proc/meminfo");
  std::string word;
  std::int64_t kib = 0;
  while (meminfo >> word && word != "MemTotal:") {
  }
  meminfo >> kib;
  std::string text = fmt::format("{} {} {}", host.data(),
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

bool share_cores(const Place& a, const Place& b) {
  return a.boot != "-" ? a.boot == b.boot : a.host == b.host;
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
  hosts.one_machine = hosts.nodes() > 1 && std::ranges::all_of(places, [&](const Place& p) {
                        return p.boot != "-" && p.boot == places.front().boot;
                      });
  std::set<int> cores;
  for (const Place& p : places) {
    if (hosts.one_machine || p.host == hosts.names.front()) {
      cores.insert(p.cores.begin(), p.cores.end());
    }
  }
  hosts.cores = std::max<std::int64_t>(1, static_cast<std::int64_t>(cores.size()));
  hosts.memory = Bytes(places.front().memory / (hosts.one_machine ? hosts.nodes() : 1));
  return hosts;
}

bool has_own_core(Transport& transport) {
  const std::vector<Place> places = places_of_all(transport);
  const auto self = static_cast<std::size_t>(transport.rank().value);
  std::set<int> cores;
  std::size_t before = 0;  // ranks that come first
  for (std::size_t r = 0; r < places.size(); ++r) {
    if (share_cores(places[r], places[self])) {
      cores.insert(places[r].cores.begin(), places[r].cores.end());
      before += r < self ? 1 : 0;
    }
  }
  return before < std::max<std::size_t>(1, cores.size());
}

}  // namespace spp::runtime
