// How many pairs of a query and what it meets sparse attention has, exactly: which ones, an indexer
// says, how many follows from where a query stands.
#pragma once

#include "schedule/tokens.hpp"
#include "transformer/model.hpp"

#include <cstdint>

namespace spp {

/// Of a set of queries, in one head.
struct MetPairs {
  std::int64_t window = 0;   // with keys of the last tokens
  std::int64_t entries = 0;  // with entries: those picked, or all
  std::int64_t seen = 0;     // with entries that may be picked: an indexer scores them
  [[nodiscard]] std::int64_t met() const { return window + entries; }
};

/// Of queries at their places in the sequence, cached tokens in front counted. `queries` stand next
/// to each other in ranges (no strides).
MetPairs met_pairs(const MetKeys& keys, const TokenSet& queries);

}  // namespace spp
