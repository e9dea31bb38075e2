// What predictions take of the machine that predicts: numbers of ops and bytes, known before.
#include "planner/evaluator.hpp"
#include "sim/demand.hpp"
#include "sim/rank_window.hpp"

#include <algorithm>
#include <array>

namespace spp {
namespace {

constexpr std::array phases{Phase::forward, Phase::backward};

}  // namespace

double Evaluator::ops_of_asking() const {
  constexpr double of_phase = 60;
  return of_phase * static_cast<double>(
                        std::ranges::count_if(phases, [&](Phase phase) { return needs(phase); }));
}

const Demand& Evaluator::demand(const SequencePlan& plan, const Strategy& strategy,
                                Phase phase) const {
  const auto [at, fresh] = demands_.try_emplace(
      fmt::format("{}|{}|{}", short_name(plan), to_string(plan.order), to_string(phase)));
  if (fresh) {
    at->second = demand_of(strategy.build(request_.problem, plan, phase, request_.build));
  }
  return at->second;
}

double Evaluator::ops_of_walk(const SequencePlan& plan, const Strategy& strategy) const {
  constexpr double walked_ranks = 2;
  double ops = 0;
  for (const Phase phase : phases) {
    if (needs(phase)) {
      ops += walked_ranks * demand(plan, strategy, phase).ops_of_rank();
    }
  }
  return ops;
}

double Evaluator::ops_of_folding(const SequencePlan& plan) const {
  constexpr double of_rank = 3;  // it is mapped, named and joined with others, link by link
  return of_rank * plan.ranks();
}

double Evaluator::least_ops(const SequencePlan& plan, const Strategy& strategy) const {
  double ops = ops_of_folding(plan);
  for (const Phase phase : phases) {
    if (needs(phase)) {
      const Schedule schedule = strategy.build(request_.problem, plan, phase, request_.build);
      const Demand& all = demand(plan, strategy, phase);
      const bool folds = !schedule.symmetry.empty();
      ops += folds ? all.ops_of_rank() : all.ops;
    }
  }
  return ops;
}

sim::Folding Evaluator::fold(const SequencePlan& plan, const Strategy& strategy,
                             bool fold_ranks) const {
  // What takes seconds even if ranks of rings are alike is refused, or forced, as it is.
  constexpr double most_ops = 2e6;
  // Both phases have the same symmetry.
  const Phase any = needs(Phase::forward) ? Phase::forward : Phase::backward;
  return fold(strategy.build(request_.problem, plan, any, request_.build),
              demand(plan, strategy, any), plan, fold_ranks, most_ops);
}

sim::Folding Evaluator::fold(const Schedule& schedule, const Demand& all, const SequencePlan& plan,
                             bool fold, double most_ops) const {
  const sim::Placement placement(*request_.cluster, schedule.mesh.size(), plan.rank_order);
  if (!fold) {
    return sim::Folding::none(schedule, placement);
  }
  // A tenth of a second: what takes no longer is simulated exactly.
  constexpr double few_ops = 1e5;
  sim::Folding exact = sim::Folding::largest(schedule, placement);
  const int lookahead = sim::RankWindow::lookahead_of(schedule);
  const double of_node = 2.0 * request_.cluster->gpus_per_node() * all.ops_of_rank();
  if (of_node > most_ops || sim::demand_of(all, lookahead, exact).ops <= few_ops) {
    return exact;
  }
  sim::Folding alike = sim::Folding::largest(schedule, placement, true);
  const sim::SimulationDemand few = sim::demand_of(all, lookahead, alike);
  return few.ops + few.flows <= most_ops ? std::move(alike) : std::move(exact);
}

Effort Evaluator::effort(const SequencePlan& plan, const Strategy& strategy,
                         const sim::Folding& folding) const {
  constexpr std::int64_t folded_rank = 64;
  Effort effort;
  for (const Phase phase : phases) {
    if (needs(phase)) {
      const sim::SimulationDemand simulated =
          sim::demand_of(demand(plan, strategy, phase), sim::RankWindow::lookahead, folding);
      effort.ops += simulated.ops + simulated.flows;
      effort.memory = std::max(effort.memory, simulated.memory);
    }
  }
  effort.memory += Bytes(folded_rank) * std::int64_t{plan.ranks()};
  return effort;
}

sim::OpsWatch Evaluator::watch_of(const SequencePlan& plan, const Strategy& strategy,
                                  const EvaluationOptions& options,
                                  const Findings& findings) const {
  if (!options.watch) {
    return {};
  }
  double all = 0;
  for (const Phase phase : phases) {
    if (needs(phase)) {
      const sim::SimulationDemand of_phase = sim::demand_of(
          demand(plan, strategy, phase), sim::RankWindow::lookahead, *findings.folding);
      all += of_phase.ops + of_phase.flows;
    }
  }
  return [watch = options.watch, before = findings.work, all](double work) {
    return watch(before + work, all);
  };
}

Effort effort_of(const Request& request, const SequencePlan& plan,
                 const EvaluationOptions& options) {
  const Strategy& strategy = strategies::by_name(plan.strategy, "--strategy");
  const Evaluator evaluator(request);
  return evaluator.effort(plan, strategy, evaluator.fold(plan, strategy, options.fold));
}

}  // namespace spp
