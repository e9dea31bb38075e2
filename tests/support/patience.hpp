// How long tests wait for what is bound to come, and should not hang when it does not.
#pragma once

#include "base/units.hpp"

namespace spp::test {

/// `of_optimised`, as many times longer as this build is slower (SPP_TEST_PATIENCE of
/// SppTest.cmake).
inline Seconds patient(Seconds of_optimised) { return of_optimised * SPP_TEST_PATIENCE; }

}  // namespace spp::test
