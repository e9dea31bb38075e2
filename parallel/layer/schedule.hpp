// A whole transformer layer, or a whole training step, as one schedule: attention as its plan
// splits it, and around it Megatron's tensor parallelism (Shoeybi et al., arXiv:1909.08053) with
// sequence parallelism (Korthikanti et al., arXiv:2205.05198). Proven, simulated and executed as
// attention alone is.
//
// Ranks: tensor is the innermost axis, attention's own axes follow, then data-parallel replicas,
// whose ranks do the same with other tokens, then the stages of a pipeline, whose ranks do other
// layers. A rank of tensor index t holds the t-th part of its sequence rank's tokens between the
// matrices, and heads and inner columns t of all of that sequence rank's tokens inside of them:
//
//   norm -> gather -> qkv -> heads -> attention over the sequence ranks -> out -> reduce-scatter ->
//   + norm -> gather -> gate, up -> activation -> down -> reduce-scatter -> +
//
// Backward: gradients are gathered in front of a row-parallel matrix; at a column-parallel one the
// saved rows are gathered again, beside the product for the input's gradient, which is
// reduce-scattered beside that for the weight's (Megatron-Core d98e8a64dd,
// megatron/core/tensor_parallel/layers.py); or in front of a weight's product that is put off; or
// not again, where a plan keeps what was gathered. Gradients of parameters are fp32 sums over all
// tokens: all-reduced over the ranks that hold other tokens.
//
// A step begins with a table of words cut between the tensor ranks by words: each looks all tokens
// of the sequence rank up, the sums are reduce-scattered. It ends with logits cut by words: of its
// part each rank knows three numbers a token, which are reduce-scattered as well; each token's
// log-sum is gathered for the gradient (Megatron-LM all-reduces the three one by one).
//
// A step has one micro-batch after the other: gradients of parameters are sums over all of them.
// Stages send each other what a layer hands to the next, each tensor rank its part of the rows, and
// the gradients of it back, in the order of a pipeline schedule (parallel/pipeline).
//
// Experts: each token's router scores, then its row once for each of its experts, in their order,
// on their way to the ranks that have them (routing.hpp), and back into a sum; backward likewise.
// Weights travel with the rows and are multiplied in with the activation, as in Megatron-Core. Or
// (Dispatcher::all_gather) each rank of a group gathers the rows of all, and what its experts make
// of theirs is summed up over the group.
//
// transformer/layer_kernels.hpp lists the same kernels and transfers in closed form; tests hold the
// schedule against that list.
#pragma once

#include "parallel/attention/strategy.hpp"
#include "parallel/layer/graph.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "schedule/schedule.hpp"

#include <string>
#include <vector>

namespace spp {

struct LayerPlan {
  SequencePlan attention;  // of one tensor rank's heads
  int tensor = 1;
  /// Of a step, where the ranks that sum a parameter's gradient up have its update: 0: each all of
  /// it; 1: each a shard, gradients are reduce-scattered behind the last micro-batch and updated
  /// parameters gathered (Rajbhandari et al., arXiv:1910.02054, P_os; Megatron's distributed
  /// optimizer); 2: the same, the gradients of every micro-batch by themselves, so that only
  /// shards of the sums are kept (P_os+g), in a pipeline behind the last one as well (PyTorch's
  /// pipelining reduces in its last backward alone); 3: each holds only a shard of the parameter,
  /// too, which is gathered before each layer's forward and backward while the layer before
  /// computes (P_os+g+p; FSDP, arXiv:2304.11277), in a pipeline once a step. Every parameter
  /// travels by itself.
  int zero = 0;
  int replicas = 1;  // data-parallel, each with sequences of its own
  /// Of ZeRO: shards are cut over so many sequence x data ranks in a row, over which gradients are
  /// reduce-scattered; then shards are all-reduced over the other groups of so many, each time they
  /// are reduced (hybrid sharding: FSDP, arXiv:2304.11277, section 3.2.2). 0: over all. Experts are
  /// cut over all that have them.
  int zero_group = 0;
  /// Of a step: stages, and the micro-batches of each replica. One stage has them one by one.
  PipelineShape pipeline{};
  /// Of every layer, in front of its backward: all of the forward, from the layer's input, of which
  /// nothing else was kept; or modules, from what was kept of their inputs. Policies, which are no
  /// part of a layer (every_second_gemm, all_but_attention), compute nothing again here.
  Recomputation recompute{};
  Replay replay = Replay::whole;
  /// Of a step: rows gathered in front of a matrix that is cut by columns stay for its weight's
  /// gradient, which gathers them again otherwise.
  bool gathered_kept = false;
  /// Groups of experts, each on one of so many ranks in a row, whatever axes these go through
  /// (Megatron-Core's parallel folding, arXiv:2504.14960, without tensor parallelism in experts).
  int expert = 1;
  Dispatcher to_experts = Dispatcher::all_to_all;  // of several groups
  std::string order = "1f1b";                      // of their work, a name of pipelines::all()
  std::vector<int> units{};       // of the graph, on each virtual stage; of one: may be left out
  bool messages_overlap = false;  // stages go on while what they send travels
  [[nodiscard]] int model_ranks() const { return tensor * attention.ranks(); }  // of one replica
  [[nodiscard]] int stage_ranks() const { return model_ranks() * replicas; }
  /// Ranks of a stage that have shards of one copy.
  [[nodiscard]] int shard_ranks() const {
    return zero_group > 0 ? zero_group * tensor : stage_ranks();
  }
  [[nodiscard]] int ranks() const { return stage_ranks() * pipeline.stages; }
  [[nodiscard]] int micro_batches() const { return pipeline.micro_batches; }  // of a replica
};

/// "" if such a layer can be scheduled, else why not. `problem`: attention of all heads, as
/// requested.
std::string why_not_layer(const LayerGraph& layer, const Problem& problem, const LayerPlan& plan);

/// The same of a step: why_not_layer, and the attention's backward must find what its forward left.
std::string why_not_step(const LayerGraph& step, const Problem& problem, const LayerPlan& plan,
                         const BuildOptions& options);

/// Phase::step: of a graph with a loss (step_graph) forward, backward and update in one program, in
/// which nothing but words, targets and parameters is given, and nothing but losses and updated
/// parameters is left. The layer, or the step, must be legal.
Schedule layer_schedule(const LayerGraph& layer, const Problem& problem, const LayerPlan& plan,
                        Phase phase, const BuildOptions& options);

}  // namespace spp
