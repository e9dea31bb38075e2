#include "schedule/tokens.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "schedule/documents.hpp"

#include <algorithm>
#include <numeric>

namespace spp {

TokenRange common(const TokenRange& a, const TokenRange& b) {
  const std::int64_t stride = std::lcm(a.stride, b.stride);
  const std::int64_t last = std::min(a.last(), b.last());
  std::int64_t first = std::max(a.begin, b.begin);
  const std::int64_t limit = std::min(last, first + stride);
  while (first <= limit && !(a.contains(first) && b.contains(first))) {
    ++first;
  }
  if (first > limit) {
    return {};
  }
  return {.begin = first, .count = (last - first) / stride + 1, .stride = stride};
}

namespace {

/// sum over i in [0, n) of floor((a*i + b) / m), for a, b >= 0, m > 0; O(log m) (Euclid's descent).
std::int64_t floor_sum(std::int64_t n, std::int64_t m, std::int64_t a, std::int64_t b) {
  if (m == 1) {  // most often, and soon found
    return n * (n - 1) / 2 * a + n * b;
  }
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
  const std::int64_t distance = bound - r.begin;
  return distance <= 0 ? 0 : r.stride == 1 ? distance : (distance + r.stride - 1) / r.stride;
}

/// Appends the parts of `range` in each chunk of `mask`.
void append_parts(const TokenRange& range, const Mask& mask, std::vector<TokenRange>& parts) {
  if (mask.pieces == 1) {
    parts.push_back(range);
    return;
  }
  const std::int64_t chunk = mask.document_ends.back();
  for (std::int64_t from = 0; from < range.count;) {
    const std::int64_t number = chunk_of(mask, range.at(from));
    const std::int64_t next =
        number == mask.pieces ? range.count
                              : std::min(range.count, first_at_least(range, (number + 1) * chunk));
    parts.push_back({.begin = range.at(from), .count = next - from, .stride = range.stride});
    from = next;
  }
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

/// The chunks of a range that has whole ones of documents dealt out, and nothing else; else none.
TokenRange whole_chunks(const TokenRange& range, const Mask& mask) {
  const std::int64_t chunk = mask.document_ends.back();
  const bool whole = mask.pieces > 1 && range.stride == 1 && range.begin % chunk == 0 &&
                     range.count % chunk == 0 && range.last() < chunk * mask.pieces;
  return {.begin = range.begin / chunk, .count = whole ? range.count / chunk : 0};
}

/// Pairs of whole chunks: of a document with pieces of n tokens, n^2 of an earlier chunk's keys,
/// n (n + 1) / 2 of the same chunk's, none of a later one's.
std::int64_t pairs_of_chunks(const TokenRange& queries, const TokenRange& keys, const Mask& mask) {
  const std::int64_t all = queries.count * keys.count;
  const std::int64_t up_to_own = mask.kind == MaskKind::full ? all : pairs_up_to(queries, keys, 0);
  const std::int64_t earlier = mask.kind == MaskKind::full ? all : pairs_up_to(queries, keys, -1);
  std::int64_t squares = 0;
  std::int64_t begin = 0;
  for (const std::int64_t end : mask.document_ends) {
    squares += (end - begin) * (end - begin);
    begin = end;
  }
  return earlier * squares + (up_to_own - earlier) * (squares + begin) / 2;
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

}  // namespace

bool operator==(const TokenSet& a, const TokenSet& b) {
  return std::ranges::equal(a.ranges(), b.ranges());
}

std::strong_ordering operator<=>(const TokenSet& a, const TokenSet& b) {
  return std::lexicographical_compare_three_way(a.ranges().begin(), a.ranges().end(),
                                                b.ranges().begin(), b.ranges().end());
}

namespace {

std::vector<RangeInDocuments> in_documents(const TokenSet& tokens, const Mask& mask) {
  std::vector<RangeInDocuments> result;
  result.reserve(tokens.ranges().size());
  for (const TokenRange& range : tokens.ranges()) {
    result.emplace_back(range, mask);
  }
  return result;
}

std::int64_t pairs_of_documents(const RangeInDocuments& queries, const RangeInDocuments& keys,
                                const Mask& mask) {
  std::int64_t pairs = 0;
  const std::size_t last = std::min(queries.last(), keys.last());
  for (std::size_t d = std::max(queries.first(), keys.first()); d <= last; ++d) {
    if (queries.has_whole(d) && keys.has_whole(d)) {  // as nearly all of a long range
      const TokenRange all{.begin = 0, .count = mask.document_ends[d] - mask.document_ends[d - 1]};
      pairs += pairs_by_kind(all, all, mask);
    } else {
      pairs += pairs_by_kind(queries.of(d), keys.of(d), mask);
    }
  }
  return pairs;
}

/// Whether there is one: that shows soon.
bool meet_in_documents(const RangeInDocuments& queries, const RangeInDocuments& keys,
                       const Mask& mask) {
  const std::size_t last = std::min(queries.last(), keys.last());
  for (std::size_t d = std::max(queries.first(), keys.first()); d <= last; ++d) {
    if (pairs_by_kind(queries.of(d), keys.of(d), mask) > 0) {
      return true;
    }
  }
  return false;
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
    const TokenRange& before = ranges().back();
    const bool continues =
        before.stride == range.stride && range.begin == before.begin + before.count * before.stride;
    if (continues) {
      last().count += range.count;
      return;
    }
  }
  if (size_ < few_.size()) {
    few_.at(size_) = range;
  } else {
    // Sets share what they do not change; the one that grows has its own.
    if (!many_ || many_.use_count() > 1) {
      many_ = std::make_shared<std::vector<TokenRange>>(ranges().begin(), ranges().end());
    }
    many_->push_back(range);
  }
  ++size_;
}

TokenRange& TokenSet::last() {
  if (!many_) {
    return few_.at(size_ - 1);
  }
  if (many_.use_count() > 1) {
    many_ = std::make_shared<std::vector<TokenRange>>(*many_);
  }
  return many_->back();
}

TokenSet TokenSet::shifted(std::int64_t by) const {
  TokenSet moved = *this;
  if (many_) {
    moved.many_ = std::make_shared<std::vector<TokenRange>>(*many_);
  }
  for (TokenRange& range :
       moved.many_ ? std::span(*moved.many_) : std::span(moved.few_.data(), size_)) {
    range.begin += by;
  }
  return moved;
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
  TokenSet tokens;
  for (const std::string_view piece : split(text, '+')) {
    const auto colon = split(piece, ':');
    const auto slash = split(colon.back(), '/');
    if (colon.size() != 2 || slash.size() > 2) {
      throw InputError(where, fmt::format("'{}' is not a token range begin:count[/stride]", piece));
    }
    tokens.append({.begin = parse_int(colon[0], where, 0, most),
                   .count = parse_int(slash[0], where, 1, most),
                   .stride = slash.size() == 2 ? parse_int(slash[1], where, 1, most) : 1});
  }
  return tokens;
}

Interval positions_in(const TokenRange& range, const Interval& tokens) {
  return {.begin = std::min(range.count, first_at_least(range, tokens.begin)),
          .end = tokens.end > range.last()
                     ? range.count
                     : std::min(range.count, first_at_least(range, tokens.end))};
}

std::vector<TokenRange> cut_at_chunks(const TokenSet& tokens, const Mask& mask) {
  std::vector<TokenRange> parts;
  for (const TokenRange& range : tokens.ranges()) {
    append_parts(range, mask, parts);
  }
  return parts;
}

Interval visible_keys(std::int64_t query, const TokenRange& keys, const Mask& mask,
                      std::int64_t seq) {
  Interval own{.begin = 0, .end = std::min(keys.count, first_at_least(keys, seq))};
  Mask::Place place{.document = 0, .position = query};
  TokenRange positions = keys;  // of those keys, in their document
  if (!mask.document_ends.empty()) {
    const std::int64_t chunk = chunk_of(mask, keys.begin);
    ensure(chunk == chunk_of(mask, keys.last()), "keys of more than one chunk");
    place = mask.place_of(query);
    const Interval kept = positions_in(keys, document_in_chunk(mask, place.document, chunk));
    own = {.begin = kept.begin, .end = std::min(own.end, kept.end)};
    if (own.empty()) {
      return {};
    }
    positions.begin = mask.place_of(keys.at(own.begin)).position;
    positions.count = own.count();
  }
  const std::int64_t above = mask.kind == MaskKind::window ? place.position - mask.window : -1;
  const std::int64_t below =
      mask.kind == MaskKind::full ? positions.last() + 1 : place.position + 1;
  const Interval seen{.begin = own.begin + first_at_least(positions, above + 1),
                      .end = std::min(own.end, own.begin + first_at_least(positions, below))};
  return seen.empty() ? Interval{} : seen;
}

std::int64_t allowed_pairs(const TokenRange& queries, const TokenRange& keys, const Mask& mask) {
  if (mask.document_ends.empty() || queries.count == 0 || keys.count == 0) {
    return pairs_by_kind(queries, keys, mask);
  }
  std::int64_t pairs = 0;
  if (mask.pieces > 1 && mask.kind != MaskKind::window) {
    const TokenRange q = whole_chunks(queries, mask);
    const TokenRange k = whole_chunks(keys, mask);
    if (q.count > 0 && k.count > 0) {
      return pairs_of_chunks(q, k, mask);
    }
  }
  if (mask.pieces > 1 && (queries.stride > 1 || keys.stride > 1)) {
    const auto of_one_chunk = [&](const TokenRange& a, const TokenRange& b) {
      return chunk_of(mask, a.begin) == chunk_of(mask, a.last()) &&
             chunk_of(mask, b.begin) == chunk_of(mask, b.last());
    };
    if (!of_one_chunk(queries, keys)) {
      for (const TokenRange& q : cut_at_chunks(TokenSet(queries), mask)) {
        for (const TokenRange& k : cut_at_chunks(TokenSet(keys), mask)) {
          pairs += allowed_pairs(q, k, mask);
        }
      }
      return pairs;
    }
  }
  return pairs_of_documents(RangeInDocuments(queries, mask), RangeInDocuments(keys, mask), mask);
}

bool allows_any(const TokenRange& queries, const TokenRange& keys, const Mask& mask) {
  if (queries.count == 0 || keys.count == 0) {
    return false;
  }
  if (mask.document_ends.empty() && mask.kind != MaskKind::window) {
    return mask.kind == MaskKind::full || keys.begin <= queries.last();
  }
  return mask.document_ends.empty() || mask.pieces > 1
             ? allowed_pairs(queries, keys, mask) > 0
             : meet_in_documents(RangeInDocuments(queries, mask), RangeInDocuments(keys, mask),
                                 mask);
}

bool allows_any(const TokenSet& queries, const TokenSet& keys, const Mask& mask) {
  return std::ranges::any_of(queries.ranges(), [&](const TokenRange& q) {
    return std::ranges::any_of(keys.ranges(),
                               [&](const TokenRange& k) { return allows_any(q, k, mask); });
  });
}

std::int64_t allowed_pairs(const TokenSet& queries, const TokenSet& keys, const Mask& mask) {
  std::int64_t total = 0;
  if (!mask.document_ends.empty() && mask.pieces == 1) {
    // Of many ranges most have no document in common: where each lies is found once.
    const std::vector<RangeInDocuments> all_keys = in_documents(keys, mask);
    for (const RangeInDocuments& q : in_documents(queries, mask)) {
      for (const RangeInDocuments& k : all_keys) {
        total += pairs_of_documents(q, k, mask);
      }
    }
    return total;
  }
  for (const TokenRange& q : queries.ranges()) {
    for (const TokenRange& k : keys.ranges()) {
      total += allowed_pairs(q, k, mask);
    }
  }
  return total;
}

}  // namespace spp
