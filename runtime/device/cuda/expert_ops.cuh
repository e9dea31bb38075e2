// The kernels of experts beside their products as ops (launch.cuh). Same meaning as
// runtime/kernels/experts.hpp, computed in fp32; N elements at a time (numbers.cuh).
#pragma once

#include "runtime/device/cuda/elementwise_ops.cuh"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/kernels/activations.hpp"

#include <cmath>
#include <cstdint>

namespace spp::runtime::cuda {

/// Which experts rows of one range of tokens have: Routing, for a device.
struct RoutedRange {
  std::int64_t first_row = 0, begin = 0, stride = 1, batch = 1;
  std::int64_t period = 1, classes = 1;
  int chosen = 1;

  SPP_HOST_DEVICE std::int64_t row(std::int64_t i) const { return first_row + i; }
  SPP_HOST_DEVICE std::int64_t expert(std::int64_t i, int slot) const {
    const std::int64_t token = begin + i / batch * stride;
    return slot * classes + token % period * classes / period;
  }
};

/// Op i: the weights of a row.
struct RouteOp {
  static constexpr const char* name = "route kernel";
  Numbers scores, weights;
  RoutedRange range;
  std::int64_t experts = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = range.row(i);
    float most = -INFINITY;
    for (int slot = 0; slot < range.chosen; ++slot) {
      const float score = read_one(scores, row * experts + range.expert(i, slot));
      most = score > most ? score : most;
    }
    float sum = 0;
    for (int slot = 0; slot < range.chosen; ++slot) {
      sum += std::exp(read_one(scores, row * experts + range.expert(i, slot)) - most);
    }
    for (int slot = 0; slot < range.chosen; ++slot) {
      const float score = read_one(scores, row * experts + range.expert(i, slot));
      write_one(weights, row * range.chosen + slot, std::exp(score - most) / sum);
    }
  }
};

/// Op i: a row's own experts; the others were cleared.
struct RouteBackwardOp {
  static constexpr const char* name = "route_bwd kernel";
  Numbers weights, d_weights, d_scores;
  RoutedRange range;
  std::int64_t experts = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = range.row(i);
    const std::int64_t first = row * range.chosen;
    float sum = 0;
    for (int slot = 0; slot < range.chosen; ++slot) {
      sum += read_one(weights, first + slot) * read_one(d_weights, first + slot);
    }
    for (int slot = 0; slot < range.chosen; ++slot) {
      write_one(d_scores, row * experts + range.expert(i, slot),
                read_one(weights, first + slot) * (read_one(d_weights, first + slot) - sum));
    }
  }
};

/// Op i: N elements of a.
template <int N>
struct ExpertSwigluOp {
  static constexpr const char* name = "expert_swiglu kernel";
  Numbers gate_up, weights, a;
  std::int64_t width = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t pieces = width / N;
    const std::int64_t row = divided(i, pieces);
    const std::int64_t column = (i - row * pieces) * N;
    float x[N];
    float y[N];
    read<N>(gate_up, row * 2 * width + column, x);
    read<N>(gate_up, row * 2 * width + width + column, y);
    const float weight = read_one(weights, row);
    for (int e = 0; e < N; ++e) {
      y[e] *= weight * silu(x[e]).value;
    }
    write<N>(a, i * N, y);
  }
};

/// A row: its gradients, and the sum that is its weight's.
template <int N>
struct ExpertSwigluBackwardOp {
  static constexpr const char* name = "expert_swiglu_bwd kernel";
  static constexpr bool sums = true;
  using State = float;
  Numbers gate_up, weights, d_a, d_gate_up, d_weights;
  std::int64_t width = 1;
  bool add = false;

  SPP_HOST_DEVICE State begin(std::int64_t) const { return 0; }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& sum) const {
    float x[N];
    float y[N];
    float d[N];
    const std::int64_t at = row * 2 * width + i * N;
    read<N>(gate_up, at, x);
    read<N>(gate_up, at + width, y);
    read<N>(d_a, row * width + i * N, d);
    const float weight = read_one(weights, row);
    for (int e = 0; e < N; ++e) {
      const Activation s = silu(x[e]);
      sum += d[e] * s.value * y[e];
      x[e] = weight * d[e] * y[e] * s.slope;
      y[e] = weight * d[e] * s.value;
    }
    write<N>(d_gate_up, at, x);
    write<N>(d_gate_up, at + width, y);
  }
  SPP_HOST_DEVICE void end(std::int64_t row, const State& sum) const {
    write_one(d_weights, row, sum + (add ? read_one(d_weights, row) : 0));
  }
};

}  // namespace spp::runtime::cuda
