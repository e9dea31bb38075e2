// What the compiler's vectors cannot say: maximum, x - floor(x), p 2^floor(x) and rounding to bf16
// are one instruction each; and masks leave nothing over at the end of a row.
#include "runtime/kernels/softmax_loops.hpp"

#if defined(__x86_64__) && defined(__GNUC__)

#if defined(__clang__)
#include <immintrin.h>
#else
// g++ 12's header leaves lanes that nobody reads uninitialised, and warns of it (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#include <limits>
#include <utility>

#define SPP_AVX512_TARGET target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16")
#define SPP_AVX512 __attribute__((SPP_AVX512_TARGET))
#define SPP_AVX512_INLINE __attribute__((SPP_AVX512_TARGET, always_inline))

namespace spp::runtime {
namespace {

/// Two vectors: as many numbers as a vector of bf16 has.
constexpr std::int64_t lanes = 32;
struct Pair {
  __m512 low, high;
};
/// Which of a pair's lanes exist: all, or the first few.
struct All {};
struct First {
  explicit First(std::int64_t count) : all((1U << static_cast<unsigned>(count)) - 1) {}
  [[nodiscard]] __mmask16 low() const { return static_cast<__mmask16>(all); }
  [[nodiscard]] __mmask16 high() const { return static_cast<__mmask16>(all >> 16U); }
  __mmask32 all;
};

SPP_AVX512_INLINE inline Pair load(const float* from, All) {
  return {_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)};
}
SPP_AVX512_INLINE inline Pair load(const float* from, First some) {
  return {_mm512_maskz_loadu_ps(some.low(), from), _mm512_maskz_loadu_ps(some.high(), from + 16)};
}

SPP_AVX512_INLINE inline void store(const Pair& x, float* to, All) {
  _mm512_storeu_ps(to, x.low);
  _mm512_storeu_ps(to + 16, x.high);
}
SPP_AVX512_INLINE inline void store(const Pair& x, float* to, First some) {
  _mm512_mask_storeu_ps(to, some.low(), x.low);
  _mm512_mask_storeu_ps(to + 16, some.high(), x.high);
}
SPP_AVX512_INLINE inline __m512i rounded(const Pair& x) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x.high, x.low));
}
SPP_AVX512_INLINE inline void store(const Pair& x, Bf16* to, All) {
  _mm512_storeu_si512(to, rounded(x));
}
SPP_AVX512_INLINE inline void store(const Pair& x, Bf16* to, First some) {
  _mm512_mask_storeu_epi16(to, some.all, rounded(x));
}

SPP_AVX512_INLINE inline void add(Pair& sum, const Pair& x, All) {
  sum = {_mm512_add_ps(sum.low, x.low), _mm512_add_ps(sum.high, x.high)};
}
SPP_AVX512_INLINE inline void add(Pair& sum, const Pair& x, First some) {
  sum = {_mm512_mask_add_ps(sum.low, some.low(), sum.low, x.low),
         _mm512_mask_add_ps(sum.high, some.high(), sum.high, x.high)};
}

/// Of a NaN in x: most.
SPP_AVX512_INLINE inline void raise(Pair& most, const Pair& x, All) {
  most = {_mm512_max_ps(x.low, most.low), _mm512_max_ps(x.high, most.high)};
}
SPP_AVX512_INLINE inline void raise(Pair& most, const Pair& x, First some) {
  most = {_mm512_mask_max_ps(most.low, some.low(), x.low, most.low),
          _mm512_mask_max_ps(most.high, some.high(), x.high, most.high)};
}

/// Calls `body` with the place of the next up to `lanes` numbers and which of them exist.
template <class Body>
SPP_AVX512_INLINE inline void in_pairs(std::int64_t n, const Body& body) {
  std::int64_t at = 0;
  for (; at + lanes <= n; at += lanes) {
    body(at, All{});
  }
  if (at < n) {
    body(at, First(n - at));
  }
}

/// 2^(scale2 s - shift), for results of type T.
template <class T>
SPP_AVX512_INLINE inline __m512 power(__m512 s, __m512 scale2, __m512 shift) {
  __m512 x = _mm512_fmsub_ps(s, scale2, shift);
  x = _mm512_max_ps(_mm512_set1_ps(least_exponent), x);  // of a NaN: the second
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
  constexpr auto c = power_coefficients<T>;
  __m512 p = _mm512_set1_ps(c[0]);
  for (std::size_t i = 1; i < c.size(); ++i) {
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c[i]));
  }
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1));
  return _mm512_scalef_ps(p, x);
}

SPP_AVX512_INLINE inline Pair pair_of(float x) { return {_mm512_set1_ps(x), _mm512_set1_ps(x)}; }

SPP_AVX512 float row_max_512(const float* s, std::int64_t n) {
  // Two pairs in turn: one chain of max would wait for itself.
  Pair most = pair_of(-std::numeric_limits<float>::infinity());
  Pair next = most;
  in_pairs(n, [&](std::int64_t at, auto some) SPP_AVX512_INLINE {
    raise(next, load(s + at, some), some);
    std::swap(most, next);
  });
  raise(most, next, All{});
  return _mm512_reduce_max_ps(_mm512_max_ps(most.low, most.high));
}

template <class T>
SPP_AVX512 float exp_row_512(const float* s, T* p, std::int64_t n, float scale2, float shift) {
  const __m512 scales = _mm512_set1_ps(scale2);
  const __m512 shifts = _mm512_set1_ps(shift);
  Pair sum = pair_of(0);
  in_pairs(n, [&](std::int64_t at, auto some) SPP_AVX512_INLINE {
    const Pair x = load(s + at, some);
    const Pair y{power<T>(x.low, scales, shifts), power<T>(x.high, scales, shifts)};
    store(y, p + at, some);
    add(sum, y, some);
  });
  return _mm512_reduce_add_ps(_mm512_add_ps(sum.low, sum.high));
}

template <class T>
SPP_AVX512 void gradient_row_512(const float* s, const float* dp, T* p, T* ds, std::int64_t n,
                                 const GradientRow& row) {
  const __m512 scale = _mm512_set1_ps(row.scale);
  const __m512 scale2 = _mm512_set1_ps(row.scale2);
  const __m512 lse2 = _mm512_set1_ps(row.lse2);
  const __m512 delta = _mm512_set1_ps(row.scale * row.delta);
  in_pairs(n, [&](std::int64_t at, auto some) SPP_AVX512_INLINE {
    const Pair x = load(s + at, some);
    const Pair y = load(dp + at, some);
    const Pair q{power<T>(x.low, scale2, lse2), power<T>(x.high, scale2, lse2)};
    store(q, p + at, some);
    store({_mm512_mul_ps(q.low, _mm512_fmsub_ps(y.low, scale, delta)),
           _mm512_mul_ps(q.high, _mm512_fmsub_ps(y.high, scale, delta))},
          ds + at, some);
  });
}

}  // namespace

const RowLoops* avx512_row_loops() {
  static constexpr RowLoops loops{row_max_512, exp_row_512<float>, exp_row_512<Bf16>,
                                  gradient_row_512<float>, gradient_row_512<Bf16>};
  const bool can =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512bf16") != 0;
  return can ? &loops : nullptr;
}

}  // namespace spp::runtime

#else

namespace spp::runtime {

const RowLoops* avx512_row_loops() { return nullptr; }

}  // namespace spp::runtime

#endif
