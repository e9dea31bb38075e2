#include "transformer/met_pairs.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp {
namespace {

/// The sum of floor(t / entry) over t = 1 … tokens: entries seen by the first `tokens` queries.
std::int64_t seen_by_first(std::int64_t tokens, std::int64_t entry) {
  const std::int64_t whole = tokens / entry;
  return entry * (whole * (whole - 1) / 2) + whole * (tokens - whole * entry + 1);
}

/// The same of min(most, floor(t / entry)).
std::int64_t met_by_first(std::int64_t tokens, std::int64_t entry, std::int64_t most) {
  const std::int64_t rising = std::min(tokens, entry * most);
  return seen_by_first(rising, entry) + most * (tokens - rising);
}

}  // namespace

MetPairs met_pairs(const MetKeys& keys, const TokenSet& queries) {
  MetPairs pairs;
  for (const TokenRange& range : queries.ranges()) {
    ensure(range.stride == 1, "queries that stand next to each other");
    const std::int64_t end = range.begin + range.count;
    if (keys.window > 0) {
      pairs.window += met_by_first(end, 1, keys.window) - met_by_first(range.begin, 1, keys.window);
    }
    if (keys.entry > 0) {
      const std::int64_t seen =
          seen_by_first(end, keys.entry) - seen_by_first(range.begin, keys.entry);
      pairs.entries += keys.picked == 0 ? seen
                                        : met_by_first(end, keys.entry, keys.picked) -
                                              met_by_first(range.begin, keys.entry, keys.picked);
      pairs.seen += keys.picked == 0 ? 0 : seen;
    }
  }
  return pairs;
}

}  // namespace spp
