// Rows go through floats, a row at a time: one loop for each operation, whatever the types.
#include "runtime/kernels/layer.hpp"

#include "base/error.hpp"
#include "runtime/kernels/activations.hpp"
#include "runtime/kernels/convert.hpp"
#include "runtime/kernels/every_cpu.hpp"
#include "runtime/kernels/head_moves.hpp"
#include "runtime/kernels/rotation.hpp"
#include "runtime/kernels/row_checks.hpp"
#include "runtime/kernels/row_floats.hpp"

#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

namespace spp::runtime {
namespace {

/// All of a column.
std::vector<float> numbers_of(const Rows& column) {
  std::vector<float> all = floats(column.elements());
  to_floats(column.dtype, column.data, all);
  return all;
}

SPP_EVERY_CPU float sum_of(const float* x, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    sum += x[i];
  }
  return sum;
}

SPP_EVERY_CPU float squares(const float* x, float mean, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    sum += (x[i] - mean) * (x[i] - mean);
  }
  return sum;
}

/// Of a row: z = (x - mean) r.
struct Statistics {
  float mean = 0, r = 1;
};

/// x <- z gain + bias.
SPP_EVERY_CPU void normalise(float* x, const Statistics& s, const float* gain, const float* bias,
                             std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = (x[i] - s.mean) * s.r * gain[i] + bias[i];
  }
}

/// Sums over a row.
struct GradientSums {
  float g = 0, g_z = 0;
};

/// x <- z; d_gain += d_y z, d_bias += d_y; sums of g = gain d_y and g z.
SPP_EVERY_CPU GradientSums gradient_sums(float* x, const float* d_y, const Statistics& s,
                                         const float* gain, float* d_gain, float* d_bias,
                                         std::int64_t n) {
  float sum = 0;
  float product = 0;
#pragma omp simd reduction(+ : sum, product)
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = (x[i] - s.mean) * s.r;
    d_gain[i] += d_y[i] * x[i];
    d_bias[i] += d_y[i];
    sum += gain[i] * d_y[i];
    product += gain[i] * d_y[i] * x[i];
  }
  return {.g = sum, .g_z = product};
}

/// z <- r (g - mean(g) - z mean(g z)).
SPP_EVERY_CPU void to_gradient(float* z, const float* d_y, const GradientSums& means, float r,
                               const float* gain, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    z[i] = r * (gain[i] * d_y[i] - means.g - z[i] * means.g_z);
  }
}

Statistics statistics_of(const float* x, std::int64_t n, float epsilon, Centring centring) {
  const auto count = static_cast<float>(n);
  const float mean = centring == Centring::mean ? sum_of(x, n) / count : 0;
  return {.mean = mean, .r = 1 / std::sqrt(squares(x, mean, n) / count + epsilon)};
}

/// As stored: [mean,] r.
Statistics read_statistics(const Rows& rows, std::int64_t row, Centring centring) {
  const auto at = [&](std::int64_t i) { return load<float>(rows.data, i); };
  return centring == Centring::mean ? Statistics{.mean = at(2 * row), .r = at(2 * row + 1)}
                                    : Statistics{.mean = 0, .r = at(row)};
}
void write_statistics(const Statistics& s, const Rows& rows, std::int64_t row, Centring centring) {
  if (centring == Centring::mean) {
    write(std::array{s.mean, s.r}, rows, row, 0);
  } else {
    write(std::array{s.r}, rows, row, 0);
  }
}

void norm(const NormArgs& args, float epsilon, Centring centring) {
  ensure_norm(args, centring);
  const std::int64_t n = matrix_columns(args.x);
  std::vector<float> x = floats(n);
  std::vector<float> gain = floats(n);
  std::vector<float> bias = floats(n);
  read(args.weight, 0, 0, gain);
  if (centring == Centring::mean) {
    read(args.weight, 1, 0, bias);
  }
  for (std::int64_t row = 0; row < matrix_rows(args.x); ++row) {
    read(args.x, row, 0, x);
    const Statistics s = statistics_of(x.data(), n, epsilon, centring);
    normalise(x.data(), s, gain.data(), bias.data(), n);
    write(x, args.y, row, 0);
    write_statistics(s, args.statistics, row, centring);
  }
}

void norm_backward(const NormBackwardArgs& args, Centring centring) {
  ensure_norm_backward(args, centring);
  const std::int64_t n = matrix_columns(args.x);
  std::vector<float> x = floats(n);
  std::vector<float> d_y = floats(n);
  std::vector<float> gain = floats(n);
  std::vector<float> d_gain = floats(n);
  std::vector<float> d_bias = floats(n);
  read(args.weight, 0, 0, gain);
  for (std::int64_t row = 0; row < matrix_rows(args.x); ++row) {
    read(args.x, row, 0, x);
    read(args.d_y, row, 0, d_y);
    const Statistics s = read_statistics(args.statistics, row, centring);
    const GradientSums sums =
        gradient_sums(x.data(), d_y.data(), s, gain.data(), d_gain.data(), d_bias.data(), n);
    const auto count = static_cast<float>(n);
    const GradientSums means{.g = centring == Centring::mean ? sums.g / count : 0,
                             .g_z = sums.g_z / count};
    to_gradient(x.data(), d_y.data(), means, s.r, gain.data(), n);
    write(x, args.d_x, row, 0);
  }
  write(d_gain, args.d_weight, 0, 0);
  if (centring == Centring::mean) {
    write(d_bias, args.d_weight, 1, 0);
  }
}

/// Norms and rotations of heads, one after the other.
class HeadPass {
 public:
  HeadPass(const HeadMove& heads, double theta, float epsilon)
      : heads_(heads),
        epsilon_(epsilon),
        head_(floats(heads.part.width)),
        x_(head_),
        gain_(head_),
        d_gain_(head_),
        no_bias_(head_),
        d_bias_(head_) {
    if (heads.sign != 0) {
      rotation_.emplace(heads.part.width, theta, heads.sign);
    }
    if (heads.norms()) {
      read(heads.gain, 0, 0, gain_);
    }
  }

  void run(const TokenSet& positions) {
    std::int64_t row = 0;
    for (const TokenRange& range : positions.ranges()) {
      for (std::int64_t i = 0; i < range.count; ++i) {
        if (rotation_) {
          rotation_->turn_to(range.at(i));
        }
        for (std::int64_t b = 0; b < heads_.part.batch; ++b, ++row) {
          for (int h = 0; h < heads_.part.heads; ++h) {
            bring(row, h);
          }
        }
      }
    }
    if (heads_.d_gain.count > 0) {
      write(d_gain_, heads_.d_gain, 0, 0);
    }
  }

 private:
  [[nodiscard]] std::byte* place(const Box& box, std::int64_t row, int h) const {
    return box.data + (row * box.row_heads + h) * heads_.part.width * size_of(box.dtype);
  }
  /// Forward normed, then turned; back turned, then through the norm.
  void bring(std::int64_t row, int h) {
    const std::int64_t n = heads_.part.width;
    const bool back = heads_.d_gain.count > 0;
    to_floats(heads_.from.dtype, place(heads_.from, row, h), head_);
    if (heads_.norms() && !back) {
      const Statistics s = statistics_of(head_.data(), n, epsilon_, Centring::none);
      normalise(head_.data(), s, gain_.data(), no_bias_.data(), n);
    }
    if (rotation_) {
      rotation_->apply(head_);
    }
    if (back) {
      to_floats(heads_.normed.dtype, place(heads_.normed, row, h), x_);
      const Statistics s = statistics_of(x_.data(), n, epsilon_, Centring::none);
      const GradientSums sums = gradient_sums(x_.data(), head_.data(), s, gain_.data(),
                                              d_gain_.data(), d_bias_.data(), n);
      to_gradient(x_.data(), head_.data(), {.g_z = sums.g_z / static_cast<float>(n)}, s.r,
                  gain_.data(), n);
    }
    from_floats(heads_.to.dtype, back ? x_ : head_, place(heads_.to, row, h));
  }

  const HeadMove& heads_;
  float epsilon_;
  std::optional<Rotation> rotation_;
  std::vector<float> head_, x_, gain_, d_gain_, no_bias_, d_bias_;
};

void bring(const std::array<HeadMove, 3>& moves, const SplitHeadsArgs& args) {
  for (const HeadMove& heads : moves) {
    const auto& part = heads.part;
    if (heads.sign != 0 || heads.norms()) {
      HeadPass(heads, args.theta, args.epsilon).run(args.positions);
    } else {
      move(heads.from, heads.to, part.count, part.batch, part.heads, part.width, false);
    }
  }
}

/// Of a row, by which a bias is multiplied.
float weight_of(const Rows& weights, std::int64_t row) {
  float weight = 1;
  if (weights.count > 0) {
    read(weights, row, 0, std::span(&weight, 1));
  }
  return weight;
}

}  // namespace

GemmShape gemm_shape(const GemmArgs& args) {
  const auto& [a, b, c, kind, add] = args;
  const bool a_transposed = kind == GemmKind::weight_gradient;
  const bool b_transposed = kind == GemmKind::input_gradient;
  const GemmShape shape{.m = matrix_rows(c),
                        .n = matrix_columns(c),
                        .k = a_transposed ? matrix_rows(a) : matrix_columns(a)};
  ensure((a_transposed ? matrix_columns(a) : matrix_rows(a)) == shape.m &&
             (b_transposed ? matrix_rows(b) : matrix_columns(b)) == shape.n &&
             (b_transposed ? matrix_columns(b) : matrix_rows(b)) == shape.k,
         "a GEMM of matrices that do not fit");
  return shape;
}

void add_bias(const BiasArgs& args) {
  ensure_bias(args.y, args.bias, args.weights);
  const std::vector<float> bias = numbers_of(args.bias);
  std::vector<float> row = floats(matrix_columns(args.y));
  for (std::int64_t i = 0; i < matrix_rows(args.y); ++i) {
    read(args.y, i, 0, row);
    const float weight = weight_of(args.weights, i);
    for (std::size_t e = 0; e < row.size(); ++e) {
      row[e] += weight * bias[e];
    }
    write(row, args.y, i, 0);
  }
}

void bias_gradient(const BiasGradientArgs& args) {
  ensure_bias(args.d_y, args.d_bias, args.weights);
  std::vector<float> row = floats(matrix_columns(args.d_y));
  std::vector<float> sum = args.add ? numbers_of(args.d_bias) : row;
  for (std::int64_t i = 0; i < matrix_rows(args.d_y); ++i) {
    read(args.d_y, i, 0, row);
    const float weight = weight_of(args.weights, i);
    for (std::size_t e = 0; e < row.size(); ++e) {
      sum[e] += weight * row[e];
    }
  }
  from_floats(args.d_bias.dtype, sum, args.d_bias.data);
}

void bias_weights_gradient(const BiasWeightsArgs& args) {
  ensure_bias(args.d_y, args.bias, args.d_weights);
  const std::vector<float> bias = numbers_of(args.bias);
  std::vector<float> row = floats(matrix_columns(args.d_y));
  for (std::int64_t i = 0; i < matrix_rows(args.d_y); ++i) {
    read(args.d_y, i, 0, row);
    float sum = 0;
    for (std::size_t e = 0; e < row.size(); ++e) {
      sum += row[e] * bias[e];
    }
    write(std::span<const float>(&sum, 1), args.d_weights, i, 0);
  }
}

void rms_norm(const NormArgs& args, float epsilon) { norm(args, epsilon, Centring::none); }
void layer_norm(const NormArgs& args, float epsilon) { norm(args, epsilon, Centring::mean); }
void rms_norm_backward(const NormBackwardArgs& args) { norm_backward(args, Centring::none); }
void layer_norm_backward(const NormBackwardArgs& args) { norm_backward(args, Centring::mean); }

void split_heads(const SplitHeadsArgs& args) { bring(moves_to_split(args), args); }
void join_heads(const JoinHeadsArgs& args) { bring(moves_to_join(args), args.heads); }

void swiglu(const Rows& gate, const Rows& up, const Rows& a) {
  ensure_alike(gate, up);
  ensure_alike(gate, a);
  std::vector<float> x = floats(matrix_columns(a));
  std::vector<float> y = x;
  for (std::int64_t row = 0; row < matrix_rows(a); ++row) {
    read(gate, row, 0, x);
    read(up, row, 0, y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i] *= silu(x[i]).value;
    }
    write(y, a, row, 0);
  }
}

void swiglu_backward(const SwigluBackwardArgs& args) {
  for (const Rows* other : {&args.up, &args.d_a, &args.d_gate, &args.d_up}) {
    ensure_alike(args.gate, *other);
  }
  std::vector<float> gate = floats(matrix_columns(args.gate));
  std::vector<float> up = gate;
  std::vector<float> d = gate;
  for (std::int64_t row = 0; row < matrix_rows(args.gate); ++row) {
    read(args.gate, row, 0, gate);
    read(args.up, row, 0, up);
    read(args.d_a, row, 0, d);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const Activation s = silu(gate[i]);
      gate[i] = d[i] * up[i] * s.slope;
      up[i] = d[i] * s.value;
    }
    write(gate, args.d_gate, row, 0);
    write(up, args.d_up, row, 0);
  }
}

void gelu(const Rows& h, const Rows& a) {
  ensure_alike(h, a);
  std::vector<float> x = floats(matrix_columns(h));
  for (std::int64_t row = 0; row < matrix_rows(h); ++row) {
    read(h, row, 0, x);
    for (float& number : x) {
      number = gelu(number).value;
    }
    write(x, a, row, 0);
  }
}

void gelu_backward(const Rows& h, const Rows& d_a, const Rows& d_h) {
  ensure_alike(h, d_a);
  ensure_alike(h, d_h);
  std::vector<float> x = floats(matrix_columns(h));
  std::vector<float> d = x;
  for (std::int64_t row = 0; row < matrix_rows(h); ++row) {
    read(h, row, 0, x);
    read(d_a, row, 0, d);
    for (std::size_t i = 0; i < x.size(); ++i) {
      d[i] *= gelu(x[i]).slope;
    }
    write(d, d_h, row, 0);
  }
}

void add(const Rows& x, const Rows& y, const Rows& z) {
  ensure_alike(x, y);
  ensure_alike(x, z);
  std::vector<float> sum = floats(matrix_columns(x));
  std::vector<float> other = sum;
  for (std::int64_t row = 0; row < matrix_rows(x); ++row) {
    read(x, row, 0, sum);
    read(y, row, 0, other);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += other[i];
    }
    write(sum, z, row, 0);
  }
}

}  // namespace spp::runtime
