// Whole layers that the conformance tests run over: the attention of cases.hpp, within
// tensor-parallel groups, gated and not, with either norm, heads normed and not, or made of
// latents, with sinks and without.
#pragma once

#include "parallel/layer/schedule.hpp"
#include "tests/conformance/cases.hpp"

namespace spp::test {

struct LayerCase {
  Case attention;  // its problem has all heads, and sinks if the layer has; its plan splits those
                   // of one tensor rank
  int tensor = 1;
  bool gated = true;        // RMSNorm and SwiGLU; else LayerNorm and GELU
  bool head_norms = false;  // of Q and K
  bool latent = false;      // Q's heads are made from a latent, too, where it is gated
  bool biased = false;      // attention's projections, as they are where it is not gated

  [[nodiscard]] LayerPlan plan() const { return {.attention = attention.plan, .tensor = tensor}; }
  /// Of so many such layers, and with words.
  [[nodiscard]] Model model(std::int64_t layers) const;
  [[nodiscard]] TensorOps ops() const { return layer_of(model(1)); }
  [[nodiscard]] LayerGraph graph() const { return layer_graph(ops(), tensor); }
  [[nodiscard]] Schedule build(Phase phase) const {
    return layer_schedule(graph(), attention.problem, plan(), phase, attention.options);
  }
  [[nodiscard]] std::string text() const;
};

/// Legal ones behind cached keys, of each strategy that meets such; forward alone.
std::vector<LayerCase> layers_behind_cache();

/// Latent attention: as many heads of K, as wide as before, and values of another width.
void make_latent(LayerCase& layer);
/// A zigzag ring of two in tensor-parallel groups of two; gated.
LayerCase small_layer(DType dtype = DType::bf16);

/// A step of two such layers, or of one for each virtual stage.
struct StepCase {
  LayerCase layer;
  int zero = 0;
  int replicas = 1;
  int zero_group = 0;
  bool updates = true;
  PipelineShape pipeline{};
  std::string order = "1f1b";
  bool messages_overlap = false;
  Recomputation recompute{};
  Replay replay = Replay::whole;
  bool gathered_kept = false;
  Experts experts{};
  int expert_groups = 1;
  Dispatcher to_experts = Dispatcher::all_to_all;
  bool tied = false;  // the loss head is the embedding's table

  /// Every second layer sees a window of so many tokens.
  void look_through(std::int64_t window);
  /// Every second layer sees chunks of so many tokens.
  void look_at_chunks(std::int64_t tokens);

  [[nodiscard]] LayerPlan plan() const;
  [[nodiscard]] int layers() const { return std::max(2, pipeline.virtual_stages()); }
  [[nodiscard]] Model model() const;
  [[nodiscard]] LayerGraph graph() const {
    return step_graph(model(), layer.tensor, updates ? 0.01 : 0, expert_groups);
  }
  [[nodiscard]] Schedule build() const {
    return layer_schedule(graph(), layer.attention.problem, plan(), Phase::step,
                          layer.attention.options);
  }
  [[nodiscard]] std::string text() const;
};

/// Legal ones, of layers that may be in one, sharded and not.
std::vector<StepCase> step_cases(int sequence, int tensor, std::size_t most);

/// Legal ones whose shards have copies: in whole replicas, in parts of one and across two, reduced
/// once and each time, kept and gathered, beside tensor ranks, stages and experts.
std::vector<StepCase> hybrid_cases();

/// Legal ones with experts: on fewer, as many and more ranks than a token has, beside shared ones
/// and dense layers, through all axes; most with biases.
std::vector<StepCase> expert_cases();

/// Legal ones of gpt-oss's kind: sinks, a window in every second layer but where a strategy has
/// none; each softmax strategy that trains with sinks, odd ranks among them; some with all else
/// that gpt-oss has, too: experts, and biases of these, the router and attention.
std::vector<StepCase> sink_cases();

/// Legal ones with a backward, over `sequence` ranks of `tensor` each; at most `most` of each
/// strategy.
std::vector<LayerCase> layer_cases(int sequence, int tensor, std::size_t most);

}  // namespace spp::test
