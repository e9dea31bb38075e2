// Numbers as they are stored (bf16, fp16, fp32) and as they are computed with (float). To the
// shorter types: round to nearest, ties to even; too large becomes infinity; NaN stays NaN. All are
// integer operations without branches, which compilers vectorise, and need no CPU feature.
#pragma once

#include "base/error.hpp"
#include "runtime/rows.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace spp::runtime {

/// 1 sign, 8 exponent, 7 fraction bits: the upper half of a float.
struct Bf16 {
  std::uint16_t bits = 0;
};
/// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits.
struct Fp16 {
  std::uint16_t bits = 0;
};

inline float to_float(float x) { return x; }

inline float to_float(Bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::uint32_t{x.bits} << 16U));
}

[[gnu::always_inline]] inline float fp16_value(std::uint16_t bits) {
  // Exponent and fraction at the float's place, then 2^112 moves the bias from 15 to 127; that
  // multiplication also makes subnormals normal. Infinity and NaN keep a full exponent.
  const std::uint32_t magnitude = (bits & 0x7fffU) << 13U;
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
  const std::uint32_t special = magnitude >= 0x0f800000U ? 0x7f800000U : 0U;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign | special);
}
inline float to_float(Fp16 x) { return fp16_value(x.bits); }

/// from_float<T>(x): x as a T.
template <class T>
T from_float(float x);

template <>
inline float from_float<float>(float x) {
  return x;
}

[[gnu::always_inline]] inline std::uint16_t bf16_bits(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U;
  const std::uint32_t quiet = (u >> 16U) | 0x40U;
  const bool nan = (u & 0x7fffffffU) > 0x7f800000U;
  return static_cast<std::uint16_t>(nan ? quiet : rounded);
}
template <>
inline Bf16 from_float<Bf16>(float x) {
  return {bf16_bits(x)};
}

[[gnu::always_inline]] inline std::uint16_t fp16_bits(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (u >> 16U) & 0x8000U;
  const std::uint32_t magnitude = u & 0x7fffffffU;
  // Below 2^-14 the result is subnormal, a multiple of 2^-24: adding 0.5, whose last bit is worth
  // 2^-24, rounds to that multiple and leaves it in the lowest bits.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U;
  // Else drop 13 bits, ties to even, and move the bias from 127 to 15.
  const std::uint32_t normal =
      (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13U) & 1U)) >> 13U;
  std::uint32_t bits = magnitude < 0x38800000U ? subnormal : normal;
  bits = magnitude >= 0x477ff000U ? 0x7c00U : bits;  // 65520 and more round to infinity
  bits = magnitude > 0x7f800000U ? 0x7e00U : bits;
  return static_cast<std::uint16_t>(bits | sign);
}
template <>
inline Fp16 from_float<Fp16>(float x) {
  return {fp16_bits(x)};
}

/// Calls `body` with a value of the type that `dtype` stands for: float, Bf16 or Fp16.
template <class Body>
decltype(auto) with_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::fp32:
      return body(float{});
    case DType::bf16:
      return body(Bf16{});
    case DType::fp16:
      return body(Fp16{});
  }
  throw InternalError("unknown dtype");
}

/// Element `i` of an array of `T` at `data`, of any alignment.
template <class T>
float load(const std::byte* data, std::int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return to_float(value);
}
template <class T>
void store(std::byte* data, std::int64_t i, float x) {
  const T value = from_float<T>(x);
  std::memcpy(data + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

/// The same with a type that is known at run time only; for single elements.
inline float load(DType dtype, const std::byte* data, std::int64_t i) {
  return with_type(dtype, [&](auto type) { return load<decltype(type)>(data, i); });
}
inline void store(DType dtype, std::byte* data, std::int64_t i, float x) {
  with_type(dtype, [&](auto type) { store<decltype(type)>(data, i, x); });
}

/// Whole runs, vectorised: `to` gets to.size() elements stored at `from`; the reverse.
void to_floats(DType dtype, const std::byte* from, std::span<float> to);
void from_floats(DType dtype, std::span<const float> from, std::byte* to);

}  // namespace spp::runtime
