// The program of one rank of a whole layer, or of a whole step: what layer_schedule.hpp describes.
#pragma once

#include "schedule/transplant.hpp"
#include "step/layer_schedule.hpp"

#include <optional>
#include <string>
#include <vector>

namespace spp {

/// By buffer of attention's backward: the buffer of its forward that this is; of others -1.
using KeptBuffers = std::vector<int>;

/// Where a parameter is used.
struct ParamUse {
  int unit = 0;
  bool of_norm = false;  // whose rows are cut between tensor ranks, too
};
std::vector<ParamUse> param_uses(const LayerGraph& layer);

/// What all ranks' programs have in common.
struct LayerParts {
  LayerGraph layer;
  GraphIndex index;            // of its graph
  std::vector<ParamUse> uses;  // by parameter
  LayerPlan plan;
  Phase phase = Phase::forward;
  Problem problem;                  // padded, all heads
  std::optional<Schedule> forward;  // attention of one tensor rank's heads, of the phases there
  std::optional<Schedule> backward;
  HeadSplit split;                // of all heads
  std::vector<KeptBuffers> kept;  // of a step, by attention's rank

  [[nodiscard]] const Schedule& attention() const { return forward ? *forward : *backward; }
};

/// Streams of attention; those of the tensor ranks' and the parameters' transfers follow.
constexpr std::size_t layer_streams_first = 6;

Program layer_program(const LayerParts& parts, Rank rank);

/// What of its forward attention's backward reads: given to it, its results, and what it holds in
/// the end besides (heads that an all-to-all brought). By rank. `lacking`: a tensor that is not
/// there in the same tokens and heads; then it is not whole.
std::vector<KeptBuffers> kept_by(const Schedule& forward, const Schedule& backward,
                                 std::string& lacking);

}  // namespace spp
