#include "runtime/device/cuda/seen_rows.hpp"

namespace spp::runtime::cuda {

std::vector<SeenKeyRows> seen_rows(const Visibility& visible) {
  std::vector<SeenKeyRows> table;
  table.reserve(static_cast<std::size_t>(visible.q_tokens.count()));
  for (const TokenRange& queries : visible.q_tokens.ranges()) {
    for (std::int64_t i = 0; i < queries.count; ++i) {
      SeenKeyRows& rows = table.emplace_back();
      std::int64_t first = 0;  // row of the range
      int at = 0;
      for (const TokenRange& keys : visible.k_tokens.ranges()) {
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
