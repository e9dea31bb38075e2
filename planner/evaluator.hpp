// Prediction of one plan of an attention call: closed forms, simulation, memory. Shared by plan()
// and evaluate(); holds what a request's plans have in common, for one thread.
#pragma once

#include "planner/bound.hpp"
#include "planner/plan.hpp"
#include "schedule/demand.hpp"

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <string>

namespace spp {

/// What the rank that ends last sends in a call, by attention's axes.
SentBytes sent_in(const sim::Simulation& simulation);

/// Mean relative spread of what large messages reach on a transport.
double spread_of(const TransportSpec& transport);

/// What ops take in the step around attention.
struct InStep {
  /// A kernel that takes so long alone.
  std::function<Seconds(const Kernel&, const Shapes&, Seconds)> kernel;
  /// Of the host, an op for which attention's takes so long; empty: as attention's.
  std::function<sim::HostTime(const Op&, const Shapes&, Seconds)> host{};
  Seconds call{};  // that the host takes before the first op
};

class Evaluator {
 public:
  explicit Evaluator(const Request& request);

  /// Seconds that no plan of this shape can beat; from closed forms alone.
  [[nodiscard]] double lower_bound(const SequencePlan& plan, const Strategy& strategy) const;
  /// Of that phase alone, whether or not the request has it.
  [[nodiscard]] double lower_bound(const SequencePlan& plan, const Strategy& strategy,
                                   Phase phase) const;
  /// A tighter one: the kernels and messages of two ranks, op by op, and the closed forms'
  /// collectives. Walks two programs where a simulation walks all of them.
  [[nodiscard]] double walked_bound(const SequencePlan& plan, const Strategy& strategy) const;
  /// Memory if ops ran one after the other: what a plan takes when it overlaps them, its schedule
  /// shows (evaluate).
  [[nodiscard]] Bytes least_memory(const SequencePlan& plan, const Strategy& strategy) const;
  /// The longest sequence that a plan fits. Some thirty questions of memory.
  [[nodiscard]] std::int64_t longest(const Candidate& c) const;
  /// Simulates the plan and adds everything else but max_seq. Nothing if it shows before the end
  /// that the step takes longer than `limit`, or if options.watch gives up.
  [[nodiscard]] std::optional<Evaluation> evaluate(
      const SequencePlan& plan, const Strategy& strategy, const EvaluationOptions& options,
      double limit = std::numeric_limits<double>::infinity()) const;
  /// Memory, and what follows from a bound, for a plan that is not simulated.
  [[nodiscard]] Candidate bounded(const SequencePlan& plan, const Strategy& strategy,
                                  double bound) const;

  /// What ops_of_walk(), least_ops() and effort() each take themselves: they build schedules.
  [[nodiscard]] double ops_of_asking() const;
  /// Ops that walked_bound() goes through.
  [[nodiscard]] double ops_of_walk(const SequencePlan& plan, const Strategy& strategy) const;
  /// Ops' worth of fold(), which looks at all ranks.
  [[nodiscard]] double ops_of_folding(const SequencePlan& plan) const;
  [[nodiscard]] sim::Folding fold(const SequencePlan& plan, const Strategy& strategy,
                                  bool fold) const;
  /// Of any schedule whose ranks are placed as the plan's. `all`: its demand. Ranks that are nearly
  /// alike (AxisMoves::alike, equal) stand for each other where that takes at most `most_ops`.
  [[nodiscard]] sim::Folding fold(const Schedule& schedule, const Demand& all,
                                  const SequencePlan& plan, bool fold, double most_ops) const;
  /// Ops that evaluate() takes at least, whatever folds.
  [[nodiscard]] double least_ops(const SequencePlan& plan, const Strategy& strategy) const;
  /// What evaluate() takes, given the folding.
  [[nodiscard]] Effort effort(const SequencePlan& plan, const Strategy& strategy,
                              const sim::Folding& folding) const;

  /// A schedule around the attention of `plan`, whatever else it computes, and its demand.
  /// options.watch must not give up.
  [[nodiscard]] sim::Simulation simulate(const Schedule& schedule, const Demand& all,
                                         const sim::Folding& folding, const SequencePlan& plan,
                                         const InStep& in_step,
                                         const EvaluationOptions& options) const;
  [[nodiscard]] const KernelCost& kernels() const { return kernels_; }

  /// Relative spread of each component, from the constants it rests on.
  [[nodiscard]] const ComponentSeconds& spreads() const { return spreads_; }

 private:
  /// The plan with its padding; nothing predicted.
  [[nodiscard]] Candidate unsimulated(const SequencePlan& plan, const Strategy& strategy) const;
  /// Throughput at the predicted step.
  void fill_rates(Prediction& p, const SequencePlan& plan) const;
  [[nodiscard]] bool needs(Phase phase) const;
  /// Of a plan's schedule; asked over and over, so remembered.
  [[nodiscard]] const Demand& demand(const SequencePlan& plan, const Strategy& strategy,
                                     Phase phase) const;
  /// Of the request's problem; asked for every order of the plan.
  [[nodiscard]] ClosedForm form(const SequencePlan& plan, const Strategy& strategy,
                                Phase phase) const;
  /// A kernel alone on the GPU.
  [[nodiscard]] Seconds lone_kernel(const Kernel& kernel, const Shapes& shapes) const;
  /// A kernel as the request's stack runs it.
  [[nodiscard]] Seconds kernel(const Kernel& kernel, const Shapes& shapes,
                               const SequencePlan& plan) const;
  /// What a simulation of the plan needs; `plan` must outlive it.
  [[nodiscard]] sim::SimulationCosts costs_of(const SequencePlan& plan, Phase phase) const;
  [[nodiscard]] double walked_call(const SequencePlan& plan, const Strategy& strategy,
                                   Phase phase) const;
  [[nodiscard]] BoundModel::Walk walk(const Schedule& schedule, const ClosedForm& form,
                                      const SequencePlan& plan, Rank rank) const;
  [[nodiscard]] Bytes attention_buffers(const SequencePlan& plan, const Strategy& strategy,
                                        std::int64_t seq,
                                        const std::array<double, 2>& overlap) const;
  /// What the simulations of a plan's phases have in common and find out.
  struct Findings {
    double work = 0;  // of phases that have been simulated
    std::optional<sim::Folding> folding;
    std::array<double, 2> overlap{1, 1};    // Candidate::overlap
    std::array<MeasuredTimes, 2> measured;  // by phase, of one call
  };
  /// Of the next phase's simulation, for whom options.watch watches all.
  [[nodiscard]] sim::OpsWatch watch_of(const SequencePlan& plan, const Strategy& strategy,
                                       const EvaluationOptions& options,
                                       const Findings& findings) const;
  void fill_prediction(Evaluation& evaluation, const SequencePlan& plan, const Strategy& strategy,
                       const Findings& findings) const;
  static void add_attention(Prediction& p, const sim::Simulation& simulation,
                            const MeasuredTimes& measured);
  /// The attention component of a simulation, by measured block: the critical rank's kernels,
  /// all stretched alike where ranks share a core.
  [[nodiscard]] MeasuredTimes measured_times(const Schedule& schedule, const SequencePlan& plan,
                                             const sim::Simulation& simulation) const;
  [[nodiscard]] std::string bound_by(const Evaluation& evaluation) const;
  [[nodiscard]] sim::Simulation run(const SequencePlan& plan, const Strategy& strategy, Phase phase,
                                    const EvaluationOptions& options, Findings& findings,
                                    double limit) const;

  const Request& request_;
  KernelCost kernels_;
  BoundModel bounds_;
  /// Times of blocks of documents that are dealt out: each looks at all documents, few differ.
  mutable std::map<AttentionKey, Seconds> dealt_blocks_;
  mutable std::map<std::string, Demand> demands_;  // by plan and phase
  /// By plan, whatever its order, and phase: where documents have to be looked at.
  mutable std::map<std::string, ClosedForm> forms_;
  sim::SimulationCosts costs_;
  ComponentSeconds spreads_{};
};

}  // namespace spp
