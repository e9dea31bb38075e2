// Speed of the closed forms: the search bounds every candidate with one.
//
//   closed_form_bench --benchmark_filter='all_strategies'
//
// Counter: forms per second, averaged over all legal plans (of one strategy, or of all) of two
// models' attention over 64 ranks, both phases. A plan is legal before it gets here; why_not is not
// counted.
#include "tests/support/plans.hpp"

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

namespace {

struct Candidate {
  const spp::Strategy* strategy;
  spp::Problem problem;
  spp::SequencePlan plan;
};

/// All candidates of a strategy, or of all if `name` is empty.
std::vector<Candidate> candidates(std::string_view name) {
  const std::vector<spp::Problem> problems{
      {.seq = 131072, .q_heads = 64, .kv_heads = 8},  // Llama 3.1 70B
      {.seq = 1000003, .q_heads = 128, .kv_heads = 128, .mask = {.kind = spp::MaskKind::full}}};
  std::vector<Candidate> result;
  for (const spp::Problem& problem : problems) {
    for (const spp::SequencePlan& plan : spp::test::legal_plans(64, problem)) {
      if (name.empty() || plan.strategy == name) {
        result.push_back({&spp::strategies::by_name(plan.strategy, "bench"), problem, plan});
      }
    }
  }
  return result;
}

void closed_forms(benchmark::State& state, const std::string& name) {
  const std::vector<Candidate> all = candidates(name);
  for (auto _ : state) {
    for (const Candidate& c : all) {
      benchmark::DoNotOptimize(c.strategy->closed_form(c.problem, c.plan, spp::Phase::forward, {}));
      if (c.strategy->backward) {
        benchmark::DoNotOptimize(
            c.strategy->closed_form(c.problem, c.plan, spp::Phase::backward, {}));
      }
    }
  }
  state.counters["plans"] = static_cast<double>(all.size());
  state.counters["forms"] = benchmark::Counter(2.0 * static_cast<double>(all.size()),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("all_strategies", closed_forms, std::string());
  for (const spp::Strategy* strategy : spp::strategies::all()) {
    const std::string name(strategy->name);
    benchmark::RegisterBenchmark(name.c_str(), closed_forms, name);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
