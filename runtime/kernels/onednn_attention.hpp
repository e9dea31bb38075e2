// Attention in tiles over oneDNN's matrix products; the online softmax is FlashAttention's (Dao,
// arXiv:2307.08691, algorithms 1 and 2). For onednn.cpp only.
//
// Products are in T (fp32 or bf16) with fp32 results; softmax, accumulators and LSE are fp32. One
// KV head and one batch element at a time, with the query heads of its group as rows of the same
// tiles: row r of a tile is token r / G, head r % G, which is also how they lie in memory.
//
//   forward, for each query tile:           backward, for each query tile:
//     for each key tile that it sees:         for each key tile that it sees:
//       S = Q K^T                               S = Q K^T, dP = dO V^T
//       m' = max(m, row max of S)               P = e^(scale S - lse)
//       P = e^(scale S - m')                    dS = scale P (dP - delta)
//       l = l e^(m - m') + row sum of P         dV^T += dO^T P
//       O = O e^(m - m') + P V                  dK^T += Q^T dS
//     O / l, m + log l                          dQ += dS K
//
// m is the maximum of the first tile that a row sees, and is raised only when later scores exceed
// it by far, which the row sum of P shows: no pass over S is spent on maxima. (FlashAttention-4
// also rescales only when it must.)
//
// A tile that a mask's edge crosses is computed in slices of its keys, each by the rows that see
// any of them (tiles.hpp): of a causal block's diagonal tiles 5/8 instead of all.
//
// The keys' gradients are kept transposed, so that no product needs a transposed left side, which
// is slow. K and V are packed once for all query tiles, into the order in which oneDNN reads them
// fastest (up to 1.5 times for bf16, beside the strided original 3 times). That is the workspace:
// K and V of one head, those in slices once more; backward also K^T and fp32 dK and dV of one head.
#pragma once

#if defined(SPP_ONEDNN)

#include "runtime/kernels/head_rows.hpp"
#include "runtime/kernels/onednn_matmul.hpp"
#include "runtime/kernels/pacer.hpp"
#include "runtime/kernels/softmax.hpp"
#include "runtime/kernels/tiles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace spp::runtime {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// A row of P whose sum is larger has scores far above m: with none above, the sum is at most the
/// number of a tile's keys. Smaller excesses do no harm, floating point being relative.
constexpr float largest_sum = 0x1p16F;

/// A product's right sides for one key tile, or a slice of it; packed when first needed.
struct PackedTile {
  dnnl::memory k_transposed, v_forward, v_transposed, k;
  bool ready = false;
};

template <class T>
class TiledAttention {
 public:
  /// Rows of a query tile (tokens times heads of the group) and keys of a key tile.
  struct TileSize {
    std::int64_t rows = 0;
    std::int64_t keys = 0;
  };

  void forward(const AttentionForwardArgs& args, const Poll& poll) {
    Pacer pace(poll);
    prepare(args.q, args.k, args.v, args.visible, forward_size);
    sum_width_ = value_width_;
    for_each_kv_head(args.k, [&](const HeadGroup& kv, const HeadGroup& group) {
      for (std::int64_t from = 0; from < args.q.count; from += tokens_) {
        const Interval tokens{.begin = from, .end = std::min(from + tokens_, args.q.count)};
        forward_tile(args, kv, group, tokens, pace);
      }
    });
  }

  void backward(const AttentionBackwardArgs& args, const Poll& poll) {
    Pacer pace(poll);
    prepare(args.q, args.k, args.v, args.visible, backward_size);
    sum_width_ = width_;
    d_k_.resize(args.k.count * width_);
    d_v_.resize(args.k.count * value_width_);
    for_each_kv_head(args.k, [&](const HeadGroup& kv, const HeadGroup& group) {
      for (std::int64_t from = 0; from < args.q.count; from += tokens_) {
        const Interval tokens{.begin = from, .end = std::min(from + tokens_, args.q.count)};
        backward_tile(args, kv, group, tokens, pace);
      }
      write_key_gradients(args, kv);
    });
  }

 private:
  static constexpr bool is_float = std::is_same_v<T, float>;
  static constexpr TileSize forward_size{.rows = 256, .keys = 256};
  static constexpr TileSize backward_size{.rows = 128, .keys = 256};
  static constexpr TileSize slice{.rows = 64, .keys = 64};

  /// Sizes and workspaces of a call.
  void prepare(const Rows& q, const Rows& k, const Rows& v, const Visibility& visible,
               const TileSize& size) {
    ensure(visible.q_tokens.count() == q.count && visible.k_tokens.count() == k.count,
           "attention over other tokens than its rows hold");
    ensure(k.heads > 0 && q.heads % k.heads == 0, "query heads are no multiple of KV heads");
    group_ = q.heads / k.heads;
    width_ = q.width;
    value_width_ = v.width;
    tokens_ = std::max<std::int64_t>(1, size.rows / group_);
    grain_ = {.keys = slice.keys, .queries = std::max<std::int64_t>(1, slice.rows / group_)};
    slices_ = index((size.keys + slice.keys - 1) / slice.keys);
    scale_ = 1 / std::sqrt(static_cast<float>(width_));
    scale2_ = scale_ * std::numbers::log2e_v<float>;
    tiles_ = key_tiles(cut_at_chunks(visible.k_tokens, visible.mask), size.keys);
    seen_.emplace(visible);
    packs_.resize(tiles_.size() * (1 + slices_));
    const std::int64_t rows = tokens_ * group_;
    for (Buffer<T>* of_queries : {&q_, &q_transposed_}) {
      of_queries->resize(rows * width_);
    }
    for (Buffer<T>* of_outputs : {&d_out_, &d_out_transposed_}) {
      of_outputs->resize(rows * value_width_);
    }
    for (Buffer<float>* tile : {&s_, &dp_}) {
      tile->resize(rows * size.keys);
    }
    for (Buffer<T>* tile : {&p_, &ds_}) {
      tile->resize(rows * size.keys);
    }
    const std::int64_t widest = std::max(width_, value_width_);
    out_.resize(rows * widest);
    for (std::vector<float>* by_row : {&shift2_, &sum_, &delta_}) {
      by_row->resize(static_cast<std::size_t>(rows));
    }
    keys_of_head_.resize(size.keys * widest * 2);
  }

  template <class Body>
  void for_each_kv_head(const Rows& k, Body&& body) {
    for (std::int64_t b = 0; b < k.batch; ++b) {
      for (int h = 0; h < k.heads; ++h) {
        touched_.assign(tiles_.size(), false);
        for (PackedTile& pack : packs_) {
          pack.ready = false;
        }
        body(HeadGroup{.batch = b, .first = h},
             HeadGroup{.batch = b, .first = h * group_, .count = group_});
      }
    }
  }

  /// A key tile's rows of one head as a matrix of T: where they are, or converted.
  Strided matrix_of(const Rows& rows, const HeadGroup& head, const KeyTile& tile) {
    if (rows.dtype == stored_as<T>) {
      return {.data = rows.data + run_of(rows, tile.row, head) * size_of(rows.dtype),
              .rows = tile.count(),
              .columns = rows.width,
              .row_stride = rows.batch * rows.heads * rows.width};
    }
    gather(rows, head, {.begin = tile.row, .end = tile.row + tile.count()}, keys_of_head_.data());
    return {.data = reinterpret_cast<const std::byte*>(keys_of_head_.data()),
            .rows = tile.count(),
            .columns = rows.width,
            .row_stride = rows.width};
  }

  /// `piece` is one of the tile with this number.
  PackedTile& packed(const Rows& k, const Rows& v, const HeadGroup& head, std::size_t tile,
                     const Piece& piece, Phase phase) {
    PackedTile& pack = packs_[tile * (1 + slices_) + (piece.slice ? 1 + *piece.slice : 0)];
    if (!pack.ready) {
      const Strided keys = matrix_of(k, head, piece.keys);
      matmuls_.pack(keys.transposed(), pack.k_transposed);
      if (phase == Phase::backward) {
        matmuls_.pack(keys, pack.k);
      }
      const Strided values = matrix_of(v, head, piece.keys);
      if (phase == Phase::forward) {
        matmuls_.pack(values, pack.v_forward);
      } else {
        matmuls_.pack(values.transposed(), pack.v_transposed);
      }
      pack.ready = true;
    }
    return pack;
  }

  /// Rows of a query tile.
  struct RowSpan {
    std::int64_t from = 0, count = 0;
  };
  [[nodiscard]] RowSpan rows_of(const Piece& piece, const Interval& tokens) const {
    return {.from = (piece.queries.begin - tokens.begin) * group_,
            .count = piece.queries.count() * group_};
  }

  /// Whether the product of some of all `rows` has to add to out_: to what others left there, or to
  /// zeros if it is the first one and not about all rows.
  bool adds_to_out(bool& started, const RowSpan& some, std::int64_t rows) {
    if (!started && some.count < rows) {
      std::fill_n(out_.data(), rows * sum_width_, 0.0F);
      started = true;
    }
    return std::exchange(started, true);
  }
  /// The same for the gradients of a tile's keys.
  bool adds_to_keys(std::size_t tile, const Piece& piece) {
    if (!touched_[tile] && piece.slice) {
      clear_key_gradients(tile);
    }
    const bool touched = touched_[tile];
    touched_[tile] = true;
    return touched;
  }
  void clear_key_gradients(std::size_t tile) {
    const auto clear = [&](Buffer<float>& sums, std::int64_t width) {
      std::fill_n(sums.data() + tiles_[tile].row * width, tiles_[tile].count() * width, 0.0F);
    };
    clear(d_k_, width_);
    clear(d_v_, value_width_);
    touched_[tile] = true;
  }

  /// Zeros before and after the visible part of a row.
  template <class Number>
  static void clear_around(Number* row, const Interval& seen, std::int64_t count) {
    std::fill(row, row + seen.begin, Number{});
    std::fill(row + seen.end, row + count, Number{});
  }

  void forward_tile(const AttentionForwardArgs& args, const HeadGroup& kv, const HeadGroup& group,
                    Interval tokens, Pacer& pace) {
    const std::int64_t rows = tokens.count() * group_;
    gather(args.q, group, tokens, q_.data());
    std::fill_n(shift2_.begin(), rows, minus_infinity);
    std::fill_n(sum_.begin(), rows, 0.0F);
    bool started = false;
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
      for (const Piece& piece : seen_->pieces(tokens, tiles_[t], grain_)) {
        const PackedTile& pack = packed(args.k, args.v, kv, t, piece, Phase::forward);
        const RowSpan some = rows_of(piece, tokens);
        const std::int64_t keys = piece.keys.count();
        matmuls_.run({.m = some.count, .n = keys, .k = width_, .packed = true},
                     q_.data() + some.from * width_, pack.k_transposed, s_.data());
        const bool add = adds_to_out(started, some, rows);
        softmax(piece, some, add);
        matmuls_.run({.m = some.count, .n = value_width_, .k = keys, .packed = true, .add = add},
                     p_.data(), pack.v_forward, out_.data() + some.from * value_width_);
        pace();
      }
    }
    if (!started) {
      std::fill_n(out_.data(), rows * sum_width_, 0.0F);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const float sum = sum_[index(r)];
      scale_row(out_.data() + r * value_width_, value_width_,
                sum > 0 || sum != sum ? 1 / sum : 0.0F);
      sum_[index(r)] = (shift2_[index(r)] + std::log2(sum)) * std::numbers::ln2_v<float>;
    }
    scatter(out_.data(), args.out, group, tokens);
    scatter(sum_.data(), args.lse, group, tokens);
  }

  /// Scores -> probabilities up to the row's sum; brings shift2_, sum_ and out_ up to date.
  void softmax(const Piece& piece, const RowSpan& some, bool started) {
    const std::int64_t keys = piece.keys.count();
    std::int64_t r = 0;
    for (const Interval& row_seen : seen_->of(piece.queries, piece.keys).rows) {
      for (int h = 0; h < group_; ++h, ++r) {
        T* p = p_.data() + r * keys;
        clear_around(p, row_seen, keys);
        if (!row_seen.empty()) {
          softmax_row(some.from + r,
                      {s_.data() + r * keys + row_seen.begin, index(row_seen.count())},
                      p + row_seen.begin, started);
        }
      }
    }
  }

  /// `r`: of the query tile.
  void softmax_row(std::int64_t r, std::span<const float> scores, T* p, bool started) {
    const std::int64_t n = std::ssize(scores);
    float& shift2 = shift2_[index(r)];
    if (shift2 == minus_infinity) {
      shift2 = scale2_ * row_max(scores.data(), n);
    }
    float tile_sum = exp_row(scores.data(), p, n, scale2_, shift2);
    if (tile_sum > largest_sum) {
      const float before = shift2;
      shift2 = scale2_ * row_max(scores.data(), n);
      tile_sum = exp_row(scores.data(), p, n, scale2_, shift2);
      const float factor = std::exp2(before - shift2);
      sum_[index(r)] *= factor;
      if (started) {
        scale_row(out_.data() + r * value_width_, value_width_, factor);
      }
    }
    sum_[index(r)] += tile_sum;
  }

  void backward_tile(const AttentionBackwardArgs& args, const HeadGroup& kv, const HeadGroup& group,
                     Interval tokens, Pacer& pace) {
    const std::int64_t rows = tokens.count() * group_;
    gather(args.q, group, tokens, q_.data());
    gather(args.d_out, group, tokens, d_out_.data());
    gather(args.lse, group, tokens, shift2_.data());
    gather(args.delta, group, tokens, delta_.data());
    transpose(q_.data(), rows, width_, q_transposed_.data());
    transpose(d_out_.data(), rows, value_width_, d_out_transposed_.data());
    scale_row(shift2_.data(), rows, std::numbers::log2e_v<float>);
    bool started = false;
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
      for (const Piece& piece : seen_->pieces(tokens, tiles_[t], grain_)) {
        const PackedTile& pack = packed(args.k, args.v, kv, t, piece, Phase::backward);
        const RowSpan some = rows_of(piece, tokens);
        const std::int64_t keys = piece.keys.count();
        matmuls_.run({.m = some.count, .n = keys, .k = width_, .packed = true},
                     q_.data() + some.from * width_, pack.k_transposed, s_.data());
        matmuls_.run({.m = some.count, .n = keys, .k = value_width_, .packed = true},
                     d_out_.data() + some.from * value_width_, pack.v_transposed, dp_.data());
        gradients(piece, some);
        const T* p = p_.data();
        const T* ds = ds_.data();
        const bool add = adds_to_keys(t, piece);
        const auto add_to_keys = [&](const T* rows_transposed, const T* of_pairs, float* sums,
                                     std::int64_t width) {
          matmuls_.run({.m = width,
                        .n = keys,
                        .k = some.count,
                        .add = add,
                        .a_stride = rows,
                        .c_stride = tiles_[t].count()},
                       rows_transposed + some.from, of_pairs,
                       sums + tiles_[t].row * width + piece.keys.row - tiles_[t].row);
        };
        add_to_keys(d_out_transposed_.data(), p, d_v_.data(), value_width_);
        add_to_keys(q_transposed_.data(), ds, d_k_.data(), width_);
        matmuls_.run({.m = some.count,
                      .n = width_,
                      .k = keys,
                      .packed = true,
                      .add = adds_to_out(started, some, rows)},
                     ds, pack.k, out_.data() + some.from * width_);
        pace();
      }
    }
    if (!started) {
      std::fill_n(out_.data(), rows * sum_width_, 0.0F);
    }
    scatter(out_.data(), args.d_q, group, tokens);
  }

  /// Scores and dP -> P and dS.
  void gradients(const Piece& piece, const RowSpan& some) {
    const std::int64_t keys = piece.keys.count();
    const SeenTile seen = seen_->of(piece.queries, piece.keys);
    for (std::int64_t r = 0; r < some.count; ++r) {
      const float lse2 = shift2_[index(some.from + r)];
      const Interval row_seen = lse2 == minus_infinity ? Interval{} : seen.rows[index(r / group_)];
      T* p = p_.data() + r * keys;
      T* ds = ds_.data() + r * keys;
      clear_around(p, row_seen, keys);
      clear_around(ds, row_seen, keys);
      const std::int64_t at = r * keys + row_seen.begin;
      gradient_row(s_.data() + at, dp_.data() + at, p + row_seen.begin, ds + row_seen.begin,
                   row_seen.count(),
                   {.scale = scale_,
                    .scale2 = scale2_,
                    .lse2 = lse2,
                    .delta = delta_[index(some.from + r)]});
    }
  }

  /// Transposes the accumulators of one head back, tile by tile.
  void write_key_gradients(const AttentionBackwardArgs& args, const HeadGroup& kv) {
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
      const KeyTile& tile = tiles_[t];
      const Interval keys{.begin = tile.row, .end = tile.row + tile.count()};
      if (!touched_[t]) {
        clear_key_gradients(t);
      }
      for (const auto& [accumulator, to] : {std::pair(&d_k_, &args.d_k), {&d_v_, &args.d_v}}) {
        const std::int64_t width = to->width;
        gradient_rows_.resize(tile.count() * width);
        transpose(accumulator->data() + tile.row * width, width, tile.count(),
                  gradient_rows_.data());
        scatter(gradient_rows_.data(), *to, kv, keys);
      }
    }
  }

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  Matmuls matmuls_{is_float ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16};
  int group_ = 1;
  std::int64_t width_ = 1, value_width_ = 1;  // of queries and keys; of values and outputs
  std::int64_t sum_width_ = 1;                // of out_
  std::int64_t tokens_ = 1;                   // of a query tile
  Grain grain_;
  std::size_t slices_ = 1;  // of a key tile, at most
  float scale_ = 1, scale2_ = 1;
  std::vector<KeyTile> tiles_;
  std::optional<SeenKeys> seen_;
  std::vector<PackedTile> packs_;                          // by key tile: it and its slices
  std::vector<bool> touched_;                              // d_k_ and d_v_ hold something
  Buffer<T> q_, q_transposed_, d_out_, d_out_transposed_;  // [rows, width] and transposed
  Buffer<float> s_, dp_;                                   // [rows, keys]
  Buffer<T> p_, ds_;                                       // P and dS of them
  Buffer<float> out_;                                      // [rows, width]: out or d_q
  Buffer<float> d_k_, d_v_;                                // by key tile: [width, keys]
  Buffer<float> gradient_rows_;                            // [keys, width]
  Buffer<T> keys_of_head_;                                 // [keys, width], converted
  std::vector<float> shift2_, sum_, delta_;                // by row; shift2_ also holds lse2
};

}  // namespace spp::runtime

#endif
