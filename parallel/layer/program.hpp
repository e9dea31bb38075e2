// The program of one rank of a whole layer, or of a whole step: what schedule.hpp describes.
#pragma once

#include "parallel/layer/parts.hpp"

namespace spp {

Program layer_program(const LayerParts& parts, Rank rank);

}  // namespace spp
