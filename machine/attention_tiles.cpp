#include "machine/attention_tiles.hpp"

#include "schedule/documents.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace spp::tiles {
namespace {

/// floor and ceil of numbers well inside 63 bits, without a library call.
double floor_of(double x) {
  const auto i = static_cast<double>(static_cast<std::int64_t>(x));
  return i > x ? i - 1 : i;
}
double ceil_of(double x) { return -floor_of(-x); }

/// A range of tokens as doubles (exact up to 2^53).
struct Line {
  double begin, count, stride;
  [[nodiscard]] double last() const { return begin + (count - 1) * stride; }
  /// How many tokens are at most x; below 0 and above `count` if x is far outside.
  [[nodiscard]] double up_to(double x) const { return floor_of((x - begin) / stride) + 1; }
};

Line line(const TokenRange& r) {
  return {.begin = static_cast<double>(r.begin),
          .count = static_cast<double>(r.count),
          .stride = static_cast<double>(r.stride)};
}
/// Turns the order of tokens round, so that a key's queries are those at most at its place.
Line mirrored(const TokenRange& r) {
  return {.begin = -static_cast<double>(r.last()),
          .count = static_cast<double>(r.count),
          .stride = static_cast<double>(r.stride)};
}

/// x_t = clamp(first + t * step, 0, most), t = 0 … n-1: what the tiles of a range of rows see.
struct Reach {
  double first, step, n, most;

  /// Sum of x_t / tile, rounded up (or down): exact when `tile` divides `step`; else a middle term
  /// is rounded by half a tile, as it is on average.
  [[nodiscard]] double tiles(double tile, bool up) const {
    const auto whole = [tile, up](double x) { return up ? ceil_of(x / tile) : floor_of(x / tile); };
    if (first >= most) {
      return n * whole(most);
    }
    if (first + (n - 1) * step <= 0) {
      return 0;
    }
    const double from = first > 0 ? 0 : floor_of(-first / step) + 1;
    const double to = std::clamp(ceil_of((most - first) / step), from, n);
    double sum = (n - to) * whole(most);
    if (to > from) {
      const double low = first + from * step;
      const double high = first + (to - 1) * step;
      const double steps = step / tile;
      sum += steps == floor_of(steps)
                 ? (to - from) / 2 * (whole(low) + whole(high))
                 : (to - from) * std::max(0.0, (low + high) / 2 / tile + (up ? 0.5 : -0.5));
    }
    return sum;
  }
};

/// Rows (queries in the forward, mirrored keys in the backward) in tiles of `tile` meet columns in
/// tiles of `inner`. A row at place x sees the columns in (x - window, x].
struct Tiling {
  double tile, inner;
  const Mask* mask;

  /// Adds the work of all tiles of `rows` to `total`, that of the longest to `longest`.
  void meet(const Line& rows, const Line& columns, double& total, double& longest) const {
    const double n = ceil_of(rows.count / tile);
    if (mask->kind == MaskKind::full) {
      const double each = ceil_of(columns.count / inner) * inner;
      total += n * each;
      longest += each;
      return;
    }
    const double span = (tile - 1) * rows.stride;  // from a tile's first row to its last
    Reach reach{.first = columns.up_to(rows.begin + span),
                .step = tile * rows.stride / columns.stride,
                .n = n,
                .most = columns.count};
    double sum = reach.tiles(inner, true);
    const double end = std::clamp(columns.up_to(rows.last()), 0.0, columns.count);
    double most = ceil_of(end / inner);
    if (mask->kind == MaskKind::window) {
      const auto window = static_cast<double>(mask->window);
      reach.first = columns.up_to(rows.begin - window);
      sum = std::max(0.0, sum - reach.tiles(inner, false));
      // The rows of a tile together see a band of window + span, cut into tiles anywhere.
      most = std::min(most, ceil_of((window + span) / columns.stride / inner) + 1);
    }
    total += sum * inner;
    longest += most * inner;
  }
};

/// Adds the work of one range of rows, all of one document, with all columns that it has there.
void add_rows(const Tiling& tiling, const TokenRange& rows, std::span<const TokenRange> columns,
              bool forward, Work& work) {
  const Line row = forward ? line(rows) : mirrored(rows);
  work.items += ceil_of(row.count / tiling.tile);
  double longest = 0;
  for (const TokenRange& c : columns) {
    tiling.meet(row, forward ? line(c) : mirrored(c), work.total, longest);
  }
  work.longest = std::max(work.longest, longest);
}

using Parts = std::vector<TokenRange>;

/// Rows or columns of a block, document by document.
class Side {
 public:
  Side(const TokenSet& tokens, const Mask& mask) {
    for (const TokenRange& range : tokens.ranges()) {
      const RangeInDocuments& r = ranges_.emplace_back(range, mask);
      first_ = std::min(first_, r.first());
      last_ = std::max(last_, r.last());
    }
  }
  /// No other document has any.
  [[nodiscard]] std::size_t first() const { return first_; }
  [[nodiscard]] std::size_t last() const { return last_; }
  [[nodiscard]] std::span<const RangeInDocuments> ranges() const { return ranges_; }
  /// Replaces `parts` by the ranges that a document has here.
  void of(std::size_t document, Parts& parts) const {
    parts.clear();
    for (const RangeInDocuments& range : ranges_) {
      if (document < range.first() || document > range.last()) {
        continue;
      }
      if (const TokenRange part = range.of(document); part.count > 0) {
        parts.push_back(part);
      }
    }
  }

 private:
  std::vector<RangeInDocuments> ranges_;
  std::size_t first_ = SIZE_MAX, last_ = 0;
};

/// Parts one after the other, as a kernel's rows or columns.
class Joined {
 public:
  /// Of another document; the memory stays.
  void assign(const Parts& parts, bool forward) {
    lines_.clear();
    count_ = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      // Mirrored, the last comes first.
      lines_.push_back(forward ? line(parts[i]) : mirrored(parts[parts.size() - 1 - i]));
      count_ += lines_.back().count;
    }
  }
  [[nodiscard]] double count() const { return count_; }
  [[nodiscard]] double at(double i) const {
    auto l = lines_.begin();
    for (; i >= l->count; ++l) {
      i -= l->count;
    }
    return l->begin + i * l->stride;
  }
  [[nodiscard]] double up_to(double x) const {
    double sum = 0;
    for (const Line& l : lines_) {
      sum += std::clamp(l.up_to(x), 0.0, l.count);
    }
    return sum;
  }

 private:
  std::vector<Line> lines_;
  double count_ = 0;
};

/// A document whose pieces lie one after the other, tile by tile.
void add_pieces(const Tiling& tiling, const Joined& rows, const Joined& columns, Work& work) {
  const double tiles = ceil_of(rows.count() / tiling.tile);
  work.items += tiles;
  if (tiling.mask->kind == MaskKind::full) {
    const double each = ceil_of(columns.count() / tiling.inner) * tiling.inner;
    work.total += tiles * each;
    work.longest = std::max(work.longest, each);
    return;
  }
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(tiles); ++t) {
    const double first = static_cast<double>(t) * tiling.tile;
    const double last = std::min(first + tiling.tile, rows.count()) - 1;
    double inner = ceil_of(columns.up_to(rows.at(last)) / tiling.inner);
    if (tiling.mask->kind == MaskKind::window) {
      const double hidden = rows.at(first) - static_cast<double>(tiling.mask->window);
      inner -= floor_of(columns.up_to(hidden) / tiling.inner);
    }
    work.total += inner * tiling.inner;
    work.longest = std::max(work.longest, inner * tiling.inner);
  }
}

/// Variable-length kernels begin each document in a tile of its own (the grid of FlashAttention's
/// varlen kernels is tiles x heads x documents): rows and columns are rounded up document by
/// document, the pieces of one that is dealt out together (TransformerEngine stores them so). A
/// document without columns here costs no item: its tiles end at once.
Work packed_work(const Tiling& tiling, const TokenSet& rows, const TokenSet& columns,
                 bool forward) {
  Work work;
  const Side row_side(rows, *tiling.mask);
  const Side column_side(columns, *tiling.mask);
  const std::size_t first = std::max(row_side.first(), column_side.first());
  const std::size_t last = std::min(row_side.last(), column_side.last());
  Parts own;
  Parts seen;
  Joined joined_rows;
  Joined joined_columns;
  for (std::size_t d = first; tiling.mask->pieces > 1 && d <= last; ++d) {
    row_side.of(d, own);
    column_side.of(d, seen);
    if (!own.empty() && !seen.empty()) {
      joined_rows.assign(own, forward);
      joined_columns.assign(seen, forward);
      add_pieces(tiling, joined_rows, joined_columns, work);
    }
  }
  if (tiling.mask->pieces > 1) {
    return work;
  }
  // Of many ranges each has few documents.
  for (const RangeInDocuments& row : row_side.ranges()) {
    for (std::size_t d = std::max(first, row.first()); d <= std::min(last, row.last()); ++d) {
      column_side.of(d, seen);
      if (const TokenRange part = row.of(d); part.count > 0 && !seen.empty()) {
        add_rows(tiling, part, seen, forward, work);
      }
    }
  }
  return work;
}

}  // namespace

Work work_of(const AttentionShape& shape, const AttentionKernelSpec& kernel) {
  const bool forward = shape.phase == Phase::forward;
  const Tiling tiling{
      .tile = static_cast<double>((forward ? kernel.q_tile : kernel.backward_tile).value),
      .inner = static_cast<double>(kernel.kv_tile.value),
      .mask = &shape.mask};
  const TokenSet& rows = forward ? shape.q : shape.k;
  const TokenSet& columns = forward ? shape.k : shape.q;
  if (!shape.mask.document_ends.empty()) {
    return packed_work(tiling, rows, columns, forward);
  }
  Work work;
  for (const TokenRange& r : rows.ranges()) {
    add_rows(tiling, r, columns.ranges(), forward, work);
  }
  return work;
}

double equal_rows(double items, double slots, double item, double lone) {
  const double most = ceil_of(items / slots);
  const bool odd = most > 2 * floor_of(most / 2);
  return item * (odd ? most - 1 + 1 / lone : most);
}

double place_between(ItemOrder order, double items, double heads, double slots) {
  switch (order) {
    case ItemOrder::shortest_first:  // the longest of the last head start when all else is done
      return std::min(0.65 - 0.12 * std::min(1.0, items / slots), 0.25 * items * heads / slots);
    case ItemOrder::longest_first:  // a head that fills the slots ends with its shortest items
      return std::max(0.05, 0.65 - 0.55 * items / slots);
    case ItemOrder::longest_first_of_all:
      return 0.05;
    case ItemOrder::unknown:
      break;
  }
  return 0.5;
}

double unequal_rows(const Work& work, double slots, double between, double lone) {
  const double longest = work.longest / lone;
  if (work.items <= slots) {
    return longest;
  }
  // Of evenly rising items none is shorter; those behind a long prefix are nearly alike.
  const double shortest = 2 * work.total / work.items - work.longest;
  const double worst = (work.total + (slots - 1) * longest) / slots;
  const double best = std::min(
      worst, std::max({work.total / slots, longest, ceil_of(work.items / slots) * shortest}));
  return best + between * (worst - best);
}

Split split_of(double q_tiles, double keys, int head_dim, double slots, double fill) {
  Split split{.kv_tile = head_dim <= 64 ? 256.0 : head_dim <= 128 ? 128.0 : 64.0};
  if (q_tiles >= fill * slots) {
    return split;
  }
  const double tiles = ceil_of(keys / split.kv_tile);
  const auto most = static_cast<int>(std::min({128.0, slots, tiles}));
  const auto filled = [&](double pieces) {
    if (pieces > 1 && ceil_of(tiles / pieces) == ceil_of(tiles / (pieces - 1))) {
      return 0.0;  // no piece gets shorter
    }
    const double waves = q_tiles * pieces / slots;
    return waves / ceil_of(waves);
  };
  double best = 0;
  for (int pieces = 1; pieces <= most; ++pieces) {
    best = std::max(best, filled(pieces));
  }
  while (split.pieces < most && filled(split.pieces) < 0.85 * best) {
    ++split.pieces;
  }
  return split;
}

Work cut(const Work& work, const Split& split, double queries, bool masked) {
  // The mask empties some pieces: they cost nothing.
  const double seen = std::min(1.0, work.total / (work.items * work.longest));
  const double piece =
      ceil_of(ceil_of(work.longest / split.kv_tile) / split.pieces) * split.kv_tile;
  const double items = ceil_of(queries / Split::q_tile) * split.pieces * seen;
  return {
      .items = items,
      .total = masked ? work.total / work.items * ceil_of(queries / Split::q_tile) : items * piece,
      .longest = piece};
}

}  // namespace spp::tiles
