#include "machine/attention_tiles.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

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

/// Tokens [begin, end) of a document.
struct Document {
  std::int64_t begin, end;
};
Document document_at(const Mask& mask, std::size_t index) {
  const bool padding = index >= mask.document_ends.size();
  return {.begin = index == 0 ? 0 : mask.document_ends[index - 1],
          .end = padding ? std::numeric_limits<std::int64_t>::max() : mask.document_ends[index]};
}

/// A range's tokens in a document; none: count 0.
TokenRange part_of(const TokenRange& r, const Document& d) {
  const auto place = [&](std::int64_t token) {  // of the first token that is not before it
    return token <= r.begin   ? 0
           : token > r.last() ? r.count
                              : (token - r.begin + r.stride - 1) / r.stride;
  };
  const std::int64_t from = place(d.begin);
  return {.begin = r.at(from),
          .count = std::max<std::int64_t>(0, place(d.end) - from),
          .stride = r.stride};
}

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

/// Variable-length kernels begin each document in a tile of its own (the grid of FlashAttention's
/// varlen kernels is tiles x heads x documents): rows and columns are rounded up document by
/// document. A document without columns here costs no item: its tiles end at once.
void add_packed_rows(const Tiling& tiling, const TokenRange& rows,
                     std::span<const TokenRange> columns, bool forward, Work& work) {
  const Mask& mask = *tiling.mask;
  std::int64_t first = rows.last();
  std::int64_t last = rows.begin;
  for (const TokenRange& c : columns) {
    first = std::min(first, std::max(rows.begin, c.begin));
    last = std::max(last, std::min(rows.last(), c.last()));
  }
  if (last < first) {
    return;
  }
  for (std::size_t d = mask.document_of(first); d <= mask.document_of(last); ++d) {
    const Document document = document_at(mask, d);
    const TokenRange own = part_of(rows, document);
    std::array<TokenRange, 2> seen{};
    std::size_t count = 0;
    for (const TokenRange& c : columns) {
      const TokenRange part = part_of(c, document);
      if (part.count > 0) {
        seen.at(count++) = part;
      }
    }
    if (own.count > 0 && count > 0) {
      add_rows(tiling, own, {seen.data(), count}, forward, work);
    }
  }
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
  Work work;
  for (const TokenRange& r : rows.ranges()) {
    if (shape.mask.document_ends.empty()) {
      add_rows(tiling, r, columns.ranges(), forward, work);
    } else {
      add_packed_rows(tiling, r, columns.ranges(), forward, work);
    }
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
  const double best = std::max(work.total / slots, longest);
  const double worst = (work.total + (slots - 1) * longest) / slots;
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

Work cut(const Work& work, const Split& split, double queries, double q_tile, bool masked) {
  // The mask empties some pieces: they cost nothing.
  const double seen = std::min(1.0, work.total / (work.items * work.longest));
  const double piece =
      ceil_of(ceil_of(work.longest / split.kv_tile) / split.pieces) * split.kv_tile;
  const double items = ceil_of(queries / Split::q_tile) * split.pieces * seen;
  return {.items = items,
          .total = masked ? work.total * q_tile / Split::q_tile : items * piece,
          .longest = piece};
}

}  // namespace spp::tiles
