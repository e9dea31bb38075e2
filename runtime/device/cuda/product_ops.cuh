// Attention that is not one fused kernel, as ops (launch.cuh): rows of scores, and states of linear
// attention. Plain loops in fp32, a number of the result each, slow and obvious as
// attention_ops.cuh is. Same meaning as runtime/kernels/products.hpp.
#pragma once

#include "runtime/device/cuda/attention_ops.cuh"

#include <cmath>
#include <cstdint>

namespace spp::runtime::cuda {

/// Rows of pairs, [queries, batch, heads, seq], and the columns that a block has in them.
struct Pairs {
  Numbers numbers;
  std::int64_t seq = 0, first = 0;

  SPP_HOST_DEVICE std::int64_t at(std::int64_t row, std::int64_t column) const {
    return row * seq + first + column;
  }
};

/// Op i: a query and head, and a key.
struct ScoresOp {
  static constexpr const char* name = "scores kernel";
  AttentionShape shape;
  Numbers rows, columns;
  Pairs to;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = i / shape.keys;
    const std::int64_t key = i % shape.keys;
    const std::int64_t other = shape.key_index(shape.place(row, shape.heads), key);
    write_one(to.numbers, to.at(row, key), dot<1>(rows, row, columns, other, shape.width));
  }
};

struct SoftmaxOp {
  static constexpr const char* name = "softmax kernel";
  static constexpr bool sums = false;
  struct State {
    SeenKeyRows seen;
    float largest = 0, sum = 0;
  };
  AttentionShape shape;  // `keys` are all columns
  Pairs scores, weights;

  SPP_HOST_DEVICE State begin(std::int64_t row) const {
    State state;
    state.seen = shape.seen[shape.place(row, shape.heads).row];
    state.largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t key = state.seen.begin[0]; key < state.seen.end[0]; ++key) {
      const float score = shape.scale * read_one(scores.numbers, scores.at(row, key));
      if (score > state.largest) {
        state.sum = state.sum * std::exp(state.largest - score) + 1;
        state.largest = score;
      } else {
        state.sum += std::exp(score - state.largest);
      }
    }
    return state;
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t key, State& state) const {
    const bool seen = key >= state.seen.begin[0] && key < state.seen.end[0];
    const float score = shape.scale * read_one(scores.numbers, scores.at(row, key));
    write_one(weights.numbers, weights.at(row, key),
              seen ? std::exp(score - state.largest) / state.sum : 0);
  }
  SPP_HOST_DEVICE void end(std::int64_t, const State&) const {}
};

struct SoftmaxBackwardOp {
  static constexpr const char* name = "softmax_bwd kernel";
  static constexpr bool sums = false;
  using State = float;  // sum of weights * d_weights
  Pairs weights, d_weights, d_scores;
  float scale = 1;

  SPP_HOST_DEVICE State begin(std::int64_t row) const {
    float sum = 0;
    for (std::int64_t key = 0; key < weights.seq; ++key) {
      sum += read_one(weights.numbers, weights.at(row, key)) *
             read_one(d_weights.numbers, d_weights.at(row, key));
    }
    return sum;
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t key, State& sum) const {
    const float p = read_one(weights.numbers, weights.at(row, key));
    const float d = read_one(d_weights.numbers, d_weights.at(row, key));
    write_one(d_scores.numbers, d_scores.at(row, key), scale * p * (d - sum));
  }
  SPP_HOST_DEVICE void end(std::int64_t, const State&) const {}
};

/// Op i: an element of a query and head.
struct WeighOp {
  static constexpr const char* name = "weigh kernel";
  AttentionShape shape;
  Pairs weights;
  Numbers values, to;
  bool add = false;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = i / shape.width;
    const std::int64_t e = i % shape.width;
    const AttentionShape::Place place = shape.place(row, shape.heads);
    float sum = add ? read_one(to, i) : 0;
    for (std::int64_t key = 0; key < shape.keys; ++key) {
      sum += read_one(weights.numbers, weights.at(row, key)) *
             read_one(values, shape.key_index(place, key) * shape.width + e);
    }
    write_one(to, i, sum);
  }
};

/// Op i: an element of a key and KV head.
struct WeighBackOp {
  static constexpr const char* name = "weigh_back kernel";
  AttentionShape shape;
  Pairs weights;
  Numbers rows, to;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const AttentionShape::Place key = shape.place(i / shape.width, shape.kv_heads);
    const std::int64_t e = i % shape.width;
    const std::int64_t group = shape.heads / shape.kv_heads;
    float sum = 0;
    for (std::int64_t head = key.head * group; head < (key.head + 1) * group; ++head) {
      for (std::int64_t n = 0; n < shape.queries; ++n) {
        const std::int64_t row =
            shape.index({.row = n, .batch = key.batch, .head = head}, shape.heads);
        sum += read_one(weights.numbers, weights.at(row, key.row)) *
               read_one(rows, row * shape.width + e);
      }
    }
    write_one(to, i, sum);
  }
};

/// States of chunks of rows, [chunks, batch, KV heads, width, width].
struct ChunkStates {
  Numbers numbers;
  std::int64_t chunk = 1;  // rows of one

  SPP_HOST_DEVICE std::int64_t at(const AttentionShape& shape, const AttentionShape::Place& key,
                                  std::int64_t d, std::int64_t e) const {
    const std::int64_t state =
        shape.index({.row = key.row / chunk, .batch = key.batch, .head = key.head}, shape.kv_heads);
    return (state * shape.width + d) * shape.width + e;
  }
};

/// Op i: an element of a chunk's state: sum of rows (x) values, over the heads of `rows` that
/// belong to a KV head: `group`.
struct MakeStateOp {
  static constexpr const char* name = "make_state kernel";
  AttentionShape shape;  // `queries` rows of `kv_heads` * group heads
  Numbers rows, values;
  ChunkStates to;
  std::int64_t group = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t square = shape.width * shape.width;
    const AttentionShape::Place state = shape.place(i / square, shape.kv_heads);
    const std::int64_t d = i % square / shape.width;
    const std::int64_t e = i % shape.width;
    const std::int64_t first = state.row * to.chunk;
    const std::int64_t last = first + to.chunk < shape.queries ? first + to.chunk : shape.queries;
    float sum = 0;
    for (std::int64_t head = state.head * group; head < (state.head + 1) * group; ++head) {
      for (std::int64_t n = first; n < last; ++n) {
        const std::int64_t row =
            shape.index({.row = n, .batch = state.batch, .head = head}, shape.kv_heads * group);
        sum += read_one(rows, row * shape.width + d) * read_one(values, row * shape.width + e);
      }
    }
    write_one(to.numbers, i, sum);
  }
};

/// Op i: an element of a state; chunk by chunk it becomes the sum of those before, or after.
struct ScanStatesOp {
  static constexpr const char* name = "scan_states kernel";
  Numbers states;
  std::int64_t chunks = 0;
  std::int64_t size = 0;  // elements of one chunk's states
  bool backwards = false;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float sum = 0;
    for (std::int64_t c = 0; c < chunks; ++c) {
      const std::int64_t at = (backwards ? chunks - 1 - c : c) * size + i;
      const float own = read_one(states, at);
      write_one(states, at, sum);
      sum += own;
    }
  }
};

/// Op i: an element of a row of `shape.heads` heads: scale * rows . its chunk's state.
struct ApplyStateOp {
  static constexpr const char* name = "apply_state kernel";
  AttentionShape shape;
  Numbers rows, to;
  ChunkStates states;
  bool transposed = false;
  bool add = false;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = i / shape.width;
    const std::int64_t e = i % shape.width;
    AttentionShape::Place key = shape.place(row, shape.heads);
    key.head /= shape.heads / shape.kv_heads;
    float sum = 0;
    for (std::int64_t d = 0; d < shape.width; ++d) {
      const std::int64_t at =
          transposed ? states.at(shape, key, e, d) : states.at(shape, key, d, e);
      sum += read_one(rows, row * shape.width + d) * read_one(states.numbers, at);
    }
    write_one(to, i, shape.scale * sum + (add ? read_one(to, i) : 0));
  }
};

/// Op i: an element of a query and head, added: scale * sum over the keys of its chunk up to it of
/// (rows . keys) values: out of q, k, v, or d_q of d_out, v, k.
struct ChunkQueryOp {
  static constexpr const char* name = "linear attention, queries";
  AttentionShape shape;
  Numbers rows, keys, values, to;
  std::int64_t chunk = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = i / shape.width;
    const std::int64_t e = i % shape.width;
    const AttentionShape::Place place = shape.place(row, shape.heads);
    float sum = 0;
    for (std::int64_t n = place.row / chunk * chunk; n <= place.row; ++n) {
      const std::int64_t key = shape.key_index(place, n);
      sum += dot<1>(rows, row, keys, key, shape.width) * read_one(values, key * shape.width + e);
    }
    write_one(to, i, shape.scale * sum + read_one(to, i));
  }
};

/// Op i: an element of a key and KV head, added: scale * sum over the queries of its chunk from it
/// on of (rows . others) values: d_k of v, d_out, q, or d_v of k, q, d_out.
struct ChunkKeyOp {
  static constexpr const char* name = "linear attention, keys";
  AttentionShape shape;
  Numbers rows, others, values, to;
  std::int64_t chunk = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = i / shape.width;
    const std::int64_t e = i % shape.width;
    const AttentionShape::Place key = shape.place(row, shape.kv_heads);
    const std::int64_t group = shape.heads / shape.kv_heads;
    const std::int64_t end = (key.row / chunk + 1) * chunk;
    float sum = 0;
    for (std::int64_t head = key.head * group; head < (key.head + 1) * group; ++head) {
      for (std::int64_t n = key.row; n < end && n < shape.queries; ++n) {
        const std::int64_t query =
            shape.index({.row = n, .batch = key.batch, .head = head}, shape.heads);
        sum += dot<1>(rows, row, others, query, shape.width) *
               read_one(values, query * shape.width + e);
      }
    }
    write_one(to, i, shape.scale * sum + read_one(to, i));
  }
};

}  // namespace spp::runtime::cuda
