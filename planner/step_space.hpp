// All combinations of degrees that a question about a step leaves open, each with what it takes at
// least: seconds, and bytes of the fullest rank.
//
//   seconds >= micro-batches x (layers + ends + attention) / stages, as no rank is faster than the
//   mean, and >= the same of the rank with most work, which is the one with the head more often
//   than not,
//              + what a rank waits for its first micro-batch and behind its last one
//   bytes   >= states, cut as far as the question allows, + what a stage keeps of the micro-batches
//              that are on their way: of the fullest rank
//
// Kernels and transfers of a layer are worked out once for each tensor, sequence and expert degree
// and micro-batch, the attention's closed forms without the expert degree.
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
  double around = 0;  // seconds without attention
  double calls = 0;   // of attention
};

/// Degrees of a step; ZeRO and attention's own axes follow.
struct StepPoint {
  int tensor = 1, sequence = 1, data = 1, pipeline = 1, virtual_stages = 1, expert = 1,
      expert_tensor = 1;
  bool sends_to_experts = false;
  Dispatcher to_experts = Dispatcher::all_to_all;  // where it sends
  std::int64_t micro_batch = 1, micro_batches = 1;
  std::string_view order = "1f1b";
  Recompute recompute = Recompute::none;
  RankWork mean, most;         // of all ranks, and of the one with most
  AttentionSeconds attention;  // of one call, at least
  Bytes memory{};              // of its tensors, at least
  [[nodiscard]] double bound() const { return bound_with(attention); }
  /// Full recomputation runs its forward again.
  [[nodiscard]] double seconds_of(const AttentionSeconds& call) const {
    return call.all + (recompute == Recompute::full ? call.forward : 0);
  }
  /// If a call takes so long.
  [[nodiscard]] double bound_with(const AttentionSeconds& call) const {
    const double all = seconds_of(call);
    return std::max(mean.around + mean.calls * all, most.around + most.calls * all);
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
/// The question of a point's attention.
AttentionQuestion attention_of(const Request& request, const StepPoint& point);

}  // namespace spp
