// The loops of attention that are no matrix products, over one row of a score tile. Compiled for
// every CPU (every_cpu.hpp). exp is ours: 2^x by range reduction and a polynomial, relative error
// below 2e-7, without branches. So scores come in base 2:
//
//   e^(scale s - m) = 2^(scale2 s - m2)    with scale2 = scale log2(e), m2 = m log2(e)
#pragma once

#include "runtime/kernels/convert.hpp"

#include <cstdint>

namespace spp::runtime {

/// max of s[0, n), n >= 1; NaN is passed over.
float row_max(const float* s, std::int64_t n);

/// s <- 2^(scale2 s - max2); gives the sum. What is below 2^-126 becomes 2^-126; NaN stays NaN.
float exp_row(float* s, std::int64_t n, float scale2, float max2);

/// Of one row of the backward pass.
struct GradientRow {
  float scale = 1, scale2 = 1, lse2 = 0, delta = 0;
};
/// s <- p = 2^(scale2 s - lse2); dp, which is dO V^T, <- scale p (dp - delta).
void gradient_row(float* s, float* dp, std::int64_t n, const GradientRow& row);

/// to <- from, rounded. A loop of its own: fused with the ones above, g++ 12 makes both slow. A NaN
/// stays one unless its upper bits are all ones, which no arithmetic makes.
void round_row(const float* from, Bf16* to, std::int64_t n);

/// x *= factor.
void scale_row(float* x, std::int64_t n, float factor);

}  // namespace spp::runtime
