// The kernels of a step beside its layers as ops (launch.cuh). Same meaning as
// runtime/kernels/words.hpp, computed in fp32; N elements at a time (numbers.cuh).
#pragma once

#include "runtime/device/cuda/elementwise_ops.cuh"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/kernels/word_numbers.hpp"

#include <cmath>
#include <cstdint>

namespace spp::runtime::cuda {

SPP_HOST_DEVICE inline std::int64_t word_at(const Numbers& words, std::int64_t row) {
  return static_cast<std::int64_t>(read_one(words, row));
}

/// Op i: N elements of a row of x.
template <int N>
struct EmbeddingOp {
  static constexpr const char* name = "embedding kernel";
  Numbers words, table, x;
  std::int64_t first = 0, table_rows = 0, columns = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t pieces = columns / N;
    const std::int64_t row = divided(i, pieces);
    const std::int64_t column = (i - row * pieces) * N;
    const std::int64_t at = word_at(words, row) - first;
    float values[N] = {};
    if (at >= 0 && at < table_rows) {
      read<N>(table, at * columns + column, values);
    }
    write<N>(x, row * columns + column, values);
  }
};

/// Op i: a column of d_x, of all tokens whose word is of one of `buckets` classes: no two add to
/// the same sum, and each adds in the order of its tokens. The table was cleared.
struct EmbeddingBackwardOp {
  static constexpr const char* name = "embedding_bwd kernel";
  static constexpr std::int64_t buckets = 32;
  Numbers words, d_x, d_table;
  std::int64_t first = 0, table_rows = 0, columns = 1, rows = 0;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t bucket = divided(i, columns);
    const std::int64_t column = i - bucket * columns;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = word_at(words, row) - first;
      if (at >= 0 && at < table_rows && at % buckets == bucket) {
        const std::int64_t to = at * columns + column;
        write_one(d_table, to, read_one(d_table, to) + read_one(d_x, row * columns + column));
      }
    }
  }
};

/// The maximum of some numbers, and the sum of exp(number - maximum).
struct SoftmaxSum {
  float most = -INFINITY, sum = 0;

  SPP_HOST_DEVICE SoftmaxSum& operator+=(const SoftmaxSum& other) {
    const float both = other.most > most ? other.most : most;
    if (both != -INFINITY) {
      sum = sum * std::exp(most - both) + other.sum * std::exp(other.most - both);
    }
    most = both;
    return *this;
  }
};

#if defined(__CUDACC__)
/// Of all threads of a row.
__device__ inline void add_up(SoftmaxSum& x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    SoftmaxSum other;
    other.most = __shfl_xor_sync(0xffffffffU, x.most, offset);
    other.sum = __shfl_xor_sync(0xffffffffU, x.sum, offset);
    x += other;
  }
}
#endif

template <int N>
struct WordSumsOp {
  static constexpr const char* name = "word_sums kernel";
  static constexpr bool sums = true;
  using State = SoftmaxSum;
  Numbers logits, targets, to;
  std::int64_t columns = 1, numbers = 3;
  int part = 0;

  SPP_HOST_DEVICE State begin(std::int64_t) const { return {}; }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& state) const {
    float values[N];
    read<N>(logits, row * columns + i * N, values);
    SoftmaxSum of_piece;
    for (int e = 0; e < N; ++e) {
      of_piece.most = values[e] > of_piece.most ? values[e] : of_piece.most;
    }
    for (int e = 0; e < N; ++e) {
      of_piece.sum += std::exp(values[e] - of_piece.most);
    }
    state += of_piece;
  }
  SPP_HOST_DEVICE void end(std::int64_t row, const State& state) const {
    for (std::int64_t i = 0; i < numbers; ++i) {
      write_one(to, row * numbers + i, 0);
    }
    const std::int64_t target = word_at(targets, row) - part * columns;
    const bool own = target >= 0 && target < columns;
    const std::int64_t at = row * numbers + 3 * part;
    write_one(to, at, state.most);
    write_one(to, at + 1, state.sum);
    write_one(to, at + 2, own ? read_one(logits, row * columns + target) : 0);
  }
};

/// Op i: a row.
struct WordLossOp {
  static constexpr const char* name = "word_loss kernel";
  Numbers sums, targets, loss, log_sum;
  int parts = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t first = i * 3 * parts;
    const WordLoss result =
        loss_of([&](int number) { return read_one(sums, first + number); }, parts);
    write_one(log_sum, i, result.log_sum);
    write_one(loss, i, read_one(targets, i) < 0 ? 0 : result.log_sum - result.target);
  }
};

/// Op i: N elements of a row of logits.
template <int N>
struct WordSumsBackwardOp {
  static constexpr const char* name = "word_sums_bwd kernel";
  Numbers logits, targets, log_sum, d_logits;
  std::int64_t columns = 1;
  int part = 0;
  float scale = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t pieces = columns / N;
    const std::int64_t row = divided(i, pieces);
    const std::int64_t column = (i - row * pieces) * N;
    const std::int64_t word = word_at(targets, row);
    const std::int64_t target = word - part * columns;
    const float log_of_all = read_one(log_sum, row);
    float values[N];
    read<N>(logits, row * columns + column, values);
    for (int e = 0; e < N; ++e) {
      const float gradient =
          std::exp(values[e] - log_of_all) - (column + e == target ? 1.0F : 0.0F);
      values[e] = word < 0 ? 0 : scale * gradient;
    }
    write<N>(d_logits, row * columns + column, values);
  }
};

template <int N>
struct AdamOp {
  static constexpr const char* name = "adam kernel";
  Numbers gradient, master, first, second, param;
  float rate = 0;
  AdamConstants constants;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float g[N];
    float w[N];
    float m[N];
    float v[N];
    read<N>(gradient, i * N, g);
    read<N>(master, i * N, w);
    read<N>(first, i * N, m);
    read<N>(second, i * N, v);
    for (int e = 0; e < N; ++e) {
      const Adam next =
          adam_of({.weight = w[e], .first = m[e], .second = v[e]}, g[e], rate, constants);
      w[e] = next.weight;
      m[e] = next.first;
      v[e] = next.second;
    }
    write<N>(master, i * N, w);
    write<N>(first, i * N, m);
    write<N>(second, i * N, v);
    write<N>(param, i * N, w);
  }
};

}  // namespace spp::runtime::cuda
