#include "schedule/routing.hpp"

#include <algorithm>
#include <numeric>

namespace spp {

HeadRange Routing::slots_of(int group) const {
  const int first = group * of_group();
  return {.begin = first / classes(), .end = (first + of_group() - 1) / classes() + 1};
}

TokenSet Routing::routed(const TokenSet& tokens, int group) const {
  return of_group() >= classes() ? tokens
                                 : of_classes(tokens, group * of_group() % classes(),
                                              group * of_group() % classes() + of_group());
}

TokenSet Routing::of_classes(const TokenSet& tokens, int first, int end) const {
  TokenSet result;
  for (const TokenRange& range : tokens.ranges()) {
    for (std::int64_t i = 0; i < range.count;) {
      // The rest of the period that the token stands in, as far as the range goes.
      const std::int64_t start = range.at(i) / period * period;
      const auto place = [&](std::int64_t token) {  // the first of the range at or behind it
        const std::int64_t steps = (token - range.begin + range.stride - 1) / range.stride;
        return std::clamp(steps, i, range.count);
      };
      const std::int64_t from = place(start + first * period / classes());
      const std::int64_t to = place(start + end * period / classes());
      result.append({.begin = range.at(from), .count = to - from, .stride = range.stride});
      i = place(start + period);
    }
  }
  return result;
}

std::int64_t period_of(std::span<const TokenSet> ranks, int classes) {
  std::int64_t period = 0;
  std::int64_t stride = 1;
  for (const TokenSet& tokens : ranks) {
    for (const TokenRange& range : tokens.ranges()) {
      period = std::gcd(period, range.count * range.stride);
      period = std::gcd(period, range.begin - range.begin % range.stride);
      stride = std::lcm(stride, range.stride);
    }
  }
  return period > 0 && period % (stride * classes) == 0 ? period : 0;
}

}  // namespace spp
