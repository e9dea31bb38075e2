// All plans that are legal for a problem: what conformance tests, analytic tests and benchmarks run
// over, so that a new strategy is tested before anyone writes a test for it.
#pragma once

#include "parallel/attention/strategy.hpp"

#include <string>
#include <vector>

namespace spp::test {

/// Every legal plan of every strategy over `ranks` ranks: degrees, layouts, head policies, and the
/// orders that differ (axes of size 1 have no place). In the order of strategies::all().
std::vector<SequencePlan> legal_plans(int ranks, const Problem& problem);

/// "usp U=2 R=4 zigzag divide order=ulysses,ring,team"
std::string describe(const SequencePlan& plan);
/// "seq=61 batch=2 heads=12/4x8 causal bf16"
std::string describe(const Problem& problem);

}  // namespace spp::test
