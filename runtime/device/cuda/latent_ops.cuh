// Heads of latent attention made of rows, or joined into them, as ops (launch.cuh). Same meaning as
// in runtime/kernels/latent.hpp, computed in fp32.
#pragma once

#include "runtime/device/cuda/head_ops.cuh"
#include "runtime/kernels/latent.hpp"

#include <cstdint>

namespace spp::runtime::cuda {

/// The rows of one call, and where a head's numbers lie in them.
struct Latents {
  Numbers q_row, kv_row, position, q, k, v;
  LatentShape shape;

  SPP_HOST_DEVICE std::int64_t width() const { return shape.content + shape.turned; }
  /// In q's row, q and k.
  SPP_HOST_DEVICE std::int64_t head(std::int64_t row, std::int64_t h) const {
    return (row * shape.heads + h) * width();
  }
  SPP_HOST_DEVICE std::int64_t kv(std::int64_t row, std::int64_t h) const {
    return (row * shape.heads + h) * (shape.content + shape.value);
  }
  SPP_HOST_DEVICE std::int64_t value(std::int64_t row, std::int64_t h) const {
    return (row * shape.heads + h) * shape.value;
  }
};

/// Op i: a number that is not turned, of q, k or v, by row and head. `back`: from heads to rows.
struct LatentCopyOp {
  static constexpr const char* name = "latent_heads kernel, copies";
  Latents of;
  bool back = false;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t content = of.shape.content;
    const std::int64_t numbers = 2 * content + of.shape.value;
    const std::int64_t row_head = divided(i, numbers);
    const std::int64_t number = i - row_head * numbers;
    const std::int64_t row = divided(row_head, of.shape.heads);
    const std::int64_t h = row_head - row * of.shape.heads;
    if (number < content) {
      bring(of.q_row, of.head(row, h) + number, of.q, of.head(row, h) + number);
    } else if (number < 2 * content) {
      const std::int64_t e = number - content;
      bring(of.kv_row, of.kv(row, h) + e, of.k, of.head(row, h) + e);
    } else {
      const std::int64_t e = number - 2 * content;
      bring(of.kv_row, of.kv(row, h) + content + e, of.v, of.value(row, h) + e);
    }
  }
  SPP_HOST_DEVICE void bring(const Numbers& rows, std::int64_t in_row, const Numbers& heads,
                             std::int64_t in_head) const {
    if (back) {
      write_one(rows, in_row, read_one(heads, in_head));
    } else {
      write_one(heads, in_head, read_one(rows, in_row));
    }
  }
};

/// Op i: a pair that is turned, of all heads of a row, of one range of tokens. `back`: of the
/// gradients, the position's summed over the heads.
struct LatentTurnOp {
  static constexpr const char* name = "latent_heads kernel, turns";
  Latents of;
  Turns turns;
  bool turned = false, back = false;
  std::int64_t rows_before = 0;  // of the range
  std::int64_t batch = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t half = of.shape.turned / 2;
    const std::int64_t in_range = divided(i, half);
    const std::int64_t pair = i - in_range * half;
    float c = 1;
    float s = 0;
    if (turned) {
      turns.of(in_range, pair, c, s);
    }
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t row = (rows_before + in_range) * batch + b;
      const std::int64_t position = row * of.shape.turned + pair;
      float x = back ? 0 : read_one(of.position, position);
      float y = back ? 0 : read_one(of.position, position + half);
      if (!back) {
        turn(c, s, x, y);
      }
      for (std::int64_t h = 0; h < of.shape.heads; ++h) {
        const std::int64_t at = of.head(row, h) + of.shape.content + pair;
        float q_x = read_one(back ? of.q : of.q_row, at);
        float q_y = read_one(back ? of.q : of.q_row, at + half);
        turn(c, s, q_x, q_y);
        write_one(back ? of.q_row : of.q, at, q_x);
        write_one(back ? of.q_row : of.q, at + half, q_y);
        if (back) {
          x += read_one(of.k, at);
          y += read_one(of.k, at + half);
        } else {
          write_one(of.k, at, x);
          write_one(of.k, at + half, y);
        }
      }
      if (back) {
        turn(c, s, x, y);
        write_one(of.position, position, x);
        write_one(of.position, position + half, y);
      }
    }
  }
  static SPP_HOST_DEVICE void turn(float c, float s, float& x, float& y) {
    const float before = x;
    x = before * c - y * s;
    y = y * c + before * s;
  }
};

}  // namespace spp::runtime::cuda
