// The pace of a machine: how fast it computes at the moment.
//
// The constants of a profile hold at one speed of the machine. Clocks and neighbours on a shared
// host change it, by a third within seconds. So a calibration times one small attention block again
// and again: times of kernels are scaled by what it took beside them. And a run times the same one
// between its iterations: their ratio tells a machine that changed from a model that errs.
#pragma once

#include "samples/series.hpp"

#include <vector>

namespace spp {

/// 512 queries and keys, one head of 64, no mask, forward: under a millisecond, mostly products, in
/// the cache of a core.
AttentionBlock pace_block(DType dtype);

/// Samples in units of the pace beside them; in seconds if none is noted.
std::vector<double> over_pace(const Series& series);

/// Times of kernels as they would be if the machine had kept the median pace of its calibration
/// (series `pace`; without one they stay as they are).
std::vector<Series> at_one_pace(std::vector<Series> series);

}  // namespace spp
