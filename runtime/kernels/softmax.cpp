// In vectors of the compiler, not in loops for it to vectorise: g++ 12 then guards every operation
// after the clamp with a mask, adds the lanes of a sum one by one, and is slower still when a loop
// also rounds. A vector is a register of AVX2: of longer ones g++ compares lane by lane where there
// are no longer registers (exp took 6 times as long on an AVX2 CPU). CPUs with AVX512 and its bf16
// have softmax_avx512.cpp.
#include "runtime/kernels/every_cpu.hpp"
#include "runtime/kernels/softmax_loops.hpp"

#include <cstring>
#include <limits>

namespace spp::runtime {
namespace {

constexpr std::int64_t lanes = 8;
using Floats = float __attribute__((vector_size(lanes * 4)));
using Words = std::uint32_t __attribute__((vector_size(lanes * 4)));
using Halves = std::uint16_t __attribute__((vector_size(lanes * 2)));

// Vectors go by reference: by value they would pass differently for every CPU.

/// The first `count` lanes; the others are left alone.
SPP_INLINE void load(const float* from, std::int64_t count, Floats& x) {
  if (count >= lanes) {
    std::memcpy(&x, from, sizeof x);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = from[i];
  }
}

SPP_INLINE void store(const Floats& x, float* to, std::int64_t count) {
  if (count >= lanes) {
    std::memcpy(to, &x, sizeof x);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = x[i];
  }
}
SPP_INLINE void store(const Floats& x, Bf16* to, std::int64_t count) {
  Words word;
  std::memcpy(&word, &x, sizeof x);
  const Words rounded = (word + 0x8000U) >> 16U;
  const Halves half = __builtin_convertvector(rounded, Halves);
  if (count >= lanes) {
    std::memcpy(static_cast<void*>(to), &half, sizeof half);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    to[i].bits = half[i];
  }
}

SPP_INLINE void clear_from(std::int64_t count, Floats& x) {
  for (std::int64_t i = count; i < lanes; ++i) {
    x[i] = 0;
  }
}

/// Calls `body` with the place and the number of the next up to `lanes` elements.
template <class Body>
SPP_INLINE void in_vectors(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    body(i, lanes);
  }
  if (i < n) {
    body(i, n - i);
  }
}

/// Lane by lane; NaN in `x` is passed over.
template <class Number>
SPP_INLINE void raise(Number& most, const Number& x) {
  most = most < x ? x : most;
}

/// x <- 2^x, 2^127 for more, for results of type T. x = n + f with n = floor(x); 2^n by setting the
/// exponent.
template <class T>
SPP_INLINE void exp2_of(Floats& x) {
  // Adding it leaves n + 127, the exponent's bits of 2^n, in the lowest bits.
  constexpr float to_integer = 0x1.8p23F + 127;
  const Floats least = Floats{} + least_exponent;
  const Floats most = Floats{} + 127.0F;
  x = x < least ? least : x;
  x = x > most ? most : x;
  const Floats shifted = (x - 0.5F) + to_integer;
  const Floats f = x - (shifted - to_integer);
  constexpr auto c = power_coefficients<T>;
  Floats p = Floats{} + c[0];
  for (std::size_t i = 1; i < c.size(); ++i) {
    p = p * f + c[i];
  }
  p = p * f + 1.0F;
  // What a NaN leaves here does not matter: it is multiplied by NaN.
  Words n;
  std::memcpy(&n, &shifted, sizeof n);
  n <<= 23U;
  Floats power;
  std::memcpy(&power, &n, sizeof power);
  x = p * power;
}

/// All lanes joined, half by half: one after the other they would wait for each other.
template <class Join>
SPP_INLINE float folded(const Floats& x, const Join& join) {
  using Four = float __attribute__((vector_size(16)));
  Four fours[2];
  std::memcpy(fours, &x, sizeof x);
  join(fours[0], fours[1]);
  float ones[4];
  std::memcpy(ones, fours, sizeof ones);
  join(ones[0], ones[1]);
  join(ones[2], ones[3]);
  join(ones[0], ones[2]);
  return ones[0];
}

template <class T>
SPP_INLINE float exp_row_to(const float* s, T* p, std::int64_t n, float scale2, float shift) {
  Floats sum{};
  in_vectors(n, [&](std::int64_t at, std::int64_t count) __attribute__((always_inline)) {
    Floats x{};
    load(s + at, count, x);
    x = x * scale2 - shift;
    exp2_of<T>(x);
    store(x, p + at, count);
    clear_from(count, x);
    sum += x;
  });
  return folded(sum, [](auto& a, const auto& b) { a += b; });
}

template <class T>
SPP_INLINE void gradient_row_to(const float* s, const float* dp, T* p, T* ds, std::int64_t n,
                                const GradientRow& row) {
  const float scaled_delta = row.scale * row.delta;
  in_vectors(n, [&](std::int64_t at, std::int64_t count) __attribute__((always_inline)) {
    Floats x{};
    Floats y{};
    load(s + at, count, x);
    load(dp + at, count, y);
    x = x * row.scale2 - row.lse2;
    exp2_of<T>(x);
    y = x * (y * row.scale - scaled_delta);
    store(x, p + at, count);
    store(y, ds + at, count);
  });
}

SPP_EVERY_CPU float row_max_anywhere(const float* s, std::int64_t n) {
  // Four at once: one chain of max would wait for itself.
  const Floats lowest = Floats{} - std::numeric_limits<float>::infinity();
  Floats most[4] = {lowest, lowest, lowest, lowest};
  std::int64_t at = 0;
  for (; at + 4 * lanes <= n; at += 4 * lanes) {
    for (std::int64_t chain = 0; chain < 4; ++chain) {
      Floats x;
      load(s + at + chain * lanes, lanes, x);
      raise(most[chain], x);
    }
  }
  in_vectors(n - at, [&](std::int64_t more, std::int64_t count) __attribute__((always_inline)) {
    Floats x = lowest;
    load(s + at + more, count, x);
    raise(most[0], x);
  });
  raise(most[0], most[1]);
  raise(most[2], most[3]);
  raise(most[0], most[2]);
  return folded(most[0], [](auto& a, const auto& b) { raise(a, b); });
}

SPP_EVERY_CPU float exp_row_anywhere(const float* s, float* p, std::int64_t n, float scale2,
                                     float shift) {
  return exp_row_to(s, p, n, scale2, shift);
}
SPP_EVERY_CPU float exp_row_to_bf16_anywhere(const float* s, Bf16* p, std::int64_t n, float scale2,
                                             float shift) {
  return exp_row_to(s, p, n, scale2, shift);
}

SPP_EVERY_CPU void gradient_row_anywhere(const float* s, const float* dp, float* p, float* ds,
                                         std::int64_t n, const GradientRow& row) {
  gradient_row_to(s, dp, p, ds, n, row);
}
SPP_EVERY_CPU void gradient_row_to_bf16_anywhere(const float* s, const float* dp, Bf16* p, Bf16* ds,
                                                 std::int64_t n, const GradientRow& row) {
  gradient_row_to(s, dp, p, ds, n, row);
}

const RowLoops& here = avx512_row_loops() != nullptr ? *avx512_row_loops() : portable_row_loops();

}  // namespace

const RowLoops& portable_row_loops() {
  static constexpr RowLoops loops{row_max_anywhere, exp_row_anywhere, exp_row_to_bf16_anywhere,
                                  gradient_row_anywhere, gradient_row_to_bf16_anywhere};
  return loops;
}

float row_max(const float* s, std::int64_t n) { return here.row_max(s, n); }

float exp_row(const float* s, float* p, std::int64_t n, float scale2, float shift) {
  return here.exp_row(s, p, n, scale2, shift);
}
float exp_row(const float* s, Bf16* p, std::int64_t n, float scale2, float shift) {
  return here.exp_row_to_bf16(s, p, n, scale2, shift);
}

void gradient_row(const float* s, const float* dp, float* p, float* ds, std::int64_t n,
                  const GradientRow& row) {
  here.gradient_row(s, dp, p, ds, n, row);
}
void gradient_row(const float* s, const float* dp, Bf16* p, Bf16* ds, std::int64_t n,
                  const GradientRow& row) {
  here.gradient_row_to_bf16(s, dp, p, ds, n, row);
}

SPP_EVERY_CPU void scale_row(float* x, std::int64_t n, float factor) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] *= factor;
  }
}

}  // namespace spp::runtime
