// All combinations of degrees that a question about a step leaves open, each with what it takes at
// least (step_bound.hpp). Attention's closed forms are worked out once for each tensor and sequence
// degree and micro-batch.
#pragma once

#include "planner/plan.hpp"
#include "planner/step.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace spp {

/// What kernels and exposed transfers of an attention call take, without what the host makes it
/// wait for, which hides behind the GEMMs of a step.
struct AttentionSeconds {
  double all = 0;      // forward and backward
  double forward = 0;  // of it
};

/// What a rank does in a step, at least.
struct RankWork {
  double around = 0;    // seconds without attention
  double calls = 0;     // of attention
  double forwards = 0;  // of attention, beside these
};

/// Degrees of a step; ZeRO and attention's own axes follow.
struct StepPoint {
  int tensor = 1, sequence = 1, data = 1, pipeline = 1, virtual_stages = 1, expert = 1,
      expert_tensor = 1;
  bool sends_to_experts = false;
  Dispatcher to_experts = Dispatcher::all_to_all;  // where it sends
  std::int64_t micro_batch = 1, micro_batches = 1;
  const Pipeline* order = &pipelines::usual(1);
  Recompute recompute = Recompute::none;
  RankWork mean, most;         // of all ranks, and of the one with most
  RankWork reduced;            // of the one that is last with its gradients
  double sharded = 0;          // seconds; or its weights, layer by layer (ZeRO 3), take so long
  double issued = 0;           // seconds, with what the host takes, without attention
  AttentionSeconds attention;  // of one call, at least
  Bytes memory{};              // of its tensors, at least
  [[nodiscard]] double bound() const { return bound_with(attention); }
  /// Full recomputation runs its forward again.
  [[nodiscard]] double seconds_of(const RankWork& work, const AttentionSeconds& call) const {
    const double again = recompute == Recompute::full ? call.forward : 0;
    return work.around + work.calls * (call.all + again) + work.forwards * call.forward;
  }
  /// If a call takes so long.
  [[nodiscard]] double bound_with(const AttentionSeconds& call) const {
    return std::max({seconds_of(mean, call), seconds_of(most, call), issued,
                     std::min(seconds_of(reduced, call), sharded)});
  }
};

struct StepSpace {
  std::vector<StepPoint> points;
  std::vector<Rejected> rejected;  // one for each rule and its degrees
};

StepSpace step_space(const Request& request, StepEvaluator& evaluator);

/// ZeRO stages that the question leaves open, lowest first. Under a pipeline 2 and 3 move more than
/// 1 and save nothing, as micro-batches' gradients add up whole.
std::vector<int> zero_stages(const Request& request, const StepPoint& point);
StepPlan plan_of(const Request& request, const StepPoint& point, const SequencePlan& attention,
                 int zero);
/// With attention as what is known around it wants it: tokens as they come.
StepPlan plan_around_attention(const Request& request, const StepPoint& point, int zero);
/// Whether ranks may be dealt out to nodes, too: where attention is over all of the GPUs, since
/// theirs is one axis among others else.
bool leaves_rank_order_open(const Request& request, int sequence);
/// The question of a point's attention.
AttentionQuestion attention_of(const Request& request, const StepPoint& point);

}  // namespace spp
