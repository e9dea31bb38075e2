// In which metrics the model answers, by what a point is about.
#pragma once

#include "regress/corpus.hpp"

#include <string>

namespace spp::regress {

/// "" if what the point measures has such a figure; else why it is not predicted.
std::string why_no_metric(const Point& point);

}  // namespace spp::regress
