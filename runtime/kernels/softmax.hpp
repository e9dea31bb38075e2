// The loops of attention that are no matrix products, over one row of a score tile. Compiled for
// every CPU (every_cpu.hpp), and once more by hand for those with AVX512 and its bf16. exp is ours:
// 2^x by range reduction and a polynomial, without branches. So scores come in base 2:
//
//   e^(scale s - m) = 2^(scale2 s - m2)    with scale2 = scale log2(e), m2 = m log2(e)
//
// To bf16: round to nearest. Without AVX512's instruction for it ties go away from 0 instead of to
// even (that would be three more operations on every number, and one in 65536 is a tie), and a NaN
// stays one unless its upper bits are all ones, which no arithmetic makes.
#pragma once

#include "runtime/kernels/number_formats.hpp"

#include <cstdint>
#include <type_traits>

namespace spp::runtime {

/// A power's relative error is below this: of the polynomial, whose terms for bf16 are fewer, and
/// of its evaluation; before the power is rounded to bf16. A row's sum has the same, so the LSE has
/// it as an error of its own, however small the LSE is.
template <class T>
constexpr double power_error = std::is_same_v<T, float> ? 2e-7 : 4e-6;

/// max of s[0, n), n >= 1; NaN is passed over.
float row_max(const float* s, std::int64_t n);

/// p <- 2^(scale2 s - shift); gives the sum, of what was not rounded yet. What is below 2^-126
/// becomes 2^-126, what is above 2^127 at least 2^127; NaN stays NaN. p may be s.
float exp_row(const float* s, float* p, std::int64_t n, float scale2, float shift);
float exp_row(const float* s, Bf16* p, std::int64_t n, float scale2, float shift);

/// Of one row of the backward pass.
struct GradientRow {
  float scale = 1, scale2 = 1, lse2 = 0, delta = 0;
};
/// Of scores s and dp = dO V^T: p <- 2^(scale2 s - lse2), ds <- scale p (dp - delta). p may be s,
/// and ds dp.
void gradient_row(const float* s, const float* dp, float* p, float* ds, std::int64_t n,
                  const GradientRow& row);
void gradient_row(const float* s, const float* dp, Bf16* p, Bf16* ds, std::int64_t n,
                  const GradientRow& row);

/// x *= factor.
void scale_row(float* x, std::int64_t n, float factor);

}  // namespace spp::runtime
