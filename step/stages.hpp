// Which layers stand on which virtual stage of a pipeline, and what a rank holds of the weights.
#pragma once

#include "machine/step_practice.hpp"
#include "step/plan.hpp"

#include <cstdint>
#include <vector>

namespace spp {

/// A count in arithmetic that leaves the integers.
constexpr double real_of(std::int64_t n) { return static_cast<double>(n); }

/// A virtual stage: layers from `first` on, with the embedding before the first and the loss head
/// behind the last one; behind the last layer, those that predict further tokens.
struct Stage {
  std::int64_t first = 0, layers = 0;
  bool embeds = false, ends = false;
  std::size_t predictions = 0;
};

/// Whether layers are dealt out to so many virtual stages: equally, embedding and head counted as a
/// layer each or not, as Megatron-Core does; by hand where further tokens are predicted. Engines of
/// inference deal them out in any way (vLLM, SGLang: get_pp_indices).
bool can_stage(const Model& model, std::int64_t stages, StepKind kind);

/// What counts as a layer where layers are dealt out to stages that they do not fill.
struct CountedEnds {
  bool embedding = false, loss = false;
  [[nodiscard]] int layers() const { return (embedding ? 1 : 0) + (loss ? 1 : 0); }
};
CountedEnds counted_ends(std::int64_t layers, std::int64_t stages);

/// By virtual stage. `even_times`: the loss head counts with the time that it takes, else it does
/// not (or as a layer, where the layers do not divide). With so many layers that predict further
/// tokens everything counts with its time, as Megatron-Core's layouts of such models are written by
/// hand (DeepSeek-V3's in Megatron-Bridge: 'Et*3|(tt|)*29,m|L'); they stand with the head, or on
/// the stage before it.
std::vector<Stage> stages_of(const Model& model, const StepPlan& plan, bool even_times,
                             std::size_t predictions);

/// Weights on one rank: those that all `replicas()` hold, and those of experts, which fewer do.
struct HeldWeights {
  std::int64_t dense = 0, experts = 0;
  std::int64_t narrow =
      0;  // of the dense: of GEMMs that may multiply in fewer bits; experts' all may
  [[nodiscard]] std::int64_t all() const { return dense + experts; }
  HeldWeights& operator+=(const HeldWeights& other) {
    dense += other.dense;
    experts += other.experts;
    narrow += other.narrow;
    return *this;
  }
  friend HeldWeights operator*(std::int64_t times, HeldWeights held) {
    return {.dense = times * held.dense,
            .experts = times * held.experts,
            .narrow = times * held.narrow};
  }
};
HeldWeights held_weights(const TensorOps& ops, const LayerSplit& split);

/// Numbers of vocabulary tables that a stage uses and that another one counts: a
/// loss head that is the embedding, and what layers read that predict further tokens. `first`,
/// `last`: of the ends of the model.
std::int64_t tables_copied(const Stage& stage, bool tied, const HeldWeights& first,
                           const HeldWeights& last);

/// Bytes that parameters lie and travel in: training has them in the stack's type, a prefill those
/// of GEMMs in the format in which they multiply, with their scales.
struct ParameterBytes {
  double dense = 0, experts = 0;
  [[nodiscard]] double all() const { return dense + experts; }
};
ParameterBytes parameter_bytes(const HeldWeights& held, GemmFormat format, StepKind kind,
                               const StepPractice& practice);

}  // namespace spp
