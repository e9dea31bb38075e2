// The kernels of a layer beside its attention as ops (launch.cuh). Same meaning as
// runtime/kernels/layer.hpp, computed in fp32; N elements at a time (numbers.cuh).
#pragma once

#include "runtime/device/cuda/elementwise_ops.cuh"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/kernels/activations.hpp"

#include <cmath>
#include <cstdint>

namespace spp::runtime::cuda {

/// A matrix, stored or transposed: the steps from one row and one column of it to the next.
struct Steps {
  std::int64_t row = 1, column = 1;
};

/// Op i: an element of c [rows, columns].
struct GemmOp {
  static constexpr const char* name = "gemm kernel";
  Numbers a, b, c;
  Steps a_steps, b_steps;
  std::int64_t columns = 1, depth = 0;
  bool add = false;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = divided(i, columns);
    const std::int64_t column = i - row * columns;
    float sum = 0;
    for (std::int64_t l = 0; l < depth; ++l) {
      sum += read_one(a, row * a_steps.row + l * a_steps.column) *
             read_one(b, l * b_steps.row + column * b_steps.column);
    }
    write_one(c, i, sum + (add ? read_one(c, i) : 0));
  }
};

/// By which a bias is multiplied, row by row; of none: 1.
struct BiasWeights {
  Numbers numbers;
  bool there = false;

  SPP_HOST_DEVICE float at(std::int64_t row) const { return there ? read_one(numbers, row) : 1; }
};

/// Op i: an element of y [rows, columns].
struct AddBiasOp {
  static constexpr const char* name = "add_bias kernel";
  Numbers y, bias;
  BiasWeights weights;
  std::int64_t columns = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = divided(i, columns);
    write_one(y, i, read_one(y, i) + weights.at(row) * read_one(bias, i - row * columns));
  }
};

/// Op i: a column of d_y [rows, columns], added up in order.
struct BiasGradientOp {
  static constexpr const char* name = "bias_gradient kernel";
  Numbers d_y, d_bias;
  BiasWeights weights;
  std::int64_t rows = 0, columns = 1;
  bool add = false;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float sum = add ? read_one(d_bias, i) : 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      sum += weights.at(row) * read_one(d_y, row * columns + i);
    }
    write_one(d_bias, i, sum);
  }
};

/// A row of d_y [rows, columns]: its product with the bias.
template <int N>
struct BiasWeightsOp {
  static constexpr const char* name = "bias_weights_gradient kernel";
  static constexpr bool sums = true;
  using State = float;
  Numbers d_y, bias, d_weights;
  std::int64_t columns = 1;

  SPP_HOST_DEVICE State begin(std::int64_t) const { return 0; }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, State& sum) const {
    float d[N];
    float b[N];
    read<N>(d_y, row * columns + i * N, d);
    read<N>(bias, i * N, b);
    for (int e = 0; e < N; ++e) {
      sum += d[e] * b[e];
    }
  }
  SPP_HOST_DEVICE void end(std::int64_t row, const State& sum) const {
    write_one(d_weights, row, sum);
  }
};

/// What a norm keeps of each row, as stored: [mean,] r.
template <bool Centred>
struct NormStatistics {
  Numbers numbers;

  SPP_HOST_DEVICE float mean(std::int64_t row) const {
    return Centred ? read_one(numbers, 2 * row) : 0;
  }
  SPP_HOST_DEVICE float r(std::int64_t row) const {
    return read_one(numbers, Centred ? 2 * row + 1 : row);
  }
  SPP_HOST_DEVICE void write(std::int64_t row, float mean, float r) const {
    if (Centred) {
      write_one(numbers, 2 * row, mean);
    }
    write_one(numbers, Centred ? 2 * row + 1 : row, r);
  }
};

template <int N, bool Centred>
struct NormOp {
  static constexpr const char* name = "norm kernel";
  using State = RowSums<Centred ? 2 : 1, 1>;  // of x, of squares about the mean
  Numbers x, weight, y;
  NormStatistics<Centred> statistics;
  std::int64_t columns = 1;
  float epsilon = 0;

  SPP_HOST_DEVICE float mean(const State& state) const {
    return Centred ? state.of[0][0] / static_cast<float>(columns) : 0;
  }
  SPP_HOST_DEVICE float r(const State& state) const {
    return 1 / std::sqrt(state.of[State::passes - 1][0] / static_cast<float>(columns) + epsilon);
  }
  SPP_HOST_DEVICE void add(int pass, std::int64_t row, std::int64_t i, State& state) const {
    float values[N];
    read<N>(x, row * columns + i * N, values);
    const bool of_squares = pass == State::passes - 1;
    const float middle = of_squares ? mean(state) : 0;
    for (int e = 0; e < N; ++e) {
      const float apart = values[e] - middle;
      state.of[pass][0] += of_squares ? apart * apart : apart;
    }
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, const State& state) const {
    float values[N];
    float gain[N];
    float bias[N] = {};
    read<N>(x, row * columns + i * N, values);
    read<N>(weight, i * N, gain);
    if (Centred) {
      read<N>(weight, columns + i * N, bias);
    }
    for (int e = 0; e < N; ++e) {
      values[e] = (values[e] - mean(state)) * r(state) * gain[e] + bias[e];
    }
    write<N>(y, row * columns + i * N, values);
  }
  SPP_HOST_DEVICE void end(std::int64_t row, const State& state) const {
    statistics.write(row, mean(state), r(state));
  }
};

template <int N, bool Centred>
struct NormBackwardOp {
  static constexpr const char* name = "norm_bwd kernel";
  using State = RowSums<1, 2>;  // of g z and g, as layer.hpp has them
  Numbers x, weight, d_y, d_x;
  NormStatistics<Centred> statistics;
  std::int64_t columns = 1;

  SPP_HOST_DEVICE void terms(std::int64_t row, std::int64_t i, float* z, float* g) const {
    float gain[N];
    read<N>(x, row * columns + i * N, z);
    read<N>(d_y, row * columns + i * N, g);
    read<N>(weight, i * N, gain);
    const float mean = statistics.mean(row);
    const float r = statistics.r(row);
    for (int e = 0; e < N; ++e) {
      z[e] = (z[e] - mean) * r;
      g[e] *= gain[e];
    }
  }
  SPP_HOST_DEVICE void add(int, std::int64_t row, std::int64_t i, State& state) const {
    float z[N];
    float g[N];
    terms(row, i, z, g);
    for (int e = 0; e < N; ++e) {
      state.of[0][0] += g[e] * z[e];
      state.of[0][1] += g[e];
    }
  }
  SPP_HOST_DEVICE void piece(std::int64_t row, std::int64_t i, const State& state) const {
    float z[N];
    float g[N];
    terms(row, i, z, g);
    const float of_g_z = state.of[0][0] / static_cast<float>(columns);
    const float of_g = Centred ? state.of[0][1] / static_cast<float>(columns) : 0;
    const float r = statistics.r(row);
    for (int e = 0; e < N; ++e) {
      g[e] = r * (g[e] - of_g - z[e] * of_g_z);
    }
    write<N>(d_x, row * columns + i * N, g);
  }
  SPP_HOST_DEVICE void end(std::int64_t, const State&) const {}
};

/// Op i: a column of a slice of `slice` rows: its sum of d_y z, and of d_y with a mean. `sums`
/// [slices, 1 or 2, columns] in fp32; added up elsewhere in an order that is always the same.
template <bool Centred>
struct NormWeightOp {
  static constexpr const char* name = "norm_bwd kernel, weight";
  Numbers x, d_y;
  NormStatistics<Centred> statistics;
  float* sums = nullptr;
  std::int64_t rows = 0, columns = 1, slice = 1;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t number = divided(i, columns);
    const std::int64_t column = i - number * columns;
    const std::int64_t end = (number + 1) * slice < rows ? (number + 1) * slice : rows;
    float gain = 0;
    float bias = 0;
    for (std::int64_t row = number * slice; row < end; ++row) {
      const float d = read_one(d_y, row * columns + column);
      const float apart = read_one(x, row * columns + column) - statistics.mean(row);
      gain += d * apart * statistics.r(row);
      bias += d;
    }
    float* to = sums + number * columns * (Centred ? 2 : 1) + column;
    *to = gain;
    if (Centred) {
      to[columns] = bias;
    }
  }
};

template <int N>
struct SwigluOp {
  static constexpr const char* name = "swiglu kernel";
  Numbers gate, up, a;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float x[N];
    float y[N];
    read<N>(gate, i * N, x);
    read<N>(up, i * N, y);
    for (int e = 0; e < N; ++e) {
      y[e] *= silu(x[e]).value;
    }
    write<N>(a, i * N, y);
  }
};

template <int N>
struct SwigluBackwardOp {
  static constexpr const char* name = "swiglu_bwd kernel";
  Numbers gate, up, d_a, d_gate, d_up;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float x[N];
    float y[N];
    float d[N];
    read<N>(gate, i * N, x);
    read<N>(up, i * N, y);
    read<N>(d_a, i * N, d);
    for (int e = 0; e < N; ++e) {
      const Activation s = silu(x[e]);
      x[e] = d[e] * y[e] * s.slope;
      y[e] = d[e] * s.value;
    }
    write<N>(d_gate, i * N, x);
    write<N>(d_up, i * N, y);
  }
};

template <int N>
struct GeluOp {
  static constexpr const char* name = "gelu kernel";
  Numbers h, a;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float x[N];
    read<N>(h, i * N, x);
    for (int e = 0; e < N; ++e) {
      x[e] = runtime::gelu(x[e]).value;
    }
    write<N>(a, i * N, x);
  }
};

template <int N>
struct GeluBackwardOp {
  static constexpr const char* name = "gelu_bwd kernel";
  Numbers h, d_a, d_h;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float x[N];
    float d[N];
    read<N>(h, i * N, x);
    read<N>(d_a, i * N, d);
    for (int e = 0; e < N; ++e) {
      d[e] *= runtime::gelu(x[e]).slope;
    }
    write<N>(d_h, i * N, d);
  }
};

template <int N>
struct AddOp {
  static constexpr const char* name = "add kernel";
  Numbers x, y, z;

  SPP_HOST_DEVICE void operator()(std::int64_t i) const {
    float a[N];
    float b[N];
    read<N>(x, i * N, a);
    read<N>(y, i * N, b);
    for (int e = 0; e < N; ++e) {
      a[e] += b[e];
    }
    write<N>(z, i * N, a);
  }
};

}  // namespace spp::runtime::cuda
