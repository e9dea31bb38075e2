#include "runtime/kernels/cudnn/sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

namespace spp::runtime {
namespace {

/// Rows that continue one pattern: begin stays, end moves by `slope` from row to row.
struct Run {
  Interval q;
  Interval first;  // key rows that the first of them sees
  std::int64_t slope = 0;
  [[nodiscard]] std::int64_t last_end() const { return first.end + slope * (q.count() - 1); }
};

/// The key rows that a query sees, if they lie together. `ranges`: of the keys, cut at chunks.
std::optional<Interval> seen_rows(std::int64_t query, std::span<const TokenRange> ranges,
                                  const Visibility& visible) {
  Interval seen;
  std::int64_t row = 0;
  for (const TokenRange& keys : ranges) {
    const Interval part = visible_keys(query, keys, visible.mask, visible.seq);
    if (!part.empty()) {
      const Interval here{.begin = row + part.begin, .end = row + part.end};
      if (seen.empty()) {
        seen = here;
      } else if (seen.end == here.begin) {
        seen.end = here.end;
      } else {
        return std::nullopt;
      }
    }
    row += keys.count;
  }
  return seen;
}

/// Maximal runs, each row in one. A row that could end one run and begin the next ends the first.
class Runs {
 public:
  void add(std::int64_t row, const Interval& seen) {
    if (!list_.empty()) {
      Run& last = list_.back();
      const std::int64_t slope = seen.end - last.last_end();
      const bool both_see = seen.empty() == last.first.empty();
      if (both_see && seen.begin == last.first.begin && (slope == 0 || slope == 1) &&
          (last.q.count() == 1 || slope == last.slope)) {
        last.slope = slope;
        ++last.q.end;
        return;
      }
    }
    Run next{.q = {.begin = row, .end = row + 1}, .first = seen};
    if (!list_.empty() && rises_from_one_key(list_.back(), seen)) {
      --list_.back().q.end;
      --next.q.begin;
      next.first = list_.back().first;
      next.slope = 1;
    }
    list_.push_back(next);
  }
  [[nodiscard]] const std::vector<Run>& list() const { return list_; }

 private:
  /// A rise that starts at one key may become a top-left call, which is worth more than a
  /// bottom-right one: rows below it that see all of its keys join it. So it gets the row that both
  /// could have.
  static bool rises_from_one_key(const Run& last, const Interval& seen) {
    return last.slope == 0 && last.q.count() > 1 && last.first.count() == 1 && !seen.empty() &&
           seen.begin == last.first.begin && seen.end == last.first.end + 1;
  }

  std::vector<Run> list_;
};

Section section_of(const Run& run) {
  if (run.first.empty()) {
    return {.q = run.q, .k = {}, .mask = SdpaMask::none, .seen = false};
  }
  const Interval k{.begin = run.first.begin, .end = run.last_end()};
  if (run.slope == 0) {
    return {.q = run.q, .k = k, .mask = SdpaMask::none};
  }
  const bool square = run.q.count() == k.count();
  return {.q = run.q, .k = k, .mask = square ? SdpaMask::top_left : SdpaMask::bottom_right};
}

/// Whether one top-left call does both: the first rises from one key on, the second stays where it
/// ended.
bool continues(const Section& rising, const Section& staying) {
  return rising.seen && staying.seen && rising.mask == SdpaMask::top_left &&
         staying.mask == SdpaMask::none && rising.k == staying.k;
}

}  // namespace

Sections sections(const Visibility& visible, std::int64_t most_calls) {
  if (visible.mask.kind == MaskKind::window) {
    return {.why_not = "cuDNN calls are unmasked or causal: window masks are not supported"};
  }
  const std::vector<TokenRange> ranges = cut_at_chunks(visible.k_tokens, visible.mask);
  Runs runs;
  std::int64_t row = 0;
  for (const TokenRange& queries : visible.q_tokens.ranges()) {
    for (std::int64_t i = 0; i < queries.count; ++i, ++row) {
      const std::optional<Interval> seen = seen_rows(queries.at(i), ranges, visible);
      if (!seen.has_value()) {
        return {.why_not = fmt::format("the keys that token {} sees do not lie together in {}",
                                       queries.at(i), to_string(visible.k_tokens))};
      }
      runs.add(row, *seen);
    }
  }

  Sections result;
  std::int64_t calls = 0;
  for (const Run& run : runs.list()) {
    const Section next = section_of(run);
    if (!result.list.empty() && continues(result.list.back(), next)) {
      result.list.back().q.end = next.q.end;
      continue;
    }
    result.list.push_back(next);
    calls += next.seen ? 1 : 0;
  }
  if (calls > most_calls) {
    return {.why_not = fmt::format("queries {} against keys {} take {} cuDNN calls, more than {}",
                                   to_string(visible.q_tokens), to_string(visible.k_tokens), calls,
                                   most_calls)};
  }
  return result;
}

}  // namespace spp::runtime
