// The plan of a whole step: how a model's layers, its weights and its batch are split over all
// GPUs, around the plan of attention.
//
// Ranks in order, innermost first: tensor, sequence (attention's own axes), data, pipeline, as
// Megatron-Core places them (megatron/core/parallel_state.py, tp-cp-ep-dp-pp). Experts fold over
// tensor x sequence x data of a stage: groups of `expert` ranks that are neighbours.
#pragma once

#include "machine/gemm_format.hpp"
#include "parallel/attention/plan.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "transformer/layer_kernels.hpp"
#include "transformer/model.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace spp {

/// What moves to the host's memory between forward and backward, or for the whole step.
enum class Offload : std::uint8_t { none, activations, optimizer, all };
constexpr bool moves_activations(Offload o) {
  return o == Offload::activations || o == Offload::all;
}
constexpr bool moves_optimizer(Offload o) { return o == Offload::optimizer || o == Offload::all; }
std::string_view to_string(Offload);
Offload parse_offload(std::string_view, std::string_view where);

struct StepPlan {
  SequencePlan attention;  // of one tensor rank's heads
  int tensor = 1;
  bool tensor_sequence = true;  // Megatron's sequence parallelism between the layers' GEMMs
  int data = 1;
  bool guided = false;  // its sequences are the two branches of a denoising step
  int expert = 1;
  int expert_tensor = 1;
  Dispatcher to_experts = Dispatcher::all_to_all;  // of experts on several ranks
  int pipeline = 1;
  int virtual_stages = 1;
  std::string order = "1f1b";      // of micro-batches; of one stage without meaning
  std::int64_t micro_batch = 1;    // sequences
  std::int64_t micro_batches = 1;  // of a step, one after the other
  int zero = 0;                    // stage
  int zero_group = 0;              // ranks that ZeRO cuts over; 0: all sequence x data
  Recomputation recompute;
  Offload offload = Offload::none;
  double offloaded = 1;  // part of the activations that moves, if they do
  GemmFormat format = GemmFormat::plain;
  bool wide_attention = false;  // the projections around attention stay in 16 bits

  [[nodiscard]] int sequence() const { return attention.ranks(); }
  /// What `data` is to a user: replicas that work on other sequences, or, under guidance, groups
  /// for the two branches of the same.
  [[nodiscard]] int dp() const { return guided ? 1 : data; }
  [[nodiscard]] int cfg() const { return guided ? data : 1; }
  /// Ranks that hold the same weights of a stage before ZeRO.
  [[nodiscard]] int replicas() const { return sequence() * data; }
  [[nodiscard]] int shards() const { return zero > 0 && zero_group > 0 ? zero_group : replicas(); }
  [[nodiscard]] int stage_ranks() const { return tensor * sequence() * data; }
  /// Tokens go to experts on other ranks.
  [[nodiscard]] bool sends_to_experts() const { return split().sends_to_experts(); }
  /// Ranks that hold the same experts of a stage before ZeRO, tensor ranks among them.
  [[nodiscard]] int expert_replicas() const {
    return std::max(1, stage_ranks() / (expert * expert_tensor));
  }
  /// Whether ZeRO has ranks to cut a model's states over.
  [[nodiscard]] bool can_shard(const Model& model) const {
    return shards() > 1 || (model.experts.count > 0 && expert_replicas() > 1);
  }
  [[nodiscard]] int world() const { return stage_ranks() * pipeline; }
  [[nodiscard]] PipelineShape pipeline_shape() const {
    return {.stages = pipeline,
            .chunks = virtual_stages,
            .micro_batches = static_cast<int>(micro_batches)};
  }
  /// `order`; of one stage the usual one. InputError if there is none of that name.
  [[nodiscard]] const Pipeline& pipeline_order() const {
    return pipeline > 1 ? pipelines::by_name(order, "--pipeline") : pipelines::usual(1);
  }
  [[nodiscard]] std::int64_t global_batch() const { return data * micro_batch * micro_batches; }
  [[nodiscard]] LayerSplit split() const {
    return {.tensor = tensor,
            .sequence_parallel = tensor_sequence,
            .expert = expert,
            .expert_tensor = expert_tensor};
  }
  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

/// Why the model cannot be split like that, with the nearest that can. Rules: "tensor", "linear",
/// "sparse", "sinks", "rank-order", "layout", "expert", "pipeline", "zero", "zero-group", "batch".
/// The attention's own are its strategy's.
WhyNot why_not(const Model& model, const StepPlan& plan);

}  // namespace spp
