#include "machine/attention_table.hpp"

#include "base/hash.hpp"
#include "schedule/documents.hpp"
#include "schedule/measure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

namespace spp {
namespace {

/// First and last token of a set that is not empty.
std::pair<std::int64_t, std::int64_t> bounds(const TokenSet& set) {
  std::pair<std::int64_t, std::int64_t> b{set.ranges().front().begin, set.ranges().front().last()};
  for (const TokenRange& r : set.ranges()) {
    b = {std::min(b.first, r.begin), std::max(b.second, r.last())};
  }
  return b;
}

void add_tokens(AttentionKey& key, std::size_t& at, const TokenSet& tokens, std::int64_t shift) {
  if (tokens.ranges().size() > 2) {  // more than a key has room for
    Hash hash;
    for (const TokenRange& r : tokens.ranges()) {
      for (const std::int64_t number : {r.begin - shift, r.count, r.stride}) {
        hash.add(static_cast<std::uint64_t>(number));
      }
    }
    key.at(at++) = static_cast<std::int64_t>(hash.value() >> 2U);
    key.at(at++) = -static_cast<std::int64_t>(tokens.ranges().size());
    return;
  }
  for (const TokenRange& r : tokens.ranges()) {
    key.at(at++) = r.begin - shift;
    key.at(at++) = r.count;
    key.at(at++) = r.count > 1 ? r.stride : 1;
  }
}

std::int64_t number(auto value) { return static_cast<std::int64_t>(value); }

/// Both head dims in one number.
std::int64_t head_dims(const AttentionShape& shape) {
  const int other = shape.v_dim() == shape.head_dim ? 0 : shape.value_dim;
  return number(shape.head_dim) + (number(other) << 32);
}

/// Of a median of normal values, of which `spread` is the median deviation.
double standard_error_of(const MeasuredAttention& m) {
  constexpr double deviation = 1.4826;  // standard deviation / median deviation
  const double of_mean = deviation * m.spread / std::sqrt(static_cast<double>(m.samples));
  return std::sqrt(std::numbers::pi / 2) * of_mean;
}

}  // namespace

namespace {

/// Whether a document ends inside the block, so that its pairs are those of several. Every chunk of
/// documents that are dealt out has all of them.
bool is_packed(const AttentionShape& shape) {
  const Mask& mask = shape.mask;
  if (mask.document_ends.empty() || shape.q.empty() || shape.k.empty()) {
    return false;
  }
  const auto [q_first, q_last] = bounds(shape.q);
  const auto [k_first, k_last] = bounds(shape.k);
  return (mask.pieces > 1 && mask.document_ends.size() > 1) ||
         mask.place_of(std::min(q_first, k_first)).document !=
             mask.place_of(std::max(q_last, k_last)).document;
}

/// A block of documents that are dealt out with its chunks numbered anew, as few as it has: only
/// which of two comes first counts (under a window, how far they are apart, too).
std::array<TokenSet, 2> with_chunks_renamed(const AttentionShape& shape) {
  const std::int64_t size = shape.mask.document_ends.back();
  const std::array sides{cut_at_chunks(shape.q, shape.mask), cut_at_chunks(shape.k, shape.mask)};
  std::vector<std::int64_t> chunks;
  for (const auto& side : sides) {
    for (const TokenRange& part : side) {
      chunks.push_back(chunk_of(shape.mask, part.begin));
    }
  }
  std::ranges::sort(chunks);
  chunks.erase(std::ranges::unique(chunks).begin(), chunks.end());
  const bool by_distance = shape.mask.kind == MaskKind::window;
  const auto renamed = [&](const std::vector<TokenRange>& side) {
    TokenSet set;
    for (TokenRange part : side) {
      const std::int64_t chunk = chunk_of(shape.mask, part.begin);
      const std::int64_t number = by_distance
                                      ? chunk - chunks.front()
                                      : std::ranges::lower_bound(chunks, chunk) - chunks.begin();
      part.begin += (number - chunk) * size;
      set.append(part);
    }
    return set;
  };
  // More parts than a set can hold: the block stays as it is.
  return sides[0].size() > 2 || sides[1].size() > 2
             ? std::array{shape.q, shape.k}
             : std::array{renamed(sides[0]), renamed(sides[1])};
}

/// Of the documents that a block has, as places in it. Blocks with the same are the same.
std::int64_t hash_of_documents(const AttentionShape& shape, std::int64_t shift) {
  const Mask& mask = shape.mask;
  const std::int64_t last = std::max(bounds(shape.q).second, bounds(shape.k).second);
  Hash hash;
  if (mask.pieces > 1) {
    hash.add(mask.pieces);
    std::ranges::for_each(mask.document_ends, [&](std::int64_t end) { hash.add(end); });
  } else {
    for (const std::int64_t end : mask.document_ends) {
      if (end > shift && end <= last) {
        hash.add(end - shift);
      }
    }
  }
  return static_cast<std::int64_t>(hash.value() >> 2U) + 16;  // no MaskKind
}

}  // namespace

bool is_partly_hidden(const AttentionShape& shape) {
  if (shape.mask.kind == MaskKind::full || shape.q.empty() || shape.k.empty()) {
    return false;
  }
  const auto [q_first, q_last] = bounds(shape.q);
  const auto [k_first, k_last] = bounds(shape.k);
  if (shape.mask.pieces > 1) {  // an earlier chunk has earlier positions, of every document
    return shape.mask.kind == MaskKind::window ||
           chunk_of(shape.mask, k_last) >= chunk_of(shape.mask, q_first);
  }
  return k_last > q_first || is_cut_by_window(shape);
}

bool is_cut_by_window(const AttentionShape& shape) {
  if (shape.mask.kind != MaskKind::window || shape.q.empty() || shape.k.empty()) {
    return false;
  }
  return shape.mask.pieces > 1 ||
         bounds(shape.k).first <= bounds(shape.q).second - shape.mask.window;
}

bool is_partly_masked(const AttentionShape& shape) {
  return is_packed(shape) || is_partly_hidden(shape);
}

double flops_per_pair(const AttentionShape& shape) {
  return flops_per_pair(shape.phase, shape.head_dim, shape.v_dim());
}

FlopCount attention_flops_of(const AttentionShape& shape) {
  return FlopCount(static_cast<double>(allowed_pairs(shape.q, shape.k, shape.mask)) *
                   static_cast<double>(shape.q_heads) * static_cast<double>(shape.batch) *
                   flops_per_pair(shape));
}

AttentionShape shape_of(const MeasuredAttention& m) {
  return {.q = m.q,
          .k = m.k,
          .q_heads = m.q_heads,
          .kv_heads = m.kv_heads,
          .head_dim = m.head_dim,
          .batch = m.batch,
          .mask = m.mask,
          .dtype = m.dtype,
          .phase = m.phase,
          .value_dim = m.value_dim};
}

AttentionKey key_of(const AttentionShape& shape) {
  AttentionKey key{};
  const bool masked = is_partly_masked(shape);
  const bool cut = is_cut_by_window(shape);
  const MaskKind kind = !masked                                       ? MaskKind::full
                        : shape.mask.kind == MaskKind::window && !cut ? MaskKind::causal
                                                                      : shape.mask.kind;
  std::size_t at = 0;
  for (const std::int64_t part :
       {number(shape.phase), number(shape.dtype), shape.batch, number(shape.q_heads),
        number(shape.kv_heads), head_dims(shape), number(kind), cut ? shape.mask.window : 0}) {
    key.at(at++) = part;
  }
  if (!masked) {
    key.at(at++) = shape.q.count();
    key.at(at++) = shape.k.count();
    return key;
  }
  const std::int64_t shift = std::min(bounds(shape.q).first, bounds(shape.k).first);
  const bool packed = is_packed(shape);
  if (packed) {
    key.at(6) += hash_of_documents(shape, shift);
  }
  const bool dealt = packed && shape.mask.pieces > 1;
  const auto [q, k] = dealt ? with_chunks_renamed(shape) : std::array{shape.q, shape.k};
  add_tokens(key, at, q, dealt ? 0 : shift);
  at = 14;  // two ranges further, whether q has two or one
  add_tokens(key, at, k, dealt ? 0 : shift);
  return key;
}

AttentionTable::Family AttentionTable::family_of(const AttentionShape& shape) {
  return {number(shape.phase),    number(shape.dtype), number(shape.q_heads),
          number(shape.kv_heads), head_dims(shape),    is_partly_masked(shape) ? 1 : 0};
}

/// Points sorted by formula; those of one formula time become one; then adjacent violators pool:
/// all points of a pool keep their place and get its mean.
std::vector<AttentionTable::Point> AttentionTable::never_falling(std::vector<Point> points) {
  std::ranges::stable_sort(points, {}, &Point::log_formula);
  std::vector<Point> merged;
  for (const Point& p : points) {
    if (!merged.empty() && p.log_formula - merged.back().log_formula < 1e-9) {
      Point& m = merged.back();
      m.log_time = (m.log_time * m.weight + p.log_time * p.weight) / (m.weight + p.weight);
      m.weight += p.weight;
    } else {
      merged.push_back(p);
    }
  }
  struct Pool {
    double mean, weight;
    std::size_t points;
  };
  std::vector<Pool> pools;
  for (const Point& p : merged) {
    pools.push_back({.mean = p.log_time, .weight = p.weight, .points = 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean > pools.back().mean) {
      const Pool last = pools.back();
      pools.pop_back();
      Pool& into = pools.back();
      into.mean = (into.mean * into.weight + last.mean * last.weight) / (into.weight + last.weight);
      into.weight += last.weight;
      into.points += last.points;
    }
  }
  std::size_t at = 0;
  for (const Pool& pool : pools) {
    for (std::size_t i = 0; i < pool.points; ++i) {
      merged[at++].log_time = pool.mean;
    }
  }
  return merged;
}

AttentionTable::AttentionTable(std::span<const MeasuredAttention> measured,
                               std::string_view kernels, const Formula& formula) {
  const auto note_ratio = [this](Phase phase, double log_ratio) {
    double& least = least_ratio_.at(static_cast<std::size_t>(phase));
    least = std::min(least, std::exp(log_ratio));
  };
  for (const MeasuredAttention& m : measured) {
    if (m.kernels != kernels) {
      continue;
    }
    const AttentionShape shape = shape_of(m);
    const Point point{.log_formula = std::log(formula(shape).count()),
                      .log_time = std::log(m.median.count())};
    exact_.emplace(key_of(shape),
                   Exact{.median = m.median, .standard_error = standard_error_of(m)});
    curves_[family_of(shape)].push_back(point);
    note_ratio(m.phase, point.log_time - point.log_formula);
    Spreads& spreads = spreads_[{number(m.phase), number(m.dtype), number(m.head_dim)}];
    spreads.squares += m.spread * m.spread;
    ++spreads.count;
  }
  for (auto& [family, points] : curves_) {
    points = never_falling(std::move(points));
    for (const Point& p : points) {
      note_ratio(static_cast<Phase>(family[0]), p.log_time - p.log_formula);
    }
  }
}

Seconds AttentionTable::time(const AttentionShape& shape, Seconds formula) const {
  if (const auto it = exact_.find(key_of(shape)); it != exact_.end()) {
    return it->second.median;
  }
  const auto found = curves_.find(family_of(shape));
  if (found == curves_.end() || !(formula.count() > 0)) {
    return formula;
  }
  const std::vector<Point>& points = found->second;
  const double x = std::log(formula.count());
  const auto after = std::ranges::lower_bound(points, x, {}, &Point::log_formula);
  if (after != points.begin() && after != points.end()) {
    const Point& a = *(after - 1);
    const Point& b = *after;
    const double share = (x - a.log_formula) / (b.log_formula - a.log_formula);
    return Seconds(std::exp(a.log_time + share * (b.log_time - a.log_time)));
  }
  const Point& end = after == points.end() ? points.back() : points.front();
  const double log_ratio = end.log_time - end.log_formula;
  const double reach = std::max(std::log(16.0), std::abs(log_ratio));
  const double near = std::max(0.0, 1 - std::abs(x - end.log_formula) / reach);
  return formula * std::exp(log_ratio * near);
}

double AttentionTable::least_ratio(Phase phase) const {
  return least_ratio_.at(static_cast<std::size_t>(phase));
}

std::optional<double> AttentionTable::standard_error(const AttentionKey& block) const {
  const auto it = exact_.find(block);
  return it == exact_.end() ? std::nullopt : std::optional(it->second.standard_error);
}

std::optional<double> AttentionTable::spread(Phase phase, DType dtype, int head_dim) const {
  const auto it = spreads_.find({number(phase), number(dtype), number(head_dim)});
  if (it == spreads_.end()) {
    return std::nullopt;
  }
  return std::sqrt(it->second.squares / it->second.count);
}

}  // namespace spp
