// In which metrics the model answers, by what a point is about.
#pragma once

#include "base/json.hpp"
#include "regress/corpus.hpp"

namespace spp::regress {

/// InputError at `metric`, the point's, if what it measures has no such figure.
void expect_metric(const JsonView& metric, const Point& point);

}  // namespace spp::regress
