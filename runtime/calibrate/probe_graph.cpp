#include "runtime/calibrate/probe_graph.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

namespace spp::runtime {
namespace {

/// Nothing where the probe is of something else.
std::optional<LayerKernel> kernel_timed_by(const Probe& probe, const Problem& shape) {
  for (const Work& work : probe.work) {
    if (const auto* gemm = std::get_if<GemmBlock>(&work)) {
      return kernel_of(*gemm);
    }
    if (const auto* rows = std::get_if<RowWork>(&work)) {
      return kernel_of(*rows, shape);
    }
  }
  return std::nullopt;
}

}  // namespace

TensorRef placed(TensorRef ref, const GraphPlace& place) {
  ref.label += is_value(ref.tensor) ? place.value : is_param(ref.tensor) ? place.param : 0;
  return ref;
}

ProbeGraph graph_of(std::span<const Probe> probes, const Problem& shape) {
  ProbeGraph all;
  Graph& graph = all.graph;
  for (const Probe& probe : probes) {
    const GraphPlace place{.value = static_cast<int>(graph.values.size()),
                           .param = static_cast<int>(graph.params.size()),
                           .definition = static_cast<int>(graph.definitions.size())};
    all.places.push_back(place);
    auto kernel = kernel_timed_by(probe, shape);
    if (!kernel) {
      continue;
    }
    std::ranges::move(kernel->graph.values, std::back_inserter(graph.values));
    std::ranges::move(kernel->graph.params, std::back_inserter(graph.params));
    for (Definition& definition : kernel->graph.definitions) {
      for (auto* refs : {&definition.reads, &definition.writes}) {
        std::ranges::transform(*refs, refs->begin(),
                               [&](TensorRef ref) { return placed(ref, place); });
      }
      definition.param += definition.param >= 0 ? place.param : 0;
      graph.definitions.push_back(std::move(definition));
    }
    if (!kernel->graph.routing.empty()) {
      graph.routing = kernel->graph.routing;  // there is but one (row_operands.cpp)
    }
  }
  return all;
}

}  // namespace spp::runtime
