// Speed of the search over whole steps, all degrees open. Goals, on one core: 64 GPUs under 0.5 s,
// 1,024 GPUs under 5 s. From the source folder, or with SP_PLAN_DATA set to it.
#include "machine/machine.hpp"
#include "planner/plan.hpp"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

struct Question {
  const char* model;
  int nodes;
  std::int64_t seq, global_batch;
};

void search(benchmark::State& state, const Question& question) {
  const char* data = std::getenv("SP_PLAN_DATA");  // NOLINT(concurrency-mt-unsafe): one thread
  const std::filesystem::path root = data != nullptr ? data : ".";
  const spp::MachineSpec machine = spp::Catalog(root / "topologies").machine("dgx-h100", "bench");
  const spp::sim::Cluster cluster(machine, question.nodes, 8 * question.nodes);
  spp::Request request;
  request.model = spp::ModelLibrary(root / "models").load(question.model, "bench");
  request.problem = {.seq = question.seq,
                     .q_heads = request.model->q_heads,
                     .kv_heads = request.model->kv_heads,
                     .head_dim = request.model->head_dim};
  request.phase = spp::StepPhase::train;
  request.cluster = &cluster;
  request.gpus = cluster.gpus();
  request.step.global_batch = question.global_batch;
  request.most.ops = 8e6;  // as the command's default
  request.memory = spp::Bytes(
      std::llround(machine.gpu.memory.value.as_double() * machine.gpu.memory_usable.value));
  for (auto _ : state) {
    const spp::PlanResult result = spp::plan(request);
    state.counters["plans"] = static_cast<double>(result.searched);
    state.counters["evaluated"] = static_cast<double>(result.simulated);
  }
}

void gpus_64(benchmark::State& state) {
  search(state, {.model = "llama-3.1-70b", .nodes = 8, .seq = 32768, .global_batch = 64});
}
void gpus_1024(benchmark::State& state) {
  search(state, {.model = "llama-3.1-405b", .nodes = 128, .seq = 131072, .global_batch = 256});
}
BENCHMARK(gpus_64)->Unit(benchmark::kMillisecond);
BENCHMARK(gpus_1024)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
