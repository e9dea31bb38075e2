#include "runtime/device/cuda/seen_rows.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <iterator>

namespace spp::runtime::cuda {

std::vector<SeenKeyRows> seen_rows(const Visibility& visible) {
  const std::vector<TokenRange> ranges = cut_at_chunks(visible.k_tokens, visible.mask);
  constexpr std::size_t most = std::size(SeenKeyRows{}.begin);
  std::vector<SeenKeyRows> table;
  table.reserve(static_cast<std::size_t>(visible.q_tokens.count()));
  for (const TokenRange& queries : visible.q_tokens.ranges()) {
    for (std::int64_t i = 0; i < queries.count; ++i) {
      SeenKeyRows& rows = table.emplace_back();
      std::int64_t first = 0;  // row of the range
      std::size_t runs = 0;
      for (const TokenRange& keys : ranges) {
        const Interval seen = visible_keys(queries.at(i), keys, visible.mask, visible.seq);
        const auto begin = static_cast<std::int32_t>(first + seen.begin);
        const auto end = static_cast<std::int32_t>(first + seen.end);
        first += keys.count;
        if (seen.empty()) {
          continue;
        }
        if (runs > 0 && rows.end[runs - 1] == begin) {
          rows.end[runs - 1] = end;  // rows that follow each other are one run
          continue;
        }
        if (runs == most) {
          throw InputError(
              "attention",
              fmt::format("token {} sees keys {} in more than the {} runs of rows that "
                          "this kernel knows",
                          queries.at(i), to_string(visible.k_tokens), most));
        }
        rows.begin[runs] = begin;
        rows.end[runs] = end;
        ++runs;
      }
    }
  }
  return table;
}

}  // namespace spp::runtime::cuda
