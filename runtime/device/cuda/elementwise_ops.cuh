// The kernels around attention as ops (launch.cuh). Same meaning as
// runtime/kernels/elementwise.hpp, computed in fp32; N elements at a time (numbers.cuh).
#pragma once

#include "runtime/device/cuda/numbers.cuh"

#include <cmath>
#include <cstdint>
#include <limits>

namespace spp::runtime::cuda {

SPP_HOST_DEVICE inline bool is_minus_infinity(float x) {
  return x == -std::numeric_limits<float>::infinity();
}

/// to <- from, or to + from.
template <int N>
struct ConvertOp {
  static constexpr const char* name = "convert kernel";
  Numbers from, to;
  bool add = false;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float x[N];
    read<N>(from, i * N, x);
    if (add) {
      float y[N];
      read<N>(to, i * N, y);
      for (int e = 0; e < N; ++e) {
        x[e] = y[e] + x[e];
      }
    }
    write<N>(to, i * N, x);
  }
};

template <int N>
struct FillOp {
  static constexpr const char* name = "fill kernel";
  Numbers to;
  float value = 0;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float x[N];
    for (int e = 0; e < N; ++e) {
      x[e] = value;
    }
    write<N>(to, i * N, x);
  }
};

/// A box of heads in [rows, batch, row_heads, width]: element `at` of run (row, b).
struct BoxIndex {
  std::int64_t row_elements = 1;  // from one (row, b) to the next
  std::int64_t row_step = 1;

  SPP_HOST_DEVICE std::int64_t of(std::int64_t row, std::int64_t b, std::int64_t batch,
                                  std::int64_t at) const {
    return (row * row_step * batch + b) * row_elements + at;
  }
};

/// Quotients of 32 bits where the numbers are small: much cheaper on a GPU.
SPP_HOST_DEVICE inline std::int64_t divided(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) {
    return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  }
  return a / b;
}

/// to[rows, batch, run] <- from, or to + from, where `run` elements of a (row, b) lie together.
template <int N>
struct MoveOp {
  static constexpr const char* name = "move kernel";
  Numbers from, to;
  BoxIndex from_box, to_box;
  std::int64_t batch = 1;
  std::int64_t run = 1;  // elements; a multiple of N
  bool add = false;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t pieces = run / N;
    const std::int64_t row_b = divided(i, pieces);
    const std::int64_t at = (i - row_b * pieces) * N;
    const std::int64_t row = divided(row_b, batch);
    const std::int64_t b = row_b - row * batch;
    const std::int64_t target = to_box.of(row, b, batch, at);
    float x[N];
    read<N>(from, from_box.of(row, b, batch, at), x);
    if (add) {
      float y[N];
      read<N>(to, target, y);
      for (int e = 0; e < N; ++e) {
        x[e] = y[e] + x[e];
      }
    }
    write<N>(to, target, x);
  }
};

/// delta = sum over the width of d_out * out.
template <int N>
struct RowDotOp {
  static constexpr const char* name = "row_dot kernel";
  static constexpr bool sums = true;
  using State = float;
  Numbers out, d_out, delta;
  std::int64_t width = 1;

  SPP_HOST_DEVICE State begin(std::int64_t) const { return 0; }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& sum) const {
    float a[N];
    float b[N];
    read<N>(out, row * width + i * N, a);
    read<N>(d_out, row * width + i * N, b);
    for (int e = 0; e < N; ++e) {
      sum += a[e] * b[e];
    }
  }
  SPP_HOST_DEVICE void end(std::int64_t row, const State& sum) const { write_one(delta, row, sum); }
};

/// out = delta / |d_out|^2 * d_out: rows with rowsum(d_out * out) = delta; 0 where d_out is 0.
template <int N>
struct ProjectOp {
  static constexpr const char* name = "project kernel";
  static constexpr bool sums = false;
  using State = float;
  Numbers d_out, delta, out;
  std::int64_t width = 1;

  SPP_HOST_DEVICE State begin(std::int64_t row) const {
    float square = 0;
    for (std::int64_t i = 0; i < width; i += N) {
      float x[N];
      read<N>(d_out, row * width + i, x);
      for (int e = 0; e < N; ++e) {
        square += x[e] * x[e];
      }
    }
    return square > 0 ? read_one(delta, row) / square : 0;
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& factor) const {
    float x[N];
    read<N>(d_out, row * width + i * N, x);
    for (int e = 0; e < N; ++e) {
      x[e] *= factor;
    }
    write<N>(out, row * width + i * N, x);
  }
  SPP_HOST_DEVICE void end(std::int64_t, const State&) const {}
};

/// How two softmax results of one query become one: the weights of both sides, and the new lse.
struct MergeWeights {
  float ours = 1, theirs = 0, lse = 0;
};
SPP_HOST_DEVICE inline MergeWeights merge_weights(float ours, float theirs) {
  // With e = e^(smaller - larger): lse' = larger + log(1 + e), weights 1 / (1 + e), e / (1 + e).
  const float e = std::exp(-std::abs(ours - theirs));
  const float larger = 1 / (1 + e);
  const float smaller = e * larger;
  const bool ours_larger = ours >= theirs;
  return {.ours = ours_larger ? larger : smaller,
          .theirs = ours_larger ? smaller : larger,
          .lse = (ours_larger ? ours : theirs) + std::log1p(e)};
}

template <int N>
struct MergeOp {
  static constexpr const char* name = "merge kernel";
  static constexpr bool sums = false;
  struct State {
    MergeWeights weights;
    bool keep = false;  // the part has met no key
    bool take = false;  // the accumulator has met none
  };
  Numbers out, lse, part, part_lse;
  std::int64_t width = 1;

  SPP_HOST_DEVICE State begin(std::int64_t row) const {
    const float ours = read_one(lse, row);
    const float theirs = read_one(part_lse, row);
    State state;
    state.keep = is_minus_infinity(theirs);
    state.take = is_minus_infinity(ours);
    if (state.take) {
      state.weights.lse = theirs;
    } else if (!state.keep) {
      state.weights = merge_weights(ours, theirs);
    }
    return state;
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& state) const {
    if (state.keep) {
      return;
    }
    const std::int64_t at = row * width + i * N;
    float x[N];
    read<N>(part, at, x);
    if (!state.take) {
      float y[N];
      read<N>(out, at, y);
      for (int e = 0; e < N; ++e) {
        x[e] = state.weights.ours * y[e] + state.weights.theirs * x[e];
      }
    }
    write<N>(out, at, x);
  }
  SPP_HOST_DEVICE void end(std::int64_t row, const State& state) const {
    if (!state.keep) {
      write_one(lse, row, state.weights.lse);
    }
  }
};

/// Rows of lse; those of out are [begin_row, end_row) of them.
template <int N>
struct SinkOp {
  static constexpr const char* name = "sink kernel";
  static constexpr bool sums = false;
  using State = MergeWeights;  // of the keys, and of the sink
  Numbers out, lse, sinks;
  std::int64_t width = 1;
  std::int64_t begin_row = 0, end_row = 0;
  int heads = 1;

  SPP_HOST_DEVICE State begin(std::int64_t row) const {
    return merge_weights(read_one(lse, row), read_one(sinks, row % heads));
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& weights) const {
    if (row < begin_row || row >= end_row) {
      return;
    }
    const std::int64_t at = (row - begin_row) * width + i * N;
    float x[N];
    read<N>(out, at, x);
    for (int e = 0; e < N; ++e) {
      x[e] *= weights.ours;
    }
    write<N>(out, at, x);
  }
  SPP_HOST_DEVICE void end(std::int64_t row, const State& weights) const {
    write_one(lse, row, weights.lse);
  }
};

/// Row h is a head, piece i its number in row i of lse and delta.
struct SinkBackwardOp {
  static constexpr const char* name = "sink_bwd kernel";
  static constexpr bool sums = true;
  using State = float;
  Numbers lse, delta, sinks, d_sinks;
  int heads = 1;

  SPP_HOST_DEVICE State begin(std::int64_t) const { return 0; }
  SPP_HOST_DEVICE void piece(std::int64_t head, std::int64_t i, State& sum) const {
    const std::int64_t at = i * heads + head;
    sum -= std::exp(read_one(sinks, head) - read_one(lse, at)) * read_one(delta, at);
  }
  SPP_HOST_DEVICE void end(std::int64_t head, const State& sum) const {
    write_one(d_sinks, head, sum);
  }
};

template <int N>
struct RescaleOp {
  static constexpr const char* name = "rescale kernel";
  static constexpr bool sums = false;
  struct State {
    float factor = 0, global_lse = 0;
  };
  Numbers out, lse, gathered, scaled, global_lse;
  std::int64_t width = 1;
  std::int64_t rows = 0;
  std::int64_t members = 0;

  SPP_HOST_DEVICE State begin(std::int64_t row) const {
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t m = 0; m < members; ++m) {
      largest = std::fmax(largest, read_one(gathered, m * rows + row));
    }
    State state;
    state.global_lse = largest;
    if (!is_minus_infinity(largest)) {
      float sum = 0;
      for (std::int64_t m = 0; m < members; ++m) {
        sum += std::exp(read_one(gathered, m * rows + row) - largest);
      }
      state.global_lse = largest + std::log(sum);
    }
    const float own = read_one(lse, row);
    state.factor = is_minus_infinity(own) ? 0 : std::exp(own - state.global_lse);
    return state;
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& state) const {
    const std::int64_t at = row * width + i * N;
    float x[N];
    read<N>(out, at, x);
    for (int e = 0; e < N; ++e) {
      x[e] = state.factor == 0 ? 0 : state.factor * x[e];
    }
    write<N>(scaled, at, x);
  }
  SPP_HOST_DEVICE void end(std::int64_t row, const State& state) const {
    write_one(global_lse, row, state.global_lse);
  }
};

/// to [columns, rows] <- from [rows, columns], fp32. Op i writes element i, so writes are dense;
/// reads are not, but a matrix of statistics fits into the L2 cache.
struct TransposeOp {
  static constexpr const char* name = "transpose kernel";
  const float* from = nullptr;
  float* to = nullptr;
  std::int64_t rows = 1, columns = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t column = divided(i, rows);
    to[i] = from[(i - column * rows) * columns + column];
  }
};

/// to <- sum of parts, added up in fp32 in the order given, rounded once; `add`: to <- to + that.
template <int N>
struct SumOp {
  static constexpr const char* name = "sum kernel";
  static constexpr int most_parts = 64;
  const std::byte* parts[most_parts] = {};
  int count = 0;
  DType from = DType::fp32;
  Numbers to;
  bool add = false;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float sum[N] = {};
    if (add) {
      read<N>(to, i * N, sum);
    }
    for (int p = 0; p < count; ++p) {
      float x[N];
      read<N>({.data = const_cast<std::byte*>(parts[p]), .dtype = from}, i * N, x);
      for (int e = 0; e < N; ++e) {
        sum[e] += x[e];
      }
    }
    write<N>(to, i * N, sum);
  }
};

}  // namespace spp::runtime::cuda
