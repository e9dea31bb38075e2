// Speed of one whole training step, simulated op by op with ranks folded, and of its cost in closed
// form. Goals, on one core: 32 layers under FSDP over 64 GPUs in 50 ms, 405B over 1,024 GPUs (16
// stages, 128 micro-batches) in 0.2 s. From the source folder, or with SP_PLAN_DATA set to it.
#include "machine/machine.hpp"
#include "planner/layer.hpp"
#include "planner/step.hpp"
#include "transformer/model.hpp"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

struct Job {
  std::string model;
  int nodes = 1;
  spp::StepPlan plan;
};

spp::StepPlan plan_of(int tensor, int data, int pipeline, std::int64_t micro_batches, int zero) {
  spp::StepPlan plan;
  plan.attention.strategy = "ulysses";
  plan.tensor = tensor;
  plan.data = data;
  plan.pipeline = pipeline;
  plan.micro_batches = micro_batches;
  plan.zero = zero;
  return plan;
}

template <class Measure>
void with(const Job& job, Measure measure) {
  const char* data = std::getenv("SP_PLAN_DATA");  // NOLINT(concurrency-mt-unsafe): one thread
  const std::filesystem::path root = data != nullptr ? data : ".";
  const spp::MachineSpec machine = spp::Catalog(root / "topologies").machine("dgx-h100", "bench");
  const spp::sim::Cluster cluster(machine, job.nodes, job.plan.world());
  spp::Request request;
  request.model = spp::ModelLibrary(root / "models").load(job.model, "bench");
  request.problem = {.seq = 8192,
                     .q_heads = request.model->q_heads,
                     .kv_heads = request.model->kv_heads,
                     .head_dim = request.model->head_dim};
  request.phase = spp::StepPhase::train;
  request.cluster = &cluster;
  request.gpus = job.plan.world();
  request.memory = spp::Bytes(10'000'000'000'000);  // whether it fits is another question
  measure(request);
}

void op_by_op(benchmark::State& state, const Job& job) {
  with(job, [&](const spp::Request& request) {
    const spp::LayerQuestion question = spp::step_question(request, job.plan);
    for (auto _ : state) {
      const spp::Evaluation e = spp::evaluate_layer(
          request, job.plan, question, spp::phases_of(request, job.plan, question, true), {});
      state.counters["simulated_s"] = e.candidate.predicted.step.count();
      state.counters["ops"] = static_cast<double>(e.forward->ops);
    }
  });
}

void closed_form(benchmark::State& state, const Job& job) {
  with(job, [&](const spp::Request& request) {
    for (auto _ : state) {
      const spp::Evaluation e = spp::evaluate(request, job.plan);
      state.counters["simulated_s"] = e.candidate.predicted.step.count();
    }
  });
}

const Job fsdp{.model = "llama-3.1-8b", .nodes = 8, .plan = plan_of(1, 64, 1, 1, 3)};
const Job stages{.model = "llama-3.1-8b", .nodes = 4, .plan = plan_of(8, 1, 4, 16, 1)};
const Job large{.model = "llama-3.1-405b", .nodes = 128, .plan = plan_of(8, 8, 16, 128, 1)};

constexpr auto in = benchmark::kMillisecond;
BENCHMARK_CAPTURE(op_by_op, fsdp_64, fsdp)->Unit(in);
BENCHMARK_CAPTURE(op_by_op, pipeline_32, stages)->Unit(in);
BENCHMARK_CAPTURE(op_by_op, pipeline_1024, large)->Unit(in);
BENCHMARK_CAPTURE(closed_form, fsdp_64, fsdp)->Unit(in);
BENCHMARK_CAPTURE(closed_form, pipeline_32, stages)->Unit(in);
BENCHMARK_CAPTURE(closed_form, pipeline_1024, large)->Unit(in);

}  // namespace

BENCHMARK_MAIN();
