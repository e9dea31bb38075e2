// Attention to plan for, on machines of topologies/ and on CPU ranks.
#pragma once

#include "machine/profile.hpp"
#include "machine/stack.hpp"
#include "planner/plan.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/paths.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace spp::test {

/// Whole nodes of a machine of topologies/.
inline sim::Cluster cluster_of(const std::string& machine, int nodes) {
  const MachineSpec spec = catalog().machine(machine, "test");
  return {spec, nodes, nodes * static_cast<int>(spec.gpus_per_node.value)};
}

/// Llama-3.1-8B's attention over a whole cluster.
inline Request bare_request(const sim::Cluster& cluster, std::int64_t seq) {
  Request r;
  r.problem = {.seq = seq, .q_heads = 32, .kv_heads = 8, .head_dim = 128};
  r.cluster = &cluster;
  r.gpus = cluster.gpus();
  r.memory = Bytes(70'000'000'000);
  return r;
}

/// A training step of a model of models/ over a whole cluster.
inline Request step_request(const sim::Cluster& cluster, std::string_view model, std::int64_t seq) {
  Request r = bare_request(cluster, seq);
  r.model = ModelLibrary(source_path("models")).load(model, "test");
  r.problem = {.seq = seq,
               .q_heads = r.model->q_heads,
               .kv_heads = r.model->kv_heads,
               .head_dim = r.model->head_dim,
               .value_dim = r.model->value_dim()};
  r.phase = StepPhase::train;
  r.memory = Bytes(72'000'000'000);
  return r;
}

/// CPU ranks of the example profile; none measured if `fitted`.
inline sim::Cluster cpu_cluster(int nodes, std::int64_t cores, int nodes_on_cores, bool fitted) {
  MachineSpec spec = read_profile(source_path("tests/support/data/cpu-2x2.json")).machine;
  spec.host->cores.value = cores;
  spec.host->nodes = nodes_on_cores;
  if (fitted) {
    spec.gpu.measured.clear();
  }
  return {spec, nodes, 2 * nodes};
}

/// Attention in fp32 over all of its ranks.
inline Request cpu_request(const sim::Cluster& cluster, std::int64_t seq, MaskKind mask) {
  Request r = bare_request(cluster, seq);
  r.problem = {.seq = seq,
               .q_heads = 8,
               .kv_heads = 8,
               .head_dim = 64,
               .mask = {.kind = mask},
               .dtype = DType::fp32};
  return r;
}

}  // namespace spp::test
