// What fits assume of all numbers alike.
#pragma once

namespace spp::calibrate {

constexpr double least_seconds = 1e-9;
/// Of what was not measured.
constexpr double assumed_spread = 0.3;

}  // namespace spp::calibrate
