// Heads split from a packed row, or joined into one, as ops (launch.cuh): turned by their position,
// and normed before. Same meaning as split_heads and join_heads of runtime/kernels/layer.hpp,
// computed in fp32.
#pragma once

#include "runtime/device/cuda/elementwise_ops.cuh"
#include "runtime/device/cuda/launch.cuh"

#include <cmath>
#include <cstdint>

namespace spp::runtime::cuda {

/// Turns of pairs of one range of tokens, in fp64 up to whole turns: a position times a frequency
/// needs its digits.
struct Turns {
  std::int64_t first_position = 0, stride = 1;  // of the range
  std::int64_t width = 2;
  double log2_theta = 0;
  int sign = 1;  // -1: back

  /// Of the range's token `in_range`.
  SPP_HOST_DEVICE void of(std::int64_t in_range, std::int64_t pair, float& c, float& s) const {
    const double frequency =
        std::exp2(-2 * static_cast<double>(pair) / static_cast<double>(width) * log2_theta);
    constexpr double turn = 6.283185307179586;
    const auto position = static_cast<double>(first_position + in_range * stride);
    const double turns = position * frequency / turn;
    const auto angle = static_cast<float>((turns - std::floor(turns + 0.5)) * turn);
    c = std::cos(angle);
    s = static_cast<float>(sign) * std::sin(angle);
  }
};

/// Op i: a pair of all heads of a row, of one range of tokens.
struct RotateOp {
  static constexpr const char* name = "rotate kernel";
  Numbers from, to;
  BoxIndex from_box, to_box;
  Turns turns;
  std::int64_t rows_before = 0;  // of the range
  std::int64_t batch = 1, heads = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t half = turns.width / 2;
    const std::int64_t in_range = divided(i, half);
    const std::int64_t pair = i - in_range * half;
    const std::int64_t row = rows_before + in_range;
    float c = 1;
    float s = 0;
    turns.of(in_range, pair, c, s);
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t source = from_box.of(row, b, batch, h * turns.width + pair);
        const std::int64_t target = to_box.of(row, b, batch, h * turns.width + pair);
        const float x = read_one(from, source);
        const float y = read_one(from, source + half);
        write_one(to, target, x * c - y * s);
        write_one(to, target + half, y * c + x * s);
      }
    }
  }
};

/// Heads [token, batch, head] of one range of tokens, and their pieces: pairs (i, i + width / 2)
/// where heads are turned, else single elements.
struct HeadsOfRange {
  Turns turns;
  bool turned = false;
  std::int64_t rows_before = 0;  // of the range
  std::int64_t batch = 1, heads = 1;

  SPP_HOST_DEVICE std::int64_t half() const { return turned ? turns.width / 2 : 0; }
  SPP_HOST_DEVICE std::int64_t pieces() const { return turned ? turns.width / 2 : turns.width; }
  SPP_HOST_DEVICE int elements() const { return turned ? 2 : 1; }
  SPP_HOST_DEVICE std::int64_t token_of(std::int64_t head) const {
    return divided(head, batch * heads);
  }
  /// Where head number `head` begins.
  SPP_HOST_DEVICE std::int64_t place(const BoxIndex& box, std::int64_t head) const {
    const std::int64_t row_b = divided(head, heads);
    const std::int64_t token = divided(row_b, batch);
    return box.of(rows_before + token, row_b - token * batch, batch,
                  (head - row_b * heads) * turns.width);
  }
  /// The elements of a piece of the head that begins at `place`.
  SPP_HOST_DEVICE void read_piece(const Numbers& from, std::int64_t place, std::int64_t i,
                                  float* to) const {
    for (int e = 0; e < elements(); ++e) {
      to[e] = read_one(from, place + i + e * half());
    }
  }
  SPP_HOST_DEVICE void write_piece(const Numbers& to, std::int64_t place, std::int64_t i,
                                   const float* from) const {
    for (int e = 0; e < elements(); ++e) {
      write_one(to, place + i + e * half(), from[e]);
    }
  }
  SPP_HOST_DEVICE void turn(std::int64_t token, std::int64_t i, float* piece) const {
    if (turned) {
      float c = 1;
      float s = 0;
      turns.of(token, i, c, s);
      const float x = piece[0];
      piece[0] = x * c - piece[1] * s;
      piece[1] = piece[1] * c + x * s;
    }
  }
};

/// Rows are heads: normed, then turned.
struct NormHeadsOp {
  static constexpr const char* name = "norm_heads kernel";
  using State = RowSums<1, 1>;  // of squares
  HeadsOfRange heads;
  Numbers from, to, gain;
  BoxIndex from_box, to_box;
  float epsilon = 0;

  SPP_HOST_DEVICE void add(int, std::int64_t head, std::int64_t i, State& state) const {
    float x[2] = {};
    heads.read_piece(from, heads.place(from_box, head), i, x);
    state.of[0][0] += x[0] * x[0] + x[1] * x[1];
  }
  SPP_HOST_DEVICE void piece(std::int64_t head, std::int64_t i, const State& state) const {
    const float r = 1 / std::sqrt(state.of[0][0] / static_cast<float>(heads.turns.width) + epsilon);
    float x[2] = {};
    float gains[2] = {};
    heads.read_piece(from, heads.place(from_box, head), i, x);
    heads.read_piece(gain, 0, i, gains);
    x[0] *= r * gains[0];
    x[1] *= r * gains[1];
    heads.turn(heads.token_of(head), i, x);
    heads.write_piece(to, heads.place(to_box, head), i, x);
  }
  SPP_HOST_DEVICE void end(std::int64_t, const State&) const {}
};

/// Rows are heads: `from`, gradients of turned heads, turned back and through the norm of `x`.
/// `inverses`, by head: r of x, kept for the gain's gradient.
struct NormHeadsBackwardOp {
  static constexpr const char* name = "norm_heads_bwd kernel";
  using State = RowSums<1, 2>;  // of squares of x, and of g x
  HeadsOfRange heads;           // turned back
  Numbers from, x, to, gain;
  BoxIndex from_box, x_box, to_box;
  float* inverses = nullptr;
  float epsilon = 0;

  SPP_HOST_DEVICE void terms(std::int64_t head, std::int64_t i, float* of_x, float* g) const {
    float gains[2] = {};
    heads.read_piece(x, heads.place(x_box, head), i, of_x);
    heads.read_piece(from, heads.place(from_box, head), i, g);
    heads.read_piece(gain, 0, i, gains);
    heads.turn(heads.token_of(head), i, g);
    g[0] *= gains[0];
    g[1] *= gains[1];
  }
  SPP_HOST_DEVICE float inverse(const State& state) const {
    return 1 / std::sqrt(state.of[0][0] / static_cast<float>(heads.turns.width) + epsilon);
  }
  SPP_HOST_DEVICE void add(int, std::int64_t head, std::int64_t i, State& state) const {
    float of_x[2] = {};
    float g[2] = {};
    terms(head, i, of_x, g);
    state.of[0][0] += of_x[0] * of_x[0] + of_x[1] * of_x[1];
    state.of[0][1] += g[0] * of_x[0] + g[1] * of_x[1];
  }
  SPP_HOST_DEVICE void piece(std::int64_t head, std::int64_t i, const State& state) const {
    float of_x[2] = {};
    float g[2] = {};
    terms(head, i, of_x, g);
    const float r = inverse(state);
    const float mean = state.of[0][1] * r / static_cast<float>(heads.turns.width);  // of g z
    for (int e = 0; e < 2; ++e) {
      g[e] = r * (g[e] - of_x[e] * r * mean);
    }
    heads.write_piece(to, heads.place(to_box, head), i, g);
  }
  SPP_HOST_DEVICE void end(std::int64_t head, const State& state) const {
    inverses[head] = inverse(state);
  }
};

/// Op i: an element of the gain in a slice of `slice` tokens of the range: the sum of d_y z over
/// their heads. `sums` [slices, width] in fp32, `add`: to what other ranges gave; added up
/// elsewhere in an order that is always the same.
struct HeadGainsOp {
  static constexpr const char* name = "norm_heads_bwd kernel, gain";
  HeadsOfRange heads;  // turned back
  Numbers from, x;
  BoxIndex from_box, x_box;
  const float* inverses = nullptr;
  float* sums = nullptr;
  std::int64_t tokens = 0, slice = 1;
  bool add = false;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t width = heads.turns.width;
    const std::int64_t number = divided(i, width);
    const std::int64_t element = i - number * width;
    const std::int64_t of_pair = heads.turned && element >= heads.half() ? 1 : 0;
    const std::int64_t at = element - of_pair * heads.half();
    const std::int64_t last = (number + 1) * slice < tokens ? (number + 1) * slice : tokens;
    float sum = add ? sums[i] : 0;
    for (std::int64_t token = number * slice; token < last; ++token) {
      // The turn of a sum over heads is the sum of their turns.
      float d[2] = {};
      const std::int64_t first = token * heads.batch * heads.heads;
      for (std::int64_t head = first; head < first + heads.batch * heads.heads; ++head) {
        float of_head[2] = {};
        heads.read_piece(from, heads.place(from_box, head), at, of_head);
        const float z = read_one(x, heads.place(x_box, head) + element) * inverses[head];
        d[0] += of_head[0] * z;
        d[1] += of_head[1] * z;
      }
      heads.turn(token, at, d);
      sum += d[of_pair];
    }
    sums[i] = sum;
  }
};

}  // namespace spp::runtime::cuda
