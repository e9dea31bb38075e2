// The model that a point's keys describe.
#pragma once

#include "machine/machine.hpp"
#include "regress/corpus.hpp"
#include "transformer/model.hpp"

#include <vector>

namespace spp::regress {

/// A decoder. Layers, widths and heads are stated; `assumed` gets what was filled in.
Model stated_model(const Point& point, const Mask& mask, std::vector<Assumption>& assumed);

}  // namespace spp::regress
