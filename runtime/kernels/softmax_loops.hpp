// The row loops of softmax.hpp, once for every CPU and once for those with AVX512 and its bf16, and
// the polynomial that both use. For softmax*.cpp and their tests only.
#pragma once

#include "runtime/kernels/softmax.hpp"

#include <array>
#include <type_traits>

namespace spp::runtime {

/// One implementation; the functions are those of softmax.hpp.
struct RowLoops {
  float (*row_max)(const float*, std::int64_t);
  float (*exp_row)(const float*, float*, std::int64_t, float, float);
  float (*exp_row_to_bf16)(const float*, Bf16*, std::int64_t, float, float);
  void (*gradient_row)(const float*, const float*, float*, float*, std::int64_t,
                       const GradientRow&);
  void (*gradient_row_to_bf16)(const float*, const float*, Bf16*, Bf16*, std::int64_t,
                               const GradientRow&);
};

const RowLoops& portable_row_loops();
/// Null where this CPU cannot run them.
const RowLoops* avx512_row_loops();

/// 2^f for f in [0, 1] is 1 + f (c[last] + f (c[last - 1] + …)). The coefficients of the least
/// largest relative error: 2e-9; for bf16 3e-6, because the row sums, and so the LSE, are fp32.
template <class T>
constexpr auto power_coefficients = [] {
  // NOLINTBEGIN(modernize-use-std-numbers): near ln 2, but not it
  if constexpr (std::is_same_v<T, float>) {
    return std::array{2.1612915e-4F, 1.2467846e-3F, 9.6754516e-3F,
                      5.5485281e-2F, 2.4022931e-1F, 6.9314704e-1F};
  } else {
    return std::array{1.3426684e-2F, 5.2242474e-2F, 2.4128021e-1F, 6.9304485e-1F};
  }
  // NOLINTEND(modernize-use-std-numbers)
}();
/// Smaller exponents count as this: a denormal result would take a CPU many times as long.
constexpr float least_exponent = -126;

}  // namespace spp::runtime
