#include "runtime/kernels/reference_attention.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/runtime/tensors.hpp"

#include <vector>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

/// 5 tokens, 2 batch elements, 4 query heads on 2 KV heads of width 3, causal.
struct Small {
  std::mt19937 random{7};
  Shape q_shape{5, 2, 4, 3};
  Shape k_shape{5, 2, 2, 3};
  HostTensor q = random_tensor(DType::fp32, q_shape, random);
  HostTensor k = random_tensor(DType::fp32, k_shape, random);
  HostTensor v = random_tensor(DType::fp32, k_shape, random);
  HostTensor d_out = random_tensor(DType::fp32, q_shape, random);
  Visibility visible{.q_tokens = TokenSet({.begin = 0, .count = 5}),
                     .k_tokens = TokenSet({.begin = 0, .count = 5}),
                     .mask = {.kind = MaskKind::causal},
                     .seq = 5};
  std::vector<double> out = std::vector<double>(120);
  std::vector<double> lse = std::vector<double>(40);

  void forward() {
    reference_forward(
        {.q = q.rows(), .k = k.rows(), .v = v.rows(), .visible = visible, .out = out, .lse = lse});
  }
  /// sum of d_out * out: its gradients are what backward computes.
  double loss() {
    forward();
    double sum = 0;
    for (std::int64_t i = 0; i < d_out.size(); ++i) {
      sum += d_out.at(i) * out[static_cast<std::size_t>(i)];
    }
    return sum;
  }
  /// (loss(x + h) - loss(x - h)) / 2h, with h that floats of this size can be moved by exactly.
  double slope(HostTensor& tensor, std::int64_t i) {
    const float before = tensor.at(i);
    const float above = before + 0x1p-10F;
    const float below = before - 0x1p-10F;
    tensor.set(i, above);
    const double up = loss();
    tensor.set(i, below);
    const double down = loss();
    tensor.set(i, before);
    return (up - down) / (static_cast<double>(above) - static_cast<double>(below));
  }
};

}  // namespace

TEST_CASE("attention of one query to two keys, by hand") {
  // D = 4, so the scale is 1/2. q = (2, 0, 0, 0), k0 = 0, k1 = (ln 3, 0, 0, 0): scores 0 and ln 3,
  // weights 1/4 and 3/4, lse = ln 4.
  HostTensor q(DType::fp32, {1, 1, 1, 4});
  HostTensor k(DType::fp32, {2, 1, 1, 4});
  HostTensor v(DType::fp32, {2, 1, 1, 4});
  q.set(0, 2);
  k.set(4, std::log(3.0F));
  v.set(0, 8);
  v.set(4, 4);
  v.set(5, 1);
  std::vector<double> out(4);
  std::vector<double> lse(1);
  reference_forward({.q = q.rows(),
                     .k = k.rows(),
                     .v = v.rows(),
                     .visible = {.q_tokens = TokenSet({.begin = 9, .count = 1}),
                                 .k_tokens = TokenSet({.begin = 0, .count = 2}),
                                 .mask = {.kind = MaskKind::causal},
                                 .seq = 10},
                     .out = out,
                     .lse = lse});
  // ln 3 is stored with a relative error of 2^-24.
  CHECK(distance(out, {5, 0.75, 0, 0}) < 1e-6);
  CHECK(distance(lse, {std::log(4.0)}) < 1e-6);
}

TEST_CASE("gradients are the slopes of the forward pass") {
  Small s;
  s.forward();
  std::vector<double> delta(40);
  reference_row_dot(s.d_out.rows(), s.out, delta);
  std::vector<double> d_q(120);
  std::vector<double> d_k(60);
  std::vector<double> d_v(60);
  const std::vector<double> lse = s.lse;
  reference_backward({.q = s.q.rows(),
                      .k = s.k.rows(),
                      .v = s.v.rows(),
                      .d_out = s.d_out.rows(),
                      .visible = s.visible,
                      .lse = lse,
                      .delta = delta,
                      .d_q = d_q,
                      .d_k = d_k,
                      .d_v = d_v});
  std::vector<double> slopes_q;
  std::vector<double> slopes_k;
  std::vector<double> slopes_v;
  for (std::int64_t i = 0; i < 120; ++i) {
    slopes_q.push_back(s.slope(s.q, i));
  }
  for (std::int64_t i = 0; i < 60; ++i) {
    slopes_k.push_back(s.slope(s.k, i));
    slopes_v.push_back(s.slope(s.v, i));
  }
  // Central differences are off by h^2/6 times the third derivative: 2^-20/6 of order 1.
  CHECK(distance(d_q, slopes_q) < 1e-6);
  CHECK(distance(d_k, slopes_k) < 1e-6);
  CHECK(distance(d_v, slopes_v) < 1e-6);
}

TEST_CASE("some rows alone are the same rows of the whole") {
  Small s;
  s.forward();
  Small part;  // queries 3 and 4 only: 24 elements each
  part.q = HostTensor(DType::fp32, {2, 2, 4, 3});
  for (std::int64_t i = 0; i < 48; ++i) {
    part.q.set(i, s.q.at(72 + i));
  }
  part.visible.q_tokens = TokenSet({.begin = 3, .count = 2});
  part.out.resize(48);
  part.lse.resize(16);
  part.forward();
  // Eigen may add in another order: a few units of fp64.
  CHECK(distance(part.out, {s.out.begin() + 72, s.out.end()}) < 1e-14);
  CHECK(distance(part.lse, {s.lse.begin() + 24, s.lse.end()}) < 1e-14);
}
