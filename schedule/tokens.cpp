#include "schedule/tokens.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"

#include <algorithm>
#include <limits>

namespace spp {
namespace {

/// sum over i in [0, n) of floor((a*i + b) / m), for a, b >= 0, m > 0; O(log m) (Euclid's descent).
std::int64_t floor_sum(std::int64_t n, std::int64_t m, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  while (n > 0) {
    if (a >= m) {
      sum += n * (n - 1) / 2 * (a / m);
      a %= m;
    }
    if (b >= m) {
      sum += n * (b / m);
      b %= m;
    }
    const std::int64_t y_max = a * n + b;
    if (y_max < m) {
      break;
    }
    n = y_max / m;
    b = y_max % m;
    std::swap(m, a);
  }
  return sum;
}

/// Smallest i >= 0 with begin + i*stride >= bound.
std::int64_t first_at_least(const TokenRange& r, std::int64_t bound) {
  return bound <= r.begin ? 0 : (bound - r.begin + r.stride - 1) / r.stride;
}

/// Pairs with key <= query + shift.
std::int64_t pairs_up_to(const TokenRange& q, const TokenRange& k, std::int64_t shift) {
  // Query i sees floor((q_i + shift - k.begin) / k.stride) + 1 keys, clamped to [0, k.count]:
  // 0 below `some`, k.count from `all` on, the floor sum between.
  TokenRange shifted = q;
  shifted.begin += shift;
  const std::int64_t some = std::min(q.count, first_at_least(shifted, k.begin));
  const std::int64_t all = std::min(q.count, first_at_least(shifted, k.last()));
  const std::int64_t between = all - some;
  const std::int64_t offset = shifted.at(some) - k.begin;
  return (q.count - all) * k.count +
         (between > 0 ? floor_sum(between, k.stride, shifted.stride, offset) + between : 0);
}

/// Of one document.
std::int64_t pairs_by_kind(const TokenRange& queries, const TokenRange& keys, const Mask& mask) {
  if (queries.count == 0 || keys.count == 0) {
    return 0;
  }
  switch (mask.kind) {
    case MaskKind::full:
      return queries.count * keys.count;
    case MaskKind::causal:
      return pairs_up_to(queries, keys, 0);
    case MaskKind::window:
      return pairs_up_to(queries, keys, 0) - pairs_up_to(queries, keys, -mask.window);
  }
  throw InternalError("unknown mask");
}

/// Tokens of a document: [begin, end).
Interval document_interval(const Mask& mask, std::size_t document) {
  return {.begin = document == 0 ? 0 : mask.document_ends[document - 1],
          .end = document < mask.document_ends.size() ? mask.document_ends[document]
                                                      : std::numeric_limits<std::int64_t>::max()};
}

/// Positions of a range whose tokens lie in [begin, end).
Interval positions_in(const TokenRange& range, const Interval& tokens) {
  return {.begin = std::min(range.count, first_at_least(range, tokens.begin)),
          .end = tokens.end > range.last()
                     ? range.count
                     : std::min(range.count, first_at_least(range, tokens.end))};
}

TokenRange clipped(const TokenRange& range, const Interval& tokens) {
  const Interval kept = positions_in(range, tokens);
  return {.begin = range.at(kept.begin),
          .count = std::max<std::int64_t>(kept.count(), 0),
          .stride = range.stride};
}

}  // namespace

std::int64_t TokenSet::count() const {
  std::int64_t total = 0;
  for (const TokenRange& r : ranges()) {
    total += r.count;
  }
  return total;
}

std::int64_t TokenSet::position_of(std::int64_t token) const {
  std::int64_t before = 0;
  for (const TokenRange& range : ranges()) {
    if (range.contains(token)) {
      return before + (token - range.begin) / range.stride;
    }
    before += range.count;
  }
  return -1;
}

void TokenSet::append(TokenRange range) {
  if (range.count <= 0) {
    return;
  }
  if (range.count == 1) {
    range.stride = 1;
  }
  if (size_ > 0) {
    TokenRange& last = ranges_.at(size_ - 1);
    const bool continues =
        last.stride == range.stride && range.begin == last.begin + last.count * last.stride;
    if (continues) {
      last.count += range.count;
      return;
    }
  }
  ensure(size_ < ranges_.size(), "a token set of more than two ranges");
  ranges_.at(size_++) = range;
}

TokenSet TokenSet::slice(std::int64_t from, std::int64_t count) const {
  ensure(from >= 0 && count >= 0 && from + count <= this->count(), "a slice outside its token set");
  TokenSet result;
  for (const TokenRange& r : ranges()) {
    const std::int64_t skip = std::min(from, r.count);
    const std::int64_t take = std::min(count, r.count - skip);
    result.append({.begin = r.at(skip), .count = take, .stride = r.stride});
    from -= skip;
    count -= take;
  }
  return result;
}

TokenSet TokenSet::part(std::int64_t index, std::int64_t parts) const {
  ensure(parts > 0 && count() % parts == 0, "a token set does not divide into equal parts");
  const std::int64_t size = count() / parts;
  return slice(index * size, size);
}

std::string to_string(const TokenSet& tokens) {
  std::string text;
  for (const TokenRange& r : tokens.ranges()) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : "+", r.begin, r.count);
    if (r.stride != 1) {
      text += fmt::format("/{}", r.stride);
    }
  }
  return text.empty() ? "-" : text;
}

TokenSet parse_token_set(std::string_view text, std::string_view where) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  if (text == "-") {
    return {};
  }
  std::array<TokenRange, 2> ranges{};
  const auto pieces = split(text, '+');
  if (pieces.size() > ranges.size()) {
    throw InputError(where, fmt::format("'{}' has more than two token ranges", text));
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto colon = split(pieces[i], ':');
    if (colon.size() != 2) {
      throw InputError(where,
                       fmt::format("'{}' is not a token range begin:count[/stride]", pieces[i]));
    }
    const auto slash = split(colon[1], '/');
    ranges.at(i) = {.begin = parse_int(colon[0], where, 0, most),
                    .count = parse_int(slash[0], where, 1, most),
                    .stride = slash.size() == 2 ? parse_int(slash[1], where, 1, most) : 1};
    if (slash.size() > 2) {
      throw InputError(where,
                       fmt::format("'{}' is not a token range begin:count[/stride]", pieces[i]));
    }
  }
  return {ranges[0], ranges[1]};
}

Interval visible_keys(std::int64_t query, const TokenRange& keys, const Mask& mask,
                      std::int64_t seq) {
  const std::int64_t above = mask.kind == MaskKind::window ? query - mask.window : -1;
  const std::int64_t below = mask.kind == MaskKind::full ? seq : std::min(seq, query + 1);
  Interval seen{.begin = first_at_least(keys, above + 1),
                .end = std::min(keys.count, first_at_least(keys, below))};
  if (!mask.document_ends.empty()) {
    const Interval own = positions_in(keys, document_interval(mask, mask.document_of(query)));
    seen = {.begin = std::max(seen.begin, own.begin), .end = std::min(seen.end, own.end)};
  }
  return seen.empty() ? Interval{} : seen;
}

std::int64_t allowed_pairs(const TokenRange& queries, const TokenRange& keys, const Mask& mask) {
  if (mask.document_ends.empty() || queries.count == 0 || keys.count == 0) {
    return pairs_by_kind(queries, keys, mask);
  }
  // Documents before the first token or behind the last one have no pairs.
  const std::size_t first = mask.document_of(std::max(queries.begin, keys.begin));
  const std::size_t last = mask.document_of(std::min(queries.last(), keys.last()));
  std::int64_t pairs = 0;
  for (std::size_t d = first; d <= last; ++d) {
    const Interval document = document_interval(mask, d);
    pairs += pairs_by_kind(clipped(queries, document), clipped(keys, document), mask);
  }
  return pairs;
}

std::int64_t allowed_pairs(const TokenSet& queries, const TokenSet& keys, const Mask& mask) {
  std::int64_t total = 0;
  for (const TokenRange& q : queries.ranges()) {
    for (const TokenRange& k : keys.ranges()) {
      total += allowed_pairs(q, k, mask);
    }
  }
  return total;
}

}  // namespace spp
