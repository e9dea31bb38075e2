#include "runtime/kernels/softmax.hpp"

#include "runtime/kernels/every_cpu.hpp"

#include <limits>

namespace spp::runtime {
namespace {

/// 2^x for x <= 127. x = n + f with n the nearest integer; 2^f by the polynomial of degree 6 that
/// interpolates it at the Chebyshev points of [-1/2, 1/2]; 2^n by setting the exponent.
SPP_INLINE float exp2_of(float x) {
  constexpr float to_integer = 0x1.8p23F;  // adding it leaves the integer in the lowest bits
  x = x < -126.0F ? -126.0F : x;
  const float shifted = x + to_integer;
  const float f = x - (shifted - to_integer);
  const auto n = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(to_integer);
  float p = 1.5451181e-4F;
  p = p * f + 1.3390302e-3F;
  p = p * f + 9.6180560e-3F;
  p = p * f + 5.5503297e-2F;
  p = p * f + 2.4022650e-1F;
  p = p * f + 6.9314720e-1F;
  p = p * f + 1.0F;
  // Unsigned: what a NaN leaves in n may overflow; times NaN it does not matter.
  const auto exponent = static_cast<std::uint32_t>(n + 127) << 23U;
  return p * std::bit_cast<float>(exponent);
}

}  // namespace

SPP_EVERY_CPU float row_max(const float* s, std::int64_t n) {
  // Four at once: one chain of max would wait for itself.
  const std::int64_t quarter = n / 4;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  float a = lowest;
  float b = lowest;
  float c = lowest;
  float d = lowest;
#pragma omp simd reduction(max : a, b, c, d)
  for (std::int64_t i = 0; i < quarter; ++i) {
    a = a < s[i] ? s[i] : a;
    b = b < s[quarter + i] ? s[quarter + i] : b;
    c = c < s[2 * quarter + i] ? s[2 * quarter + i] : c;
    d = d < s[3 * quarter + i] ? s[3 * quarter + i] : d;
  }
  for (std::int64_t i = 4 * quarter; i < n; ++i) {
    a = a < s[i] ? s[i] : a;
  }
  a = a < b ? b : a;
  c = c < d ? d : c;
  return a < c ? c : a;
}

SPP_EVERY_CPU float exp_row(float* s, std::int64_t n, float scale2, float max2) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    const float e = exp2_of(scale2 * s[i] - max2);
    sum += e;
    s[i] = e;
  }
  return sum;
}

SPP_EVERY_CPU void gradient_row(float* s, float* dp, std::int64_t n, const GradientRow& row) {
  const auto [scale, scale2, lse2, delta] = row;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float p = exp2_of(scale2 * s[i] - lse2);
    s[i] = p;
    dp[i] = scale * p * (dp[i] - delta);
  }
}

SPP_EVERY_CPU void round_row(const float* from, Bf16* to, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const auto u = std::bit_cast<std::uint32_t>(from[i]);
    to[i].bits = static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U);
  }
}

SPP_EVERY_CPU void scale_row(float* x, std::int64_t n, float factor) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] *= factor;
  }
}

}  // namespace spp::runtime
