#include "calibrate/nccl.hpp"

#include "base/document.hpp"
#include "base/error.hpp"
#include "calibrate/parts.hpp"
#include "calibrate/profile.hpp"
#include "machine/profile.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace spp::calibrate {
namespace {

/// A test as one of our own would be. Between nodes a series is of a rank of each node, by what
/// goes through that rank's NIC: of a ring collective its part, since there are as many rings as a
/// node has ranks; of an all-to-all what is for other nodes. `hop`: of a ring inside a node.
std::vector<Series> series_of(const NcclTest& test, double hop) {
  const int n = test.ranks();
  const auto nodes = static_cast<int>(test.hosts.size());
  const bool inter = nodes > 1;
  const bool ring = test.name == "all_gather" || test.name == "reduce_scatter";
  std::vector<Series> list;
  for (const NcclTest::Row& row : test.rows) {
    Series s;
    s.suite = test.name == "sendrecv" ? "links" : "collectives";
    s.what = test.name == "sendrecv" ? "ring" : test.name == "alltoall" ? "all_to_all" : test.name;
    s.scope = inter ? "inter" : "intra";
    s.ranks = inter ? nodes : n;
    s.active = n;
    s.size = sent_by_rank(test, row.size);
    s.seconds = {row.seconds};
    if (inter && ring) {
      s.size /= test.ranks_per_host;
      s.seconds = {std::max(row.seconds - hop * (n - nodes), 0.05 * row.seconds)};
    } else if (inter && test.name == "alltoall") {
      s.size = static_cast<double>(row.size) * (n - test.ranks_per_host) / n;
    }
    list.push_back(std::move(s));
  }
  return list;
}

/// All-reduce has no place in attention; of clusters of several sizes the largest counts.
std::vector<NcclTest> usable(std::vector<NcclTest> tests, std::vector<std::string>& warnings) {
  std::size_t nodes = 1;
  for (const NcclTest& t : tests) {
    nodes = std::max(nodes, t.hosts.size());
  }
  std::vector<NcclTest> used;
  int per_host = 0;
  for (NcclTest& t : tests) {
    const std::size_t hosts = t.hosts.size();
    if (t.name == "all_reduce") {
      warnings.push_back(fmt::format(
          "{}: all_reduce is not used: all-reduces are predicted from the machine's description",
          t.file));
      continue;
    }
    if (hosts > 1 && hosts < nodes) {
      warnings.push_back(fmt::format("{}: {} hosts, not used beside {}", t.file, hosts, nodes));
      continue;
    }
    if (hosts > 1 && per_host != 0 && per_host != t.ranks_per_host) {
      throw InputError(t.file, fmt::format("{} ranks a host, but {} in a file before: networks are "
                                           "measured with equally many",
                                           t.ranks_per_host, per_host));
    }
    per_host = hosts > 1 ? t.ranks_per_host : per_host;
    used.push_back(std::move(t));
  }
  if (used.empty()) {
    throw InputError("--nccl-tests",
                     "none of these tests says how fast messages of plans are "
                     "(all_gather, reduce_scatter, alltoall, sendrecv)");
  }
  return used;
}

void expect_few_sizes(const std::vector<NcclTest>& tests) {
  std::map<std::string, std::size_t> sizes;
  for (const NcclTest& t : tests) {
    if (const std::size_t all = sizes[t.name] += t.rows.size(); all > most_nccl_sizes) {
      throw InputError(t.file, fmt::format("with the files before, more than {} sizes of {}",
                                           most_nccl_sizes, t.name));
    }
  }
}

void expect_of(const MachineSpec& machine, const std::vector<NcclTest>& tests,
               std::vector<std::string>& warnings) {
  for (const NcclTest& t : tests) {
    if (t.ranks_per_host > machine.gpus_per_node.value) {
      throw InputError(
          t.file, fmt::format("{} ranks on a host, but {} has {} GPUs a node", t.ranks_per_host,
                              machine.name, machine.gpus_per_node.value));
    }
    if (t.hosts.size() > 1 && !machine.inter) {
      throw InputError(t.file, fmt::format("ran on {} hosts, but {} has no network", t.hosts.size(),
                                           machine.name));
    }
    std::string other = fmt::format("{}: measured on '{}', but {} has {}", t.file, t.gpu,
                                    machine.name, machine.gpu.name);
    if (name_in(machine.gpu, t.gpu) == 0 && std::ranges::find(warnings, other) == warnings.end()) {
      warnings.push_back(std::move(other));
    }
  }
}

Json environment_of(const std::vector<NcclTest>& tests, const std::string& date) {
  std::vector<std::string> files;
  for (const NcclTest& t : tests) {
    if (std::ranges::find(files, t.file) == files.end()) {
      files.push_back(t.file);
    }
  }
  Json json = {{"gpu", tests.front().gpu},
               {"nccl_tests", fmt::format("{}", fmt::join(files, ", "))},
               {"read", date}};
  if (!tests.front().nccl.empty()) {
    json["nccl"] = tests.front().nccl;
  }
  return json;
}

/// Hosts of the largest test, and ranks on each.
Sharing sharing_of(const std::vector<NcclTest>& tests) {
  Sharing sharing;
  for (const NcclTest& t : tests) {
    const auto hosts = static_cast<int>(t.hosts.size());
    if (hosts > sharing.nodes) {
      sharing.nodes = hosts;
      sharing.per_node = t.ranks_per_host;
    } else if (hosts == sharing.nodes) {
      sharing.per_node = std::max(sharing.per_node, t.ranks_per_host);
    }
  }
  return sharing;
}

std::vector<Series> series_of_all(const std::vector<NcclTest>& tests, const MachineSpec& known) {
  std::vector<Series> series;
  for (const NcclTest& t : tests) {
    std::ranges::move(series_of(t, known.intra.hop_latency.value.count()),
                      std::back_inserter(series));
  }
  return series;
}

}  // namespace

void put_nccl_tests(MachineDocument& document, const MachineSpec& known,
                    std::vector<NcclTest>& tests, std::vector<std::string>& warnings) {
  tests = usable(std::move(tests), warnings);
  expect_few_sizes(tests);
  expect_of(known, tests, warnings);
  put_links(document, known, series_of_all(tests, known), sharing_of(tests),
            Numbers(utc("%Y-%m-%d")));
}

NcclProfile profile_of_nccl_tests(const std::vector<std::string_view>& files,
                                  const std::string& topology, const std::string& name,
                                  const Catalog& catalog) {
  NcclProfile profile;
  for (const std::string_view file : files) {
    std::ranges::move(read_nccl_tests(std::string(file)), std::back_inserter(profile.tests));
  }
  const MachineSpec machine = catalog.machine(topology, "--topology");
  MachineDocument described(catalog.whole_machine(topology, "--topology"));
  put_nccl_tests(described, machine, profile.tests, profile.warnings);

  const std::string date = utc("%Y-%m-%d");
  const Numbers numbers(date);
  profile.document =
      profile_json({.name = name,
                    .environment = environment_of(profile.tests, date),
                    .nodes = numbers.counted(sharing_of(profile.tests).nodes, "hosts of the tests"),
                    .machine = described.take(),
                    .attention = {},
                    .pace = std::nullopt,
                    .samples = samples_json(series_of_all(profile.tests, machine))});
  return profile;
}

}  // namespace spp::calibrate
