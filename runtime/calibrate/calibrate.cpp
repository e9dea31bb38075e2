#include "runtime/calibrate/calibrate.hpp"

#include "base/error.hpp"
#include "runtime/calibrate/engine_suites.hpp"

#include <algorithm>
#include <sstream>

namespace spp::runtime {
namespace {

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
  hosts.nodes_on_cores = hosts.nodes();
  hosts.memory = Bytes(real.memory.value() / hosts.nodes());
  return hosts;
}

/// Part of the budget.
double weight_of(std::string_view suite) {
  return suite == "attention" ? 4 : suite == "collectives" || suite == "layer" ? 2 : 1;
}

std::vector<Series> host_suite(const std::string& suite, const Bench& bench,
                               const CalibrationRequest& request) {
  if (suite == "links") {
    return links_suite(bench, *request.kernels, request.shape.dtype);
  }
  if (suite == "collectives") {
    return collectives_suite(bench);
  }
  if (suite == "attention") {
    return attention_suite(bench, *request.kernels, request.blocks);
  }
  if (suite == "layer") {
    return layer_suite(bench, *request.kernels, request.shape);
  }
  ensure(suite == "elementwise", "an unknown suite");
  return elementwise_suite(bench, *request.kernels, request.shape);
}

/// Only rank 0 knows what an earlier start has left to measure.
std::vector<std::string> suites_of_rank_0(Transport& transport, const CalibrationRequest& request) {
  const std::vector<std::string> places = describe_places(transport);
  std::string text;
  if (transport.rank().value == 0) {
    for (const std::string& suite :
         request.remaining ? request.remaining(places) : request.suites) {
      text += suite + " ";
    }
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
  const int sharing = hosts.nodes_on_cores * hosts.per_node;
  return host_suite(suite,
                    {.transport = transport,
                     .budget = budget,
                     .per_node = hosts.per_node,
                     .place = transport.rank().value % sharing,
                     .sharing = sharing,
                     .cores = hosts.cores,
                     .largest = request.largest_message},
                    request);
}

void run_rank(Transport& transport, const CalibrationRequest& request, Calibration& result) {
  expect_same_kernels(transport, request.engines != nullptr ? request.engines->kernels()
                                                            : std::string(request.kernels->name));
  Hosts hosts = find_hosts(transport);
  if (request.ranks_per_node > 0) {
    hosts = emulated(hosts, transport.size(), request.ranks_per_node);
  }
  const bool first = transport.rank().value == 0;
  const std::vector<std::string> suites = suites_of_rank_0(transport, request);
  for (std::size_t i = 0; i < suites.size(); ++i) {
    const std::string& suite = suites[i];
    if (first && request.begins) {
      request.begins(i, suite);
    }
    std::vector<Series> series =
        run_suite(suite, transport, hosts, budget_of(suite, request), request);
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

/// All that ranks must have been asked for alike; of kernels they say more, and which suites are
/// left is rank 0's to say (run_rank()).
std::string asked(const CalibrationRequest& r) {
  const Problem& p = r.shape;
  std::string text = fmt::format(
      "calibrate {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n", fmt::join(r.suites, ","), r.ranks,
      r.ranks_per_node, r.ranks_per_device, r.split_devices, r.budget.count(), r.largest_message,
      r.cold, p.q_heads, p.kv_heads, p.head_dim, p.v_dim(), to_string(p.dtype), to_string(p.mask));
  for (const AttentionBlock& block : r.blocks) {
    Series series;
    series.block = block;
    text += to_json(series).dump() + "\n";
  }
  return text;
}

}  // namespace

Seconds budget_of(std::string_view suite, const CalibrationRequest& request) {
  double weights = 0;  // of all: those that an earlier start has measured had their part
  for (const std::string& asked : request.suites) {
    weights += weight_of(asked);
  }
  return request.budget * (weight_of(suite) / weights);
}

Calibration calibrate(const CalibrationRequest& request) {
  Calibration result;
  const RunSettings settings{
      .deadlines = {.timeout = request.timeout},
      .request = [&] { return asked(request); },
      .warn = [&](const std::string& text) { result.warnings.push_back(text); }};
  request.transport->run(
      request.ranks, [&](Transport& transport) { run_rank(transport, request, result); }, settings);
  return result;
}

}  // namespace spp::runtime
