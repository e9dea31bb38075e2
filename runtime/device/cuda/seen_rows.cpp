#include "runtime/device/cuda/seen_rows.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <iterator>

namespace spp::runtime::cuda {

std::vector<SeenKeyRows> seen_rows(const Visibility& visible) {
  const std::vector<TokenRange> ranges = cut_at_chunks(visible.k_tokens, visible.mask);
  if (std::ssize(ranges) > std::ssize(SeenKeyRows{}.begin)) {
    throw InputError(
        "attention",
        fmt::format("keys {} are of {} chunks of the documents, more than the {} that "
                    "this kernel knows",
                    to_string(visible.k_tokens), ranges.size(), std::ssize(SeenKeyRows{}.begin)));
  }
  std::vector<SeenKeyRows> table;
  table.reserve(static_cast<std::size_t>(visible.q_tokens.count()));
  for (const TokenRange& queries : visible.q_tokens.ranges()) {
    for (std::int64_t i = 0; i < queries.count; ++i) {
      SeenKeyRows& rows = table.emplace_back();
      std::int64_t first = 0;  // row of the range
      int at = 0;
      for (const TokenRange& keys : ranges) {
        const Interval seen = visible_keys(queries.at(i), keys, visible.mask, visible.seq);
        if (!seen.empty()) {
          rows.begin[at] = static_cast<std::int32_t>(first + seen.begin);
          rows.end[at] = static_cast<std::int32_t>(first + seen.end);
        }
        first += keys.count;
        ++at;
      }
    }
  }
  return table;
}

}  // namespace spp::runtime::cuda
