#include "runtime/calibrate/calibrate.hpp"

#include "base/error.hpp"
#include "runtime/calibrate/engine_suites.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
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

/// The ranks of a host, as if they were on several.
Hosts emulated(const Hosts& real, int ranks, int per_node) {
  if (per_node >= ranks) {
    return real;
  }
  if (ranks % per_node != 0) {
    throw InputError("ranks", fmt::format("{} make no nodes of {}", ranks, per_node));
  }
  Hosts hosts = real;
  hosts.names.clear();
  for (int node = 0; node < ranks / per_node; ++node) {
    hosts.names.push_back(fmt::format("{}:{}", real.names.front(), node));
  }
  hosts.per_node = per_node;
  hosts.one_machine = true;
  hosts.memory = Bytes(real.memory.value() / hosts.nodes());
  return hosts;
}

/// Part of the budget.
double weight_of(std::string_view suite) {
  return suite == "attention" ? 4 : suite == "collectives" ? 2 : 1;
}

std::vector<Series> host_suite(const std::string& suite, const Bench& bench,
                               const CalibrationRequest& request) {
  if (suite == "links") {
    return links_suite(bench);
  }
  if (suite == "collectives") {
    return collectives_suite(bench);
  }
  if (suite == "attention") {
    return attention_suite(bench, *request.kernels, request.blocks);
  }
  ensure(suite == "elementwise", "an unknown suite");
  return elementwise_suite(bench, *request.kernels, request.shape);
}

/// Only rank 0 knows what an earlier start has left to measure.
std::vector<std::string> suites_of_rank_0(Transport& transport,
                                          const std::vector<std::string>& mine) {
  std::string text;
  for (const std::string& suite : mine) {
    text += suite + " ";
  }
  std::istringstream in(transport.all_gather_text(text).front());
  std::vector<std::string> suites;
  for (std::string suite; in >> suite;) {
    suites.push_back(suite);
  }
  return suites;
}

std::vector<Series> run_suite(const std::string& suite, Transport& transport, const Hosts& hosts,
                              Seconds budget, const CalibrationRequest& request) {
  if (request.engines != nullptr) {
    return engine_suite(suite,
                        {.transport = transport,
                         .engines = *request.engines,
                         .budget = budget,
                         .layout = {.ranks = transport.size(), .per_node = hosts.per_node},
                         .ranks_per_device = std::min(request.ranks_per_device, transport.size()),
                         .split_devices = request.split_devices,
                         .largest = request.largest_message,
                         .cold = request.cold,
                         .shape = request.shape},
                        request.blocks);
  }
  const int self = transport.rank().value;
  return host_suite(suite,
                    {.transport = transport,
                     .budget = budget,
                     .per_node = hosts.per_node,
                     .place = hosts.one_machine ? self : self % hosts.per_node,
                     .sharing = hosts.one_machine ? transport.size() : hosts.per_node,
                     .cores = hosts.cores,
                     .largest = request.largest_message},
                    request);
}

void run_rank(Transport& transport, const CalibrationRequest& request, Calibration& result) {
  Hosts hosts = find_hosts(transport);
  if (request.ranks_per_node > 0) {
    hosts = emulated(hosts, transport.size(), request.ranks_per_node);
  }
  const bool first = transport.rank().value == 0;
  const std::vector<std::string> suites = suites_of_rank_0(transport, request.suites);
  double weights = 0;
  for (const std::string& suite : suites) {
    weights += weight_of(suite);
  }
  for (std::size_t i = 0; i < suites.size(); ++i) {
    const std::string& suite = suites[i];
    if (first && request.begins) {
      request.begins(i, suite);
    }
    const Seconds budget = request.budget * (weight_of(suite) / weights);
    std::vector<Series> series = run_suite(suite, transport, hosts, budget, request);
    transport.barrier();
    if (first) {
      if (request.ended) {
        request.ended(suite, series);
      }
      result.series[suite] = std::move(series);
    }
  }
  if (first) {
    result.hosts = hosts;
    result.complete = true;
  }
}

}  // namespace

Hosts find_hosts(Transport& transport) {
  std::vector<Place> places;
  for (const std::string& text : transport.all_gather_text(my_place())) {
    places.push_back(read_place(text));
  }
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

Calibration calibrate(const CalibrationRequest& request) {
  Calibration result;
  request.transport->run(request.ranks,
                         [&](Transport& transport) { run_rank(transport, request, result); });
  return result;
}

}  // namespace spp::runtime
