// The kernels of a layer beside its GEMMs (gemm_test.cpp) and attention against their definitions
// in fp64, written once more here; gradients against central differences of those. All inputs are
// of size 1 and are read as they are rounded. A kernel sums in fp32 and rounds its result once: an
// element may be off by one rounding of the result's type, and by `depth` roundings of fp32 of what
// it is a sum of.
#include "base/error.hpp"
#include "runtime/kernels/layer.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/runtime/tensors.hpp"

#include <functional>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

using Values = std::vector<double>;

double& at(Values& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
double at(const Values& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; }

void check_near(HostTensor& got, const Values& expected, double depth) {
  const double limit =
      (unit_of(got.rows().dtype) + depth * unit_of(DType::fp32)) * magnitude(expected);
  CHECK(distance(got.values(), expected) <= limit);
}

/// d of sum(weights * f(x)) by x. The step and fp64 leave about nine digits.
Values gradient(const std::function<Values(const Values&)>& f, Values x, const Values& weights) {
  const auto loss = [&] {
    const Values y = f(x);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += weights[i] * y[i];
    }
    return sum;
  };
  constexpr double step = 0x1p-16;
  Values result;
  for (double& number : x) {
    const double before = number;
    number = before + step;
    const double above = loss();
    number = before - step;
    result.push_back((above - loss()) / (2 * step));
    number = before;
  }
  return result;
}

// Norms.

constexpr float epsilon = 1e-3F;  // large enough to be seen

enum class Norm : std::uint8_t { rms, layer };
int weight_rows(Norm norm) { return norm == Norm::layer ? 2 : 1; }

struct NormResult {
  Values y, statistics;
};

NormResult norm_of(Norm norm, const Values& x, const Values& weight, std::int64_t columns) {
  NormResult result{.y = x, .statistics = {}};
  for (std::int64_t row = 0; row < std::ssize(x) / columns; ++row) {
    double mean = 0;
    for (std::int64_t i = 0; i < columns && norm == Norm::layer; ++i) {
      mean += at(x, row * columns + i) / static_cast<double>(columns);
    }
    double square = 0;
    for (std::int64_t i = 0; i < columns; ++i) {
      square += std::pow(at(x, row * columns + i) - mean, 2) / static_cast<double>(columns);
    }
    const double r = 1 / std::sqrt(square + static_cast<double>(epsilon));
    for (std::int64_t i = 0; i < columns; ++i) {
      at(result.y, row * columns + i) = (at(x, row * columns + i) - mean) * r * at(weight, i) +
                                        (norm == Norm::layer ? at(weight, columns + i) : 0);
    }
    if (norm == Norm::layer) {
      result.statistics.push_back(mean);
    }
    result.statistics.push_back(r);
  }
  return result;
}

struct NormTypes {
  DType x, weight, d_weight;
};

void check_norm(Norm norm, const Shape& shape, const NormTypes& types) {
  INFO((norm == Norm::rms ? "rms" : "layer")
       << ", " << shape.count << " rows, " << to_string(types.x));
  std::mt19937 random(7);
  const int rows = weight_rows(norm);
  const std::int64_t columns = std::int64_t{shape.heads} * shape.width;
  HostTensor x = random_tensor(types.x, shape, random);
  HostTensor d_y = random_tensor(types.x, shape, random);
  HostTensor weight = random_tensor(types.weight, {rows, 1, shape.heads, shape.width}, random);
  HostTensor y(types.x, shape);
  HostTensor statistics(DType::fp32, {shape.count, shape.batch, 1, rows});
  const NormArgs args{
      .x = x.rows(), .weight = weight.rows(), .y = y.rows(), .statistics = statistics.rows()};
  (norm == Norm::rms ? rms_norm : layer_norm)(args, epsilon);
  const NormResult truth = norm_of(norm, x.values(), weight.values(), columns);
  const double depth = static_cast<double>(columns) + 8;
  check_near(y, truth.y, depth);
  check_near(statistics, truth.statistics, depth);

  HostTensor d_x(types.x, shape);
  HostTensor d_weight = random_tensor(types.d_weight, {rows, 1, shape.heads, shape.width}, random);
  const NormBackwardArgs backward{.x = x.rows(),
                                  .weight = weight.rows(),
                                  .statistics = statistics.rows(),
                                  .d_y = d_y.rows(),
                                  .d_x = d_x.rows(),
                                  .d_weight = d_weight.rows()};
  (norm == Norm::rms ? rms_norm_backward : layer_norm_backward)(backward);
  const auto y_of_x = [&](const Values& v) { return norm_of(norm, v, weight.values(), columns).y; };
  const auto y_of_weight = [&](const Values& v) { return norm_of(norm, x.values(), v, columns).y; };
  // Terms of a gradient are a few times as large as it.
  check_near(d_x, gradient(y_of_x, x.values(), d_y.values()), 4 * depth);
  check_near(d_weight, gradient(y_of_weight, weight.values(), d_y.values()),
             4 * (depth + static_cast<double>(shape.count * shape.batch)));
}

}  // namespace

TEST_CASE("norms and their gradients are those of their definitions") {
  const Norm norm = GENERATE(Norm::rms, Norm::layer);
  const auto [x, weight, d_weight] =
      GENERATE(table<DType, DType, DType>({{DType::fp32, DType::fp32, DType::fp32},
                                           {DType::bf16, DType::bf16, DType::fp32},
                                           {DType::bf16, DType::fp32, DType::bf16},
                                           {DType::fp16, DType::fp16, DType::fp16}}));
  check_norm(norm, {3, 2, 3, 7}, {x, weight, d_weight});
  check_norm(norm, {5, 1, 1, 33}, {x, weight, d_weight});
}

TEST_CASE("a norm of no rows has a weight gradient of zero") {
  const Norm norm = GENERATE(Norm::rms, Norm::layer);
  check_norm(norm, {0, 2, 1, 9}, {DType::bf16, DType::bf16, DType::fp32});
}

TEST_CASE("a norm takes the mean off without losing what is left") {
  // 1000 and 1001 alternate: sums of squares alone would lose the variance in fp32.
  HostTensor x(DType::fp32, {1, 1, 1, 256});
  HostTensor weight(DType::fp32, {2, 1, 1, 256});
  HostTensor y(DType::fp32, {1, 1, 1, 256});
  HostTensor statistics(DType::fp32, {1, 1, 1, 2});
  for (std::int64_t i = 0; i < 256; ++i) {
    x.set(i, 1000 + static_cast<float>(i % 2));
    weight.set(i, 1);
  }
  layer_norm(
      {.x = x.rows(), .weight = weight.rows(), .y = y.rows(), .statistics = statistics.rows()}, 0);
  CHECK(statistics.values() == Values{1000.5, 2});
  CHECK(y.at(0) == -1);
  CHECK(y.at(1) == 1);
}

TEST_CASE("a norm may write its gradient over that of its output") {
  std::mt19937 random(8);
  const Shape shape{4, 1, 2, 9};
  HostTensor x = random_tensor(DType::bf16, shape, random);
  HostTensor d_y = random_tensor(DType::bf16, shape, random);
  HostTensor weight = random_tensor(DType::bf16, {1, 1, 2, 9}, random);
  HostTensor d_x(DType::bf16, shape);
  HostTensor d_weight(DType::fp32, {1, 1, 2, 9});
  HostTensor statistics(DType::fp32, {4, 1, 1, 1});
  rms_norm(
      {.x = x.rows(), .weight = weight.rows(), .y = d_x.rows(), .statistics = statistics.rows()},
      epsilon);
  NormBackwardArgs args{.x = x.rows(),
                        .weight = weight.rows(),
                        .statistics = statistics.rows(),
                        .d_y = d_y.rows(),
                        .d_x = d_x.rows(),
                        .d_weight = d_weight.rows()};
  rms_norm_backward(args);
  const Values apart = d_weight.values();
  args.d_x = args.d_y;
  rms_norm_backward(args);
  CHECK(d_y.values() == d_x.values());
  CHECK(d_weight.values() == apart);
}

// Heads.

namespace {

constexpr int q_heads = 3;
constexpr int kv_heads = 2;
constexpr int dim = 6;

struct Heads {
  Values q, k, v;
};

constexpr float head_epsilon = 1.0F / 128;

/// A head by its gain.
void norm_head(Values& head, const double* gain) {
  double square = 0;
  for (const double x : head) {
    square += x * x / dim;
  }
  for (int i = 0; i < dim; ++i) {
    at(head, i) *= gain[i] / std::sqrt(square + head_epsilon);
  }
}

/// `theta` 0: no rotation. `gains` [2, dim], of q and k: heads are normed before.
Heads heads_of(const Values& qkv, const TokenSet& positions, std::int64_t batch, double theta,
               const Values& gains = {}) {
  Heads result;
  constexpr int all = q_heads + 2 * kv_heads;
  std::int64_t row = 0;
  for (const TokenRange& range : positions.ranges()) {
    for (std::int64_t t = 0; t < range.count * batch; ++t, ++row) {
      const auto position = static_cast<double>(range.at(t / batch));
      for (int h = 0; h < all; ++h) {
        Values head(qkv.begin() + (row * all + h) * dim, qkv.begin() + (row * all + h + 1) * dim);
        if (!gains.empty() && h < q_heads + kv_heads) {
          norm_head(head, &gains[h < q_heads ? 0 : dim]);
        }
        const bool turned = theta > 0 && h < q_heads + kv_heads;
        for (int i = 0; i < dim / 2 && turned; ++i) {
          const double angle = position * std::pow(theta, -2.0 * i / dim);
          const double x = at(head, i);
          const double y = at(head, i + dim / 2);
          at(head, i) = x * std::cos(angle) - y * std::sin(angle);
          at(head, i + dim / 2) = y * std::cos(angle) + x * std::sin(angle);
        }
        Values& to = h < q_heads ? result.q : h < q_heads + kv_heads ? result.k : result.v;
        to.insert(to.end(), head.begin(), head.end());
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("heads are split and turned by their positions, and their gradients joined") {
  const auto [packed, apart] = GENERATE(table<DType, DType>(
      {{DType::fp32, DType::fp32}, {DType::bf16, DType::bf16}, {DType::fp16, DType::fp32}}));
  const double theta = GENERATE(0.0, 10000.0, 500000.0);
  // A zigzag, its second part far out: an angle in fp32 would be off by 0.01 there.
  const TokenSet positions =
      GENERATE(TokenSet({.begin = 3, .count = 2}, {.begin = 1000001, .count = 3}), TokenSet(),
               TokenSet({.begin = 1, .count = 4, .stride = 3}));
  const std::int64_t n = positions.count();
  constexpr std::int64_t batch = 2;
  std::mt19937 random(9);
  HostTensor qkv = random_tensor(packed, {n, batch, 1, (q_heads + 2 * kv_heads) * dim}, random);
  HostTensor q(apart, {n, batch, q_heads, dim});
  HostTensor k(apart, {n, batch, kv_heads, dim});
  HostTensor v(apart, {n, batch, kv_heads, dim});
  SplitHeadsArgs args{.qkv = qkv.rows(),
                      .q = q.rows(),
                      .k = k.rows(),
                      .v = v.rows(),
                      .positions = positions,
                      .theta = theta};
  split_heads(args);
  const Heads truth = heads_of(qkv.values(), positions, batch, theta);
  check_near(q, truth.q, 8);
  check_near(k, truth.k, 8);
  check_near(v, truth.v, 0);

  for (HostTensor* part : {&q, &k, &v}) {
    part->randomize(random);
  }
  HostTensor d_qkv(packed, {n, batch, 1, (q_heads + 2 * kv_heads) * dim});
  args.qkv = d_qkv.rows();
  join_heads({.heads = args});
  Values weights = q.values();
  for (HostTensor* part : {&k, &v}) {
    const Values more = part->values();
    weights.insert(weights.end(), more.begin(), more.end());
  }
  const auto all_heads = [&](const Values& x) {
    Heads heads = heads_of(x, positions, batch, theta);
    heads.q.insert(heads.q.end(), heads.k.begin(), heads.k.end());
    heads.q.insert(heads.q.end(), heads.v.begin(), heads.v.end());
    return heads.q;
  };
  check_near(d_qkv, gradient(all_heads, qkv.values(), weights), 16);
}

TEST_CASE("heads are normed before they are turned, and gradients go back through both") {
  const DType type = GENERATE(DType::fp32, DType::bf16);
  const double theta = GENERATE(0.0, 10000.0);
  const TokenSet positions({.begin = 3, .count = 2}, {.begin = 101, .count = 3});
  const std::int64_t n = positions.count();
  constexpr std::int64_t batch = 2;
  std::mt19937 random(10);
  HostTensor qkv = random_tensor(type, {n, batch, 1, (q_heads + 2 * kv_heads) * dim}, random);
  HostTensor gain = random_tensor(type, {2, 1, 1, dim}, random);
  HostTensor q(type, {n, batch, q_heads, dim});
  HostTensor k(type, {n, batch, kv_heads, dim});
  HostTensor v(type, {n, batch, kv_heads, dim});
  SplitHeadsArgs args{.qkv = qkv.rows(),
                      .q = q.rows(),
                      .k = k.rows(),
                      .v = v.rows(),
                      .positions = positions,
                      .theta = theta,
                      .gain = gain.rows(),
                      .epsilon = head_epsilon};
  split_heads(args);
  const Values gains = gain.values();
  const Heads truth = heads_of(qkv.values(), positions, batch, theta, gains);
  check_near(q, truth.q, 16);
  check_near(k, truth.k, 16);
  check_near(v, truth.v, 0);

  Values weights;
  for (HostTensor* part : {&q, &k, &v}) {
    part->randomize(random);
    const Values more = part->values();
    weights.insert(weights.end(), more.begin(), more.end());
  }
  HostTensor d_qkv(type, {n, batch, 1, (q_heads + 2 * kv_heads) * dim});
  HostTensor d_gain(DType::fp32, {2, 1, 1, dim});
  args.qkv = d_qkv.rows();
  join_heads({.heads = args, .x = qkv.rows(), .d_gain = d_gain.rows()});
  const auto all_heads = [&](const Values& x, const Values& by) {
    Heads heads = heads_of(x, positions, batch, theta, by);
    heads.q.insert(heads.q.end(), heads.k.begin(), heads.k.end());
    heads.q.insert(heads.q.end(), heads.v.begin(), heads.v.end());
    return heads.q;
  };
  check_near(d_qkv,
             gradient([&](const Values& x) { return all_heads(x, gains); }, qkv.values(), weights),
             64);
  check_near(
      d_gain,
      gradient([&](const Values& by) { return all_heads(qkv.values(), by); }, gains, weights), 64);
}

TEST_CASE("heads of other rows, or an odd number of elements to turn, are refused") {
  HostTensor qkv(DType::fp32, {2, 1, 1, 9});
  HostTensor q(DType::fp32, {2, 1, 1, 3});
  HostTensor k(DType::fp32, {2, 1, 1, 3});
  HostTensor v(DType::fp32, {2, 1, 1, 3});
  SplitHeadsArgs args{.qkv = qkv.rows(),
                      .q = q.rows(),
                      .k = k.rows(),
                      .v = v.rows(),
                      .positions = TokenSet({.begin = 0, .count = 2}),
                      .theta = 10000};
  CHECK_THROWS_AS(split_heads(args), InternalError);
  args.theta = 0;
  CHECK_NOTHROW(split_heads(args));
  args.positions = TokenSet({.begin = 0, .count = 3});
  CHECK_THROWS_AS(join_heads({.heads = args}), InternalError);
  args.positions = TokenSet({.begin = 0, .count = 2});
  HostTensor gain(DType::fp32, {2, 1, 1, 2});
  args.gain = gain.rows();
  CHECK_THROWS_AS(split_heads(args), InternalError);
  HostTensor gains(DType::fp32, {2, 1, 1, 3});
  args.gain = gains.rows();
  CHECK_NOTHROW(split_heads(args));
  CHECK_THROWS_AS(join_heads({.heads = args}), InternalError);  // through norms of what?
}

// Activations.

namespace {

/// Of gates and what they let through, one after the other.
Values swiglu_of(const Values& both) {
  const std::int64_t half = std::ssize(both) / 2;
  Values a;
  for (std::int64_t i = 0; i < half; ++i) {
    const double gate = at(both, i);
    a.push_back(gate / (1 + std::exp(-gate)) * at(both, half + i));
  }
  return a;
}

Values joined(Values first, const Values& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Values gelu_of(const Values& h) {
  Values a;
  for (const double x : h) {
    const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    a.push_back(x * (1 + std::tanh(u)) / 2);
  }
  return a;
}

/// Up to 8, where activations are flat.
void spread(HostTensor& tensor) {
  Values values = tensor.values();
  for (double& x : values) {
    x *= 8;
  }
  tensor.set(values);
}

}  // namespace

TEST_CASE("activations and their gradients are those of their definitions") {
  const auto [of_h, of_a] = GENERATE(table<DType, DType>({{DType::fp32, DType::fp32},
                                                          {DType::bf16, DType::bf16},
                                                          {DType::fp16, DType::fp32},
                                                          {DType::fp32, DType::bf16}}));
  const Shape shape = GENERATE(Shape{3, 2, 2, 13}, Shape{0, 1, 2, 5}, Shape{1, 1, 1, 40});
  std::mt19937 random(10);
  HostTensor gate = random_tensor(of_h, shape, random);
  HostTensor up = random_tensor(of_h, shape, random);
  spread(gate);
  spread(up);
  HostTensor a(of_a, shape);
  HostTensor d_a = random_tensor(of_a, shape, random);
  HostTensor d_gate(of_h, shape);
  HostTensor d_up(of_h, shape);
  swiglu(gate.rows(), up.rows(), a.rows());
  const Values both = joined(gate.values(), up.values());
  check_near(a, swiglu_of(both), 8);
  swiglu_backward({.gate = gate.rows(),
                   .up = up.rows(),
                   .d_a = d_a.rows(),
                   .d_gate = d_gate.rows(),
                   .d_up = d_up.rows()});
  const Values d_both = gradient(swiglu_of, both, d_a.values());
  const auto half = d_both.begin() + std::ssize(d_both) / 2;
  check_near(d_gate, Values(d_both.begin(), half), 32);
  check_near(d_up, Values(half, d_both.end()), 32);

  HostTensor x = random_tensor(of_h, shape, random);
  spread(x);
  HostTensor d_x(of_h, shape);
  gelu(x.rows(), a.rows());
  check_near(a, gelu_of(x.values()), 16);
  gelu_backward(x.rows(), d_a.rows(), d_x.rows());
  // 1 - sigmoid loses up to x u' = 60 roundings before the slope is flat.
  check_near(d_x, gradient(gelu_of, x.values(), d_a.values()), 128);
}

TEST_CASE("an addition may write over either of what it adds") {
  const auto [of_x, of_y] = GENERATE(table<DType, DType>(
      {{DType::fp32, DType::fp32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::fp32}}));
  std::mt19937 random(11);
  const Shape shape{3, 2, 5, 7};
  HostTensor x = random_tensor(of_x, shape, random);
  HostTensor y = random_tensor(of_y, shape, random);
  Values expected = x.values();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] += y.values()[i];
  }
  HostTensor z(DType::fp16, shape);
  add(x.rows(), y.rows(), z.rows());
  check_near(z, expected, 1);
  const Values before = x.values();
  add(x.rows(), y.rows(), x.rows());
  check_near(x, expected, 1);
  x.set(before);
  add(x.rows(), y.rows(), y.rows());
  check_near(y, expected, 1);
}

TEST_CASE("a bias is added to each row, and its gradient is the sum over them") {
  const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  const Shape shape = GENERATE(Shape{5, 2, 3, 7}, Shape{0, 1, 1, 8});
  std::mt19937 random(15);
  const std::int64_t columns = std::int64_t{shape.heads} * shape.width;
  HostTensor y = random_tensor(type, shape, random);
  HostTensor bias = random_tensor(type, {columns, 1, 1, 1}, random);
  HostTensor d_bias = random_tensor(DType::fp32, {columns, 1, 1, 1}, random);
  bias_gradient({.d_y = y.rows(), .d_bias = d_bias.rows()});
  Values sums(static_cast<std::size_t>(columns));
  Values added = y.values();
  for (std::int64_t i = 0; i < std::ssize(added); ++i) {
    at(sums, i % columns) += at(added, i);
    at(added, i) += at(bias.values(), i % columns);
  }
  add_bias({.y = y.rows(), .bias = bias.rows()});
  check_near(y, added, 2);
  check_near(d_bias, sums, static_cast<double>(shape.count * shape.batch));
  HostTensor other = random_tensor(type, {columns + 1, 1, 1, 1}, random);
  CHECK_THROWS_AS(add_bias({.y = y.rows(), .bias = other.rows()}), InternalError);
}

TEST_CASE("a weighted bias is added by weight, and weights have the gradient of its product") {
  const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  constexpr Shape shape{5, 2, 1, 7};
  constexpr Shape numbers{5, 2, 1, 1};
  std::mt19937 random(16);
  HostTensor y = random_tensor(type, shape, random);
  HostTensor bias = random_tensor(type, {7, 1, 1, 1}, random);
  HostTensor weights = random_tensor(DType::fp32, numbers, random);
  HostTensor d_bias = random_tensor(DType::fp32, {7, 1, 1, 1}, random);
  HostTensor d_weights = random_tensor(DType::fp32, numbers, random);
  Values added = y.values();
  Values sums = d_bias.values();
  Values products(10);
  for (std::int64_t i = 0; i < std::ssize(added); ++i) {
    const double weight = at(weights.values(), i / 7);
    at(sums, i % 7) += weight * at(added, i);
    at(products, i / 7) += at(bias.values(), i % 7) * at(added, i);
    at(added, i) += weight * at(bias.values(), i % 7);
  }
  bias_gradient({.d_y = y.rows(), .d_bias = d_bias.rows(), .weights = weights.rows(), .add = true});
  bias_weights_gradient({.d_y = y.rows(), .bias = bias.rows(), .d_weights = d_weights.rows()});
  add_bias({.y = y.rows(), .bias = bias.rows(), .weights = weights.rows()});
  check_near(y, added, 2);
  check_near(d_bias, sums, 10);
  check_near(d_weights, products, 7);
  HostTensor other = random_tensor(DType::fp32, {4, 2, 1, 1}, random);
  CHECK_THROWS_AS(add_bias({.y = y.rows(), .bias = bias.rows(), .weights = other.rows()}),
                  InternalError);
}
