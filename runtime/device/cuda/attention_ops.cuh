// Attention as ops (launch.cuh): plain loops in fp32, slow and obvious, for any mask. A row is one
// query and head (forward, dQ) or one key and KV head (dK, dV); a piece is N elements of what is
// written, as wide as keys or as values.
// Formulas: runtime/kernels/reference_attention.hpp.
//
// Every piece computes the scores of its row again: nothing is shared between threads, so there is
// nothing to get wrong; the price is a factor of about width / 4 in time.
#pragma once

#include "runtime/device/cuda/numbers.cuh"

#include <cmath>
#include <cstdint>
#include <limits>

namespace spp::runtime::cuda {

/// Rows of k that a query sees: up to two runs. Empty ones are [0, 0).
struct SeenKeyRows {
  std::int32_t begin[2] = {0, 0};
  std::int32_t end[2] = {0, 0};
};

/// What all three ops know. Rows are [count, batch, heads, width], of v, out and their gradients
/// [count, batch, heads, value_width].
struct AttentionShape {
  std::int64_t queries = 0, keys = 0, batch = 1;
  std::int64_t heads = 1, kv_heads = 1, width = 1, value_width = 1;
  float scale = 1;
  const SeenKeyRows* seen = nullptr;  // by query

  /// The same for queries and keys, whose heads differ.
  struct Place {
    std::int64_t row = 0, batch = 0, head = 0;
  };
  SPP_HOST_DEVICE Place place(std::int64_t index, std::int64_t of_heads) const {
    const std::int64_t head = index % of_heads;
    const std::int64_t rest = index / of_heads;
    return {.row = rest / batch, .batch = rest % batch, .head = head};
  }
  /// Index of (row, batch, head) without the width.
  SPP_HOST_DEVICE std::int64_t index(const Place& p, std::int64_t of_heads) const {
    return (p.row * batch + p.batch) * of_heads + p.head;
  }
  /// The key `row` that a query at `p` attends to.
  SPP_HOST_DEVICE std::int64_t key_index(const Place& p, std::int64_t row) const {
    return index({.row = row, .batch = p.batch, .head = p.head / (heads / kv_heads)}, kv_heads);
  }
  SPP_HOST_DEVICE bool sees(std::int64_t query, std::int64_t key) const {
    const SeenKeyRows& rows = seen[query];
    return (key >= rows.begin[0] && key < rows.end[0]) ||
           (key >= rows.begin[1] && key < rows.end[1]);
  }
  /// body(index of the key) for all keys that the query at `p` sees, in order.
  template <class Body>
  SPP_HOST_DEVICE void for_each_key(const Place& p, const Body& body) const {
    const SeenKeyRows& rows = seen[p.row];
    for (int range = 0; range < 2; ++range) {
      for (std::int64_t row = rows.begin[range]; row < rows.end[range]; ++row) {
        body(key_index(p, row));
      }
    }
  }
};

/// Sum over the width of a[i] * b[j].
template <int N>
SPP_HOST_DEVICE float dot(const Numbers& a, std::int64_t i, const Numbers& b, std::int64_t j,
                          std::int64_t width) {
  float sum = 0;
  for (std::int64_t at = 0; at < width; at += N) {
    float x[N];
    float y[N];
    read<N>(a, i * width + at, x);
    read<N>(b, j * width + at, y);
    for (int e = 0; e < N; ++e) {
      sum += x[e] * y[e];
    }
  }
  return sum;
}

template <int N>
struct AttentionForwardOp {
  static constexpr const char* name = "reference attention, forward";
  static constexpr bool sums = false;
  struct State {
    AttentionShape::Place place;
    float lse = 0;
  };
  AttentionShape shape;
  Numbers q, k, v, out, lse;

  SPP_HOST_DEVICE State begin(std::int64_t row) const {
    State state;
    state.place = shape.place(row, shape.heads);
    float largest = -std::numeric_limits<float>::infinity();
    float sum = 0;  // of e^(score - largest)
    shape.for_each_key(state.place, [&](std::int64_t key) {
      const float score = shape.scale * dot<N>(q, row, k, key, shape.width);
      if (score > largest) {
        sum = sum * std::exp(largest - score) + 1;
        largest = score;
      } else {
        sum += std::exp(score - largest);
      }
    });
    state.lse = sum > 0 ? largest + std::log(sum) : -std::numeric_limits<float>::infinity();
    return state;
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& state) const {
    float sum[N] = {};
    shape.for_each_key(state.place, [&](std::int64_t key) {
      const float p = std::exp(shape.scale * dot<N>(q, row, k, key, shape.width) - state.lse);
      float x[N];
      read<N>(v, key * shape.value_width + i * N, x);
      for (int e = 0; e < N; ++e) {
        sum[e] += p * x[e];
      }
    });
    write<N>(out, row * shape.value_width + i * N, sum);
  }
  SPP_HOST_DEVICE void end(std::int64_t row, const State& state) const {
    write_one(lse, row, state.lse);
  }
};

/// What both gradient ops read.
struct GradientInputs {
  AttentionShape shape;
  Numbers q, k, v, d_out, lse, delta;

  struct Pair {
    float p = 0, d_s = 0;
  };
  /// P and dS of a (query, key); both are indices without the width.
  template <int N>
  SPP_HOST_DEVICE Pair pair(std::int64_t query, std::int64_t key) const {
    const float row_lse = read_one(lse, query);
    if (row_lse == -std::numeric_limits<float>::infinity()) {
      return {};  // saw no key at all, whatever delta is
    }
    Pair result;
    result.p = std::exp(shape.scale * dot<N>(q, query, k, key, shape.width) - row_lse);
    const float d_p = dot<N>(d_out, query, v, key, shape.value_width);
    result.d_s = shape.scale * result.p * (d_p - read_one(delta, query));
    return result;
  }
};

/// dQ.
template <int N>
struct AttentionQueryGradientOp {
  static constexpr const char* name = "reference attention, dQ";
  static constexpr bool sums = false;
  using State = AttentionShape::Place;
  GradientInputs in;
  Numbers d_q;

  SPP_HOST_DEVICE State begin(std::int64_t row) const {
    return in.shape.place(row, in.shape.heads);
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& place) const {
    float sum[N] = {};
    in.shape.for_each_key(place, [&](std::int64_t key) {
      const float d_s = in.template pair<N>(row, key).d_s;
      float x[N];
      read<N>(in.k, key * in.shape.width + i * N, x);
      for (int e = 0; e < N; ++e) {
        sum[e] += d_s * x[e];
      }
    });
    write<N>(d_q, row * in.shape.width + i * N, sum);
  }
  SPP_HOST_DEVICE void end(std::int64_t, const State&) const {}
};

/// dK and dV.
template <int N>
struct AttentionKeyGradientOp {
  static constexpr const char* name = "reference attention, dK and dV";
  static constexpr bool sums = false;
  using State = AttentionShape::Place;
  GradientInputs in;
  Numbers d_k, d_v;

  SPP_HOST_DEVICE State begin(std::int64_t row) const {
    return in.shape.place(row, in.shape.kv_heads);
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& place) const {
    const AttentionShape& shape = in.shape;
    const std::int64_t group = shape.heads / shape.kv_heads;
    const bool of_k = i * N < shape.width;
    const bool of_v = i * N < shape.value_width;
    float sum_k[N] = {};
    float sum_v[N] = {};
    for (std::int64_t head = place.head * group; head < (place.head + 1) * group; ++head) {
      for (std::int64_t n = 0; n < shape.queries; ++n) {
        if (!shape.sees(n, place.row)) {
          continue;
        }
        const std::int64_t query =
            shape.index({.row = n, .batch = place.batch, .head = head}, shape.heads);
        const GradientInputs::Pair pair = in.template pair<N>(query, row);
        float x[N] = {};
        float y[N] = {};
        if (of_k) {
          read<N>(in.q, query * shape.width + i * N, x);
        }
        if (of_v) {
          read<N>(in.d_out, query * shape.value_width + i * N, y);
        }
        for (int e = 0; e < N; ++e) {
          sum_k[e] += pair.d_s * x[e];
          sum_v[e] += pair.p * y[e];
        }
      }
    }
    if (of_k) {
      write<N>(d_k, row * shape.width + i * N, sum_k);
    }
    if (of_v) {
      write<N>(d_v, row * shape.value_width + i * N, sum_v);
    }
  }
  SPP_HOST_DEVICE void end(std::int64_t, const State&) const {}
};

}  // namespace spp::runtime::cuda
