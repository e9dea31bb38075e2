// Speed of the search over whole steps, all degrees open. Goals, on one core: 64 GPUs under 0.5 s,
// 1,024 GPUs under 5 s, 1,000 packed documents over 64 GPUs, layouts compared, under 1 s. And what
// one plan takes beside its attention, on which the search's budget rests; goal: 100,000 plans a
// second. From the source folder, or with SP_PLAN_DATA set to it.
#include "machine/machine.hpp"
#include "planner/layouts.hpp"
#include "planner/packing.hpp"
#include "planner/plan.hpp"
#include "planner/step.hpp"
#include "planner/step_space.hpp"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

struct Question {
  const char* model;
  int nodes;
  std::int64_t seq, global_batch;
};

/// A question, and the cluster that it is about.
struct Asked {
  explicit Asked(const Question& question)
      : root(data_folder()),
        machine(spp::Catalog(root / "topologies").machine("dgx-h100", "bench")),
        cluster(machine, question.nodes, 8 * question.nodes) {
    request.model = spp::ModelLibrary(root / "models").load(question.model, "bench");
    request.problem.seq = question.seq;
    request.problem.q_heads = request.model->q_heads;
    request.problem.kv_heads = request.model->kv_heads;
    request.problem.head_dim = request.model->head_dim;
    request.problem.value_dim = request.model->value_dim();
    request.phase = spp::StepPhase::train;
    request.cluster = &cluster;
    request.gpus = cluster.gpus();
    request.step.global_batch = question.global_batch;
    request.most.ops = 8e6;  // as the command's default
    request.memory = spp::Bytes(
        std::llround(machine.gpu.memory.value.as_double() * machine.gpu.memory_usable.value));
  }
  static std::filesystem::path data_folder() {
    const char* data = std::getenv("SP_PLAN_DATA");  // NOLINT(concurrency-mt-unsafe): one thread
    return data != nullptr ? data : ".";
  }
  std::filesystem::path root;
  spp::MachineSpec machine;
  spp::sim::Cluster cluster;
  spp::Request request;
};

void search(benchmark::State& state, const Question& question) {
  const Asked asked(question);
  for (auto _ : state) {
    const spp::PlanResult result = spp::plan(asked.request);
    state.counters["plans"] = static_cast<double>(result.searched);
    state.counters["evaluated"] = static_cast<double>(result.simulated);
    state.counters["unsettled"] = static_cast<double>(result.unsettled);
  }
}

void gpus_64(benchmark::State& state) {
  search(state, {.model = "llama-3.1-70b", .nodes = 8, .seq = 32768, .global_batch = 64});
}
void gpus_64_documents(benchmark::State& state) {
  Asked asked({.model = "llama-3.1-8b", .nodes = 8, .seq = 1 << 20, .global_batch = 8});
  const auto lengths = spp::LengthDistribution::lognormal(512, 1.2, asked.request.problem.seq);
  asked.request.problem.mask.document_ends =
      spp::typical_sequence(lengths, asked.request.problem.seq, "bench").ends;
  for (auto _ : state) {
    const spp::PlanResult result = spp::plan(asked.request);
    benchmark::DoNotOptimize(spp::compare_layouts(asked.request, result));
    state.counters["plans"] = static_cast<double>(result.searched);
    state.counters["documents"] =
        static_cast<double>(asked.request.problem.mask.document_ends.size());
  }
}
void gpus_1024(benchmark::State& state) {
  search(state, {.model = "llama-3.1-405b", .nodes = 128, .seq = 131072, .global_batch = 512});
}
void gpus_1024_experts(benchmark::State& state) {
  search(state, {.model = "deepseek-v3", .nodes = 128, .seq = 131072, .global_batch = 512});
}
BENCHMARK(gpus_64)->Unit(benchmark::kMillisecond);
BENCHMARK(gpus_64_documents)->Unit(benchmark::kMillisecond);
BENCHMARK(gpus_1024)->Unit(benchmark::kMillisecond);
BENCHMARK(gpus_1024_experts)->Unit(benchmark::kMillisecond);

/// 16 stages, so many micro-batches.
spp::StepPlan pipelined(std::int64_t micro_batches) {
  return {.attention = {.strategy = "ulysses", .ulysses = 2},
          .tensor = 4,
          .data = 8,
          .pipeline = 16,
          .micro_batches = micro_batches,
          .zero = 1};
}
void memory_of_plan(benchmark::State& state) {
  const Asked asked({.model = "llama-3.1-405b", .nodes = 128, .seq = 8192, .global_batch = 512});
  spp::StepEvaluator evaluator(asked.request);
  const spp::StepPlan plan = pipelined(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(evaluator.memory_around_attention(plan));
  }
}
void time_of_plan(benchmark::State& state) {
  const Asked asked({.model = "llama-3.1-405b", .nodes = 128, .seq = 8192, .global_batch = 512});
  spp::StepEvaluator evaluator(asked.request);
  const spp::StepPlan plan = pipelined(state.range(0));
  const std::vector<spp::MemoryBytes> memory = evaluator.memory(plan);
  for (auto _ : state) {
    benchmark::DoNotOptimize(evaluator.timed(plan, memory));
  }
}
/// Every plan of a question whose attention is known, one after the other.
void cost_of_plans(benchmark::State& state) {
  const Asked asked({.model = "llama-3.1-70b", .nodes = 8, .seq = 8192, .global_batch = 64});
  spp::StepEvaluator evaluator(asked.request);
  std::vector<spp::StepPlan> plans;
  std::vector<std::vector<spp::MemoryBytes>> memory;
  for (const spp::StepPoint& point : spp::step_space(asked.request, evaluator).points) {
    if (point.sequence <= 2 &&
        asked.request.problem.kv_heads % (point.tensor * point.sequence) == 0) {
      plans.push_back(spp::plan_of(asked.request, point,
                                   {.strategy = "ulysses", .ulysses = point.sequence},
                                   spp::zero_stages(asked.request, point).back()));
      memory.push_back(evaluator.memory(plans.back()));
    }
  }
  for (auto _ : state) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      benchmark::DoNotOptimize(evaluator.timed(plans[i], memory[i]));
    }
  }
  double ops = 0;
  for (const spp::StepPlan& plan : plans) {
    ops += 2.0 * plan.pipeline * plan.virtual_stages * static_cast<double>(plan.micro_batches);
  }
  state.counters["plans"] = static_cast<double>(plans.size());
  state.counters["ops"] = ops;
  state.counters["plans/s"] = benchmark::Counter(
      static_cast<double>(plans.size() * state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(cost_of_plans)->Unit(benchmark::kMillisecond);
BENCHMARK(memory_of_plan)->Arg(16)->Arg(1024)->Unit(benchmark::kMicrosecond);
BENCHMARK(time_of_plan)->Arg(16)->Arg(1024)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
