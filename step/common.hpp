// What all plans of a step have in common, each part worked out once: lists of operations, what
// layers take on a rank but for their attention, what groups of ranks take, where layers stand.
// Thousands of plans share a few dozen of these parts.
#pragma once

#include "sim/cluster.hpp"
#include "step/passes.hpp"
#include "step/plan.hpp"
#include "step/stages.hpp"

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace spp {

struct StepRequest {
  const Model* model = nullptr;
  const sim::Cluster* cluster = nullptr;
  const KernelCost* kernels = nullptr;
  const StepPractice* practice = nullptr;
  DType dtype = DType::bf16;
  StepKind kind = StepKind::train;
  std::int64_t cached = 0;  // of a prefill: tokens in front of the sequence, with keys and values
  double imbalance = 1;     // of experts: rows that the fullest rank's get, over the mean
};

/// The most rows that one of so many ranks' experts can get, over the mean.
double most_imbalance(const Experts& experts, int ranks);

/// What a tensor-parallel group holds of each sequence of `seq` tokens, padded for the plan.
LocalTokens local_tokens(const StepRequest& request, const StepPlan& plan, std::int64_t seq);

/// One for each kind of layer, and for what is no layer.
template <class T>
struct ByLayer {
  std::vector<T> kinds;
  T first, last, predict;
};

/// Of a layer; `again` is what a backward computes once more.
struct LayerPasses {
  PassAround forward, again, backward;
};

/// Bytes of a layer on a rank: that wait for the backward, that wait between the halves of one that
/// is cut, that come on top while it runs, of a forward alone, of what later tokens read, of sums
/// that are scattered over tensor ranks.
struct LayerBytes {
  double kept = 0, cut = 0, working = 0, forward = 0, cached = 0, sums = 0;
};

class StepCommon {
 public:
  /// What the request points to must outlive this, and not change.
  explicit StepCommon(const StepRequest& request);

  [[nodiscard]] const StepRequest& request() const { return request_; }
  [[nodiscard]] const ModelLayers& layers(Dispatcher to_experts) const {
    return layers_[static_cast<std::size_t>(to_experts)];
  }
  [[nodiscard]] StepLinks links(const StepPlan& plan) { return {groups_, plan}; }
  /// By virtual stage.
  const std::vector<Stage>& stages(const StepPlan& plan);
  const ByLayer<LayerPasses>& passes(const StepPlan& plan, const LocalTokens& local,
                                     const StepLinks& links);
  const ByLayer<LayerBytes>& bytes(const StepPlan& plan, const LocalTokens& local);
  const ByLayer<HeldWeights>& weights(const StepPlan& plan);

 private:
  /// All of a plan that a layer's passes depend on.
  struct PassKey {
    LocalTokens local;
    RankOrder order = RankOrder::block;
    Dispatcher to_experts = {};
    Recomputation recompute;
    GemmFormat format = GemmFormat::plain;
    double tensor_host = 0;
    friend auto operator<=>(const PassKey&, const PassKey&) = default;
  };
  /// All that a layer's bytes depend on.
  struct ByteKey {
    LocalTokens local;
    Dispatcher to_experts = {};
    Recomputation recompute;
    std::int64_t cached = 0;  // tokens in front of a sequence, of a rank of its ring
    friend auto operator<=>(const ByteKey&, const ByteKey&) = default;
  };
  [[nodiscard]] PassCosts pass_costs(const StepPlan& plan, const StepLinks& links,
                                     Seconds tensor_host) const;
  template <class T, class Measure>
  ByLayer<T> by_layer(Dispatcher to_experts, const Measure& measure) const;

  StepRequest request_;
  std::array<ModelLayers, dispatchers> layers_;  // by Dispatcher
  GroupTimes groups_;
  std::map<std::pair<int, int>, std::vector<Stage>> stages_;
  std::map<PassKey, ByLayer<LayerPasses>> passes_;
  std::map<ByteKey, ByLayer<LayerBytes>> bytes_;
  std::map<LayerSplit, ByLayer<HeldWeights>> weights_;
};

}  // namespace spp
