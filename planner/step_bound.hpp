// What a point of a step takes at least around its attention: seconds, and bytes of the fullest
// rank.
//
//   seconds >= micro-batches x (layers + ends + attention) / stages, as no rank is faster than the
//   mean, and >= the same of the rank with most work, which is the one with the head more often
//   than not,
//              + what a rank waits for its first micro-batch and behind its last one
//              + the update
//           >= the same with all that the host takes to issue it, and nothing else of attention
//           >= what is before a rank's last backward + its gradients' reduction + the update
//   bytes   >= states, cut as far as the question allows, + what a stage keeps of the micro-batches
//              that are on their way: of the fullest rank
//
// Kernels and transfers of a layer are worked out once for each tensor, sequence and expert degree
// and micro-batch.
#pragma once

#include "planner/step_space.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace spp {

constexpr std::array recomputations{Recompute::none, Recompute::selective, Recompute::full};

class StepBounds {
 public:
  /// Both must outlive this.
  StepBounds(const Request& request, StepEvaluator& evaluator);

  /// Of one micro-batch on one rank, however ranks are placed where that is open: at least.
  struct LayerCost {
    double forward = 0;                // seconds, without attention over the sequence and the host
    std::array<double, 3> backward{};  // by Recompute
    double forward_issued = 0;         // the same, or what the host takes
    std::array<double, 3> backward_issued{};
    /// Of both, nothing again, at most: what kernels take and stand, and what the host takes to
    /// issue them.
    double standing = 0, host = 0;
    std::array<double, 3> kept{};  // bytes
    std::array<double, 3> working{};
    double cached = 0;
    HeldWeights weights;
  };
  struct LayersCost {
    std::vector<LayerCost> kinds;
    LayerCost first, last;
    // Of all layers and both ends.
    double forward = 0, standing = 0, host = 0;
    std::array<double, 3> backward{};
    /// Forward and backward take so long at most; beside attention that is not bound by the host.
    [[nodiscard]] double most() const { return std::max(standing, host); }
    [[nodiscard]] double least() const { return forward + backward.front(); }
    // Of the cheapest kind.
    double layer_forward = 0;
    std::array<double, 3> layer_both{};
  };

  /// What comes behind the backwards of a training step, at least.
  struct EndOfStep {
    double update = 0;              // seconds, and what the host takes for the step
    std::vector<double> reduction;  // seconds by rank, hidden or not: of its gradients
    /// With weights that come and go layer by layer: what they take of all micro-batches.
    double sharded = std::numeric_limits<double>::infinity();
  };
  /// What points have in common that differ in what is computed again alone.
  struct Around {
    const LayersCost* layers = nullptr;
    EndOfStep end;
  };
  [[nodiscard]] Around around(const StepPoint& point, const StepPlan& plan);
  /// Fills in the point's bounds, but for attention's: that it has. `plan`: with what is known
  /// around attention.
  void fill(StepPoint& point, const StepPlan& plan, const Around& around);

 private:
  /// What stands on a virtual stage.
  struct StageKinds {
    std::vector<std::int64_t> layers;  // by kind
    std::int64_t own_mask = 0;         // of these, such as attend as the request says
    bool embeds = false, ends = false;
  };
  /// Seconds a byte of large tensors: more than that of smaller ones is not.
  struct MovedRate {
    double dense = 0, experts = 0;
    [[nodiscard]] double of(double dense_bytes, double expert_bytes) const {
      return dense * dense_bytes + experts * expert_bytes;
    }
  };
  struct WeightRates {
    MovedRate all_reduce, scatter, gather;  // whole; to shards, and back
    MovedRate copies;                       // of shards, summed up, by bytes of the whole
  };
  /// Of a micro-batch on one rank, at least.
  struct PassesOfRank {
    double forward = 0, backward = 0;  // seconds without attention
    double issued = 0;                 // both, or what the host takes
    double calls = 0;                  // of attention
  };
  struct RankBytes {
    HeldWeights held;
    double rest = 0;  // bytes beside its states
  };
  [[nodiscard]] bool has_own_mask(const LayerRun& run) const;
  EndOfStep end_of_step(const StepPoint& point, const StepPlan& plan, const LayersCost& cost);
  const WeightRates& weight_rates(const StepPlan& plan);
  /// Everything that the point's bound is made of but attention.
  void bound_time(StepPoint& point, const StepPlan& plan, const LayersCost& cost,
                  const EndOfStep& end);
  [[nodiscard]] PassesOfRank passes_of(const StepPoint& point, const LayersCost& cost,
                                       const std::vector<StageKinds>& stages, int rank) const;
  /// Seconds that a micro-batch spends on a stage before it comes to the next, and on its way back,
  /// at least.
  [[nodiscard]] double pass_of_chunk(const StepPoint& point, const LayersCost& cost) const;
  /// Of the fullest rank.
  [[nodiscard]] Bytes bytes(const StepPoint& point, const StepPlan& plan, const LayersCost& cost);
  [[nodiscard]] static HeldWeights held_by(const StepPoint& point, const LayersCost& cost,
                                           const std::vector<StageKinds>& stages, int rank);
  [[nodiscard]] RankBytes bytes_of_rank(const StepPoint& point, const LayersCost& cost,
                                        const std::vector<StageKinds>& stages, int rank) const;
  /// Micro-batches of which a rank holds every chunk's activations, at least.
  [[nodiscard]] double in_flight(const StepPoint& point, int rank, bool ends) const;
  /// Parameters, gradients and the optimizer's, cut as far as the question allows.
  [[nodiscard]] double states_of(const StepPoint& point, const StepPlan& plan, int zero,
                                 const HeldWeights& held) const;
  const std::vector<StageKinds>& stage_kinds(const StepPlan& plan);
  const LayersCost& layers_cost(const StepPoint& point, const StepPlan& plan);
  [[nodiscard]] LayersCost worked_out(StepPlan plan);
  /// The plan on block ranks, and on cyclic ones where attention may choose these.
  [[nodiscard]] std::vector<StepPlan> in_open_orders(const StepPlan& plan) const;
  /// No bound yet.
  [[nodiscard]] LayerCost unbounded() const;
  /// With recomputation `r`.
  void add_passes(LayerCost& cost, std::size_t r, const LayerPasses& passes,
                  const LayerBytes& bytes) const;

  const Request& request_;
  const Model& model_;
  const StepEvaluator& evaluator_;
  StepCommon& common_;
  bool train_ = true;
  std::int64_t own_mask_ = 0;  // layers that attend as the request says
  std::map<std::tuple<int, int, int, int, Dispatcher, std::int64_t>, LayersCost> layers_;
  std::map<std::pair<int, int>, std::vector<StageKinds>> stage_kinds_;
  std::map<std::array<int, 6>, WeightRates> weight_rates_;
};

}  // namespace spp
