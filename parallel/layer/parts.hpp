// What all ranks' programs of a layer, or of a step, have in common (schedule.hpp), and where
// one of the ranks stands among them.
#pragma once

#include "parallel/layer/schedule.hpp"
#include "parallel/layer/streams.hpp"
#include "parallel/pipeline/messages.hpp"

#include <optional>
#include <string>
#include <vector>

namespace spp {

/// By buffer of attention's backward: the buffer of its forward that this is; of others -1.
using KeptBuffers = std::vector<int>;

/// What of its forward attention's backward reads: given to it, its results, and what it holds in
/// the end besides (heads that an all-to-all brought). By rank. `lacking`: a tensor that is not
/// there in the same tokens and heads; then it is not whole.
std::vector<KeptBuffers> kept_by(const Schedule& forward, const Schedule& backward,
                                 std::string& lacking);

/// Where a parameter is used.
struct ParamUse {
  std::vector<int> units{};  // rising; two of an embedding's table that is the loss head, too
  /// Whose rows, or heads, are cut between tensor ranks, too; or a matrix of such rows.
  bool of_norm = false;
  bool of_experts = false;
};
std::vector<ParamUse> param_uses(const LayerGraph& layer);
/// How many ranks of a stage have other tokens for it.
int ranks_that_sum(const ParamUse& use, const LayerPlan& plan);
/// Over how many of them, in a row, one with so many rows is cut; 1: all have all of it.
int shards_of(const ParamUse& use, std::int64_t rows, const LayerPlan& plan);
/// So many ranks sum up a gradient of so many rows in groups of these sizes, one after the other:
/// an all-reduce cuts rows into a part for each member. One group where they divide; none at all if
/// no such groups do.
std::vector<int> sum_sizes(std::int64_t rows, int ranks);
/// The same by unit.
std::vector<std::vector<int>> params_of_units(const LayerGraph& layer);

/// A virtual stage of a pipeline.
struct StagePart {
  int first_unit = 0, end_unit = 0;
  int first_definition = 0, end_definition = 0;
  std::vector<TensorRef> leaving;  // values that the next one, or one behind it, reads
};
/// InternalError if the plan's units are others than the layer's. A layer is one stage.
std::vector<StagePart> stage_parts(const LayerGraph& layer, const LayerPlan& plan);

/// Whether a linear layer's matrix is whole on every rank, each multiplying its own rows.
bool is_whole(const LayerGraph& layer, const Definition& d);

/// Tokens of the queries that a rank of attention holds, and all ranks.
TokenSet home_of(const std::vector<Buffer>& buffers, Phase phase);
std::vector<TokenSet> homes_of(const Schedule& attention);

/// By definition: those that are computed again, rising, in front of its backward. Of whole layers
/// everything when its backward begins; of some modules each run of neighbours in front of the
/// first backward that reads what one of them writes.
std::vector<std::vector<int>> computed_again(const LayerGraph& layer, const LayerPlan& plan);

/// Names of a micro-batch's tensors begin with this.
std::string prefix_of(const LayerPlan& plan, int micro_batch);

/// Attention of one tensor rank's heads by one mask, of the phases there are.
struct AttentionParts {
  std::optional<Schedule> forward, backward;
  std::vector<KeptBuffers> kept;  // of a step, by attention's rank

  [[nodiscard]] const Schedule& any() const { return forward ? *forward : *backward; }
};

struct LayerParts {
  LayerGraph layer;
  GraphIndex index;                      // of its graph
  std::vector<ParamUse> uses;            // by parameter
  std::vector<std::vector<int>> params;  // by unit: used there
  LayerPlan plan;
  Phase phase = Phase::forward;
  Problem problem;                         // padded, all heads
  std::vector<AttentionParts> attentions;  // by mask of the problem's
  HeadSplit split;                         // of all heads
  std::vector<StagePart> stages;           // virtual ones
  std::vector<std::vector<int>> computed_again;
  std::vector<std::vector<StageStep>> steps;  // of a step, by stage of the pipeline
  std::vector<TokenSet> homes;                // of a model with experts, by attention's rank
  LayerStreams streams;

  [[nodiscard]] bool is_step() const { return phase == Phase::step; }
};

/// A rank, and whom it meets.
struct LayerRank {
  LayerRank(const LayerParts& parts, Rank rank);

  Rank rank;
  int tensor = 1, index = 0;  // tensor ranks, and which of them
  int replica = 0, stage = 0;
  Rank of_attention;
  RankGroup tensor_group;  // parts of the same rows
  RankGroup same_tensor;   // the same parameters, other tokens
  RankGroup of_stage;      // the same norms' parameters, other tokens
  int expert = 0;          // its group of experts
  RankGroup expert_group;  // one rank of each group
  RankGroup same_experts;
  int stage_ranks = 1;

  /// The rank that does the same at another stage.
  [[nodiscard]] Rank at_stage(int other) const {
    return Rank(rank.value + (other - stage) * stage_ranks);
  }
  /// Of heads, the rank's tensor part.
  [[nodiscard]] HeadRange mine(int heads) const {
    return {.begin = index * heads / tensor, .end = (index + 1) * heads / tensor};
  }
};

}  // namespace spp
