// Cases that are run for real, on threads, and checked against single-device attention in fp64.
#pragma once

#include "runtime/trial/trial.hpp"
#include "tests/conformance/cases.hpp"

#include <string>

namespace spp::test {

/// Both phases (of a strategy without a backward, its forward) once, with a check; without kernels
/// or engines, which are for the caller to choose.
runtime::TrialRequest trial_of(const Case& c);

/// What is wrong with a result, for people; "" if it is right.
std::string failures(const runtime::TrialResult& result);

}  // namespace spp::test
