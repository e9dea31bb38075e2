// Prediction of a whole step under one plan: attention as its schedules simulate it, the rest of
// the step around it (step/cost.hpp).
#pragma once

#include "planner/plan.hpp"
#include "step/cost.hpp"

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spp {

struct StepEvaluation {
  StepPlan plan;
  StepCost cost;
  std::vector<MemoryBytes> memory;  // by stage
  Seconds low{}, high{};            // of the step, a standard deviation each way
  bool fits = true;
  bool crowded = false;  // it fits, but the stack's allocator has to make room all the time
  std::vector<std::string> lowering;  // algorithm by kind of communication
  ComponentSeconds spreads{};         // relative
  double across = 0;                  // of what attention waits for, the part between nodes
  std::array<bool, step_axes> between_nodes{};  // axes around attention whose groups leave a node
  std::string attention_bound_by;
  [[nodiscard]] Seconds step() const { return Seconds(cost.total()); }
};

/// Evaluates plans of one question; keeps what they have in common.
class StepEvaluator {
 public:
  /// `request`: train or prefill of a model on a cluster; what it fixes of plans, its batch and its
  /// number of GPUs do not count here. It must outlive this.
  explicit StepEvaluator(const Request& request);

  /// InputError if the plan is not legal, or there are fewer GPUs.
  [[nodiscard]] StepEvaluation evaluate(const StepPlan& plan);
  /// Memory by stage; attention's buffers are those of the simulated call.
  [[nodiscard]] std::vector<MemoryBytes> memory(const StepPlan& plan);
  /// Without attention's buffers, for which nothing is simulated: never more than memory().
  [[nodiscard]] std::vector<MemoryBytes> memory_around_attention(const StepPlan& plan);
  /// The same as evaluate() of a plan that is legal and whose memory is known.
  [[nodiscard]] StepEvaluation timed(const StepPlan& plan, std::vector<MemoryBytes> memory);
  /// With everything that a report wants but max_seq, which takes some thirty questions of memory.
  [[nodiscard]] Candidate candidate(const StepEvaluation& evaluation);
  /// The attention of such a plan, `call`, has been simulated: it is not again.
  void know(const StepPlan& plan, const Request& call, const Evaluation& simulated);
  /// What happens when in a training step; but for an allocator that memory crowds.
  [[nodiscard]] StepTimeline timeline(const StepPlan& plan);
  /// The longest sequence that fits.
  [[nodiscard]] std::int64_t longest(const StepPlan& plan);
  [[nodiscard]] const KernelCost& kernels() const { return kernels_; }
  [[nodiscard]] const StepPractice& practice() const { return practice_; }
  /// What all plans of the question have in common.
  [[nodiscard]] StepCommon& common() { return common_; }

 private:
  struct Call {
    AttentionCost cost;
    double spread = 0;  // relative, of its kernels
    double across = 0;
    std::string bound_by;
    std::vector<std::string> lowering;
  };
  /// All that one depends on.
  struct CallKey {
    int tensor = 1;
    std::int64_t micro_batch = 1;
    int kv_heads = 1, head_dim = 1;
    SequencePlan attention;
    MetKeys keys;
    Mask mask;
    friend auto operator<=>(const CallKey&, const CallKey&) = default;
  };
  [[nodiscard]] static CallKey key_of(const StepPlan& plan, const Problem& whole);
  [[nodiscard]] const Call& attention(const StepPlan& plan, const Problem& whole);
  [[nodiscard]] const Call& linear(const StepPlan& plan);
  [[nodiscard]] const Call& sparse(const StepPlan& plan, const LayerRun& run);
  /// Of sequences of `seq` tokens, padded for the plan.
  [[nodiscard]] Call linear_at(const StepPlan& plan, std::int64_t seq);
  [[nodiscard]] Call sparse_at(const StepPlan& plan, const LayerRun& run, std::int64_t seq);
  /// What lets tokens of a kind of layers see each other; nullptr: nothing.
  [[nodiscard]] const Call* call_of(const StepPlan& plan, const LayerRun& run);
  [[nodiscard]] Call simulate(const StepPlan& plan, const Problem& whole) const;
  static Call call_of(const Request& call, const SequencePlan& plan, const Evaluation& e);
  [[nodiscard]] std::vector<AttentionCost> costs_of(const StepPlan& plan);
  /// Tokens of a sequence, padded for the plan.
  [[nodiscard]] std::int64_t padded_seq(const StepPlan& plan) const;
  /// Of exposed transfers by axis, the part between nodes.
  [[nodiscard]] std::array<std::pair<StepPart, double>, 5> across_nodes(
      const StepEvaluation& evaluation) const;
  [[nodiscard]] ComponentSeconds parts_of(const StepEvaluation& evaluation) const;

  const Request& request_;
  StepPractice practice_;  // in the type of the request
  KernelCost kernels_;
  StepCommon common_;
  std::map<CallKey, Call> calls_, linear_calls_, sparse_calls_;
};

/// The problem of one tensor rank's attention call, of `whole`: the request's, or of a kind of
/// layers (problem_of).
Problem attention_problem(const Request& request, const StepPlan& plan, const Problem& whole);
/// What such layers see of the request's tokens: what the request says, or their own part.
Mask mask_of(const LayerMask& layers, const Request& request);
/// Attention of a kind of layers before it is split: what the request says, with the layers' own
/// window or chunks, if they have such, and their heads.
Problem problem_of(const LayerRun& run, const Request& request);
/// The attention call of one tensor rank of a step as a question of its own: on every tensor-th GPU
/// of the cluster, if there is one. Of a question that is one already, the same.
struct AttentionQuestion {
  std::unique_ptr<sim::Cluster> cluster;  // request.cluster, unless the question's own
  Request request;
};
AttentionQuestion attention_question(const Request& request, const StepPlan& plan,
                                     const Problem& whole);

/// What "selective" computes again under the request's stack.
Recomputation recomputation_of(const Request& request, Recompute kind);
/// How tokens may come to experts on other ranks, unless the question says: as the framework can,
/// else as the stack does; what it does unless told first.
std::vector<Dispatcher> dispatchers_of(const Request& request);
/// How the request's stack runs a step.
const StepPractice& practice_of(const Request& request);

/// Sequences of a micro-batch whose number is not searched. Prompts of language models that pass
/// the stages of a pipeline: as many as are asked for, else as divide the batch within the tokens
/// that engines take at once (vLLM's max_num_batched_tokens, SGLang's chunked_prefill_size: 8,192
/// on GPUs of 80 GB), so that stages work side by side; else all.
std::int64_t prompts_at_once(const Request& request, int pipeline);
/// Sizes of which a search takes one: that, or fewer at once unless they are asked for, or an
/// engine's scheduler decides.
std::vector<std::int64_t> prompts_at_once_to_try(const Request& request, int pipeline);

/// Ranks of the groups of a step's axis, of all GPUs: "tp", "dp", "cfg", "pp", "ep"; none if its
/// degree is 1.
std::vector<std::vector<int>> groups_of(const StepPlan& plan, std::string_view axis);
/// Those of attention, of all GPUs.
std::vector<std::vector<int>> groups_of(const StepPlan& plan, Axis axis);

}  // namespace spp
