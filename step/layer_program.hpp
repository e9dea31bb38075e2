// The program of one rank of a whole layer, or of a whole step: what layer_schedule.hpp describes.
#pragma once

#include "schedule/transplant.hpp"
#include "step/layer_schedule.hpp"

#include <optional>

namespace spp {

/// What all ranks' programs have in common.
struct LayerParts {
  LayerGraph layer;
  LayerPlan plan;
  Phase phase = Phase::forward;
  Problem problem;                  // padded, all heads
  std::optional<Schedule> forward;  // attention of one tensor rank's heads, of the phases there
  std::optional<Schedule> backward;
  HeadSplit split;  // of all heads

  [[nodiscard]] const Schedule& attention() const { return forward ? *forward : *backward; }
};

/// Streams of attention; those of the tensor ranks' and the parameters' transfers follow.
constexpr std::size_t layer_streams_first = 6;

Program layer_program(const LayerParts& parts, Rank rank);

/// The buffer of attention's forward that the backward's input is: nothing if it has none of the
/// same tensor, tokens and heads.
const Buffer* kept_by(const Program& forward, const Buffer& input);

}  // namespace spp
