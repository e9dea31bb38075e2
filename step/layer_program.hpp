// The program of one rank of a whole layer, or of a whole step: what layer_schedule.hpp describes.
#pragma once

#include "step/layer_parts.hpp"

namespace spp {

Program layer_program(const LayerParts& parts, Rank rank);

}  // namespace spp
