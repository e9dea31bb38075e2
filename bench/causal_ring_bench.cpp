// Speed of one simulated attention call, forward and backward, over causal rings in which all ranks
// have as much to do: folded to one rank (sim/folding.hpp, "alike"), beside every rank simulated.
// Goals, on one core: 1,024 ranks under 0.3 s folded and 3 s unfolded, 4,096 under 3 s folded.
// From the source folder, or with SP_PLAN_DATA set to it.
#include "machine/machine.hpp"
#include "planner/plan.hpp"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace {

void ring(benchmark::State& state, spp::Layout layout, bool fold) {
  const char* data = std::getenv("SP_PLAN_DATA");  // NOLINT(concurrency-mt-unsafe): one thread
  const std::filesystem::path root = data != nullptr ? data : ".";
  const auto ranks = static_cast<int>(state.range(0));
  const spp::MachineSpec machine = spp::Catalog(root / "topologies").machine("dgx-h100", "bench");
  const spp::sim::Cluster cluster(machine, ranks / 8, ranks);
  spp::Request request;
  request.problem = {.seq = std::int64_t{4096} * ranks, .q_heads = 32, .kv_heads = 8};
  request.cluster = &cluster;
  request.gpus = ranks;
  request.memory = spp::Bytes(
      std::llround(machine.gpu.memory.value.as_double() * machine.gpu.memory_usable.value));
  const spp::SequencePlan plan{
      .strategy = layout == spp::Layout::zigzag ? "zigzag-ring" : "striped-ring",
      .ring = ranks,
      .layout = layout};
  for (auto _ : state) {
    const spp::Evaluation e = spp::evaluate(request, plan, {.fold = fold});
    state.counters["simulated_s"] = e.candidate.predicted.step.count();
  }
}

constexpr auto in = benchmark::kMillisecond;
BENCHMARK_CAPTURE(ring, zigzag_folded, spp::Layout::zigzag, true)->Unit(in)->Arg(1024)->Arg(4096);
BENCHMARK_CAPTURE(ring, zigzag_unfolded, spp::Layout::zigzag, false)->Unit(in)->Arg(1024);
BENCHMARK_CAPTURE(ring, striped_folded, spp::Layout::striped, true)->Unit(in)->Arg(1024)->Arg(4096);
BENCHMARK_CAPTURE(ring, striped_unfolded, spp::Layout::striped, false)->Unit(in)->Arg(1024);

}  // namespace

BENCHMARK_MAIN();
