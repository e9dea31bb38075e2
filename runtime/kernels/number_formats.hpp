// The number formats of 16 bits as types, one number at a time; for CPU and GPU. Rounding to them
// is to nearest, ties to even; too large becomes infinity; NaN stays NaN. All are integer
// operations without branches, which compilers vectorise, and need no special instructions.
#pragma once

#include "runtime/kernels/host_device.hpp"

#include <bit>
#include <cstdint>

namespace spp::runtime {

/// 1 sign, 8 exponent, 7 fraction bits: the upper half of a float.
struct Bf16 {
  std::uint16_t bits = 0;
};
/// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits.
struct Fp16 {
  std::uint16_t bits = 0;
};

SPP_HOST_DEVICE inline float to_float(float x) { return x; }

SPP_HOST_DEVICE inline float to_float(Bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::uint32_t{x.bits} << 16U));
}

[[gnu::always_inline]] SPP_HOST_DEVICE inline float fp16_value(std::uint16_t bits) {
  // Exponent and fraction at the float's place, then 2^112 moves the bias from 15 to 127; that
  // multiplication also makes subnormals normal. Infinity and NaN keep a full exponent.
  const std::uint32_t magnitude = (bits & 0x7fffU) << 13U;
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
  const std::uint32_t special = magnitude >= 0x0f800000U ? 0x7f800000U : 0U;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign | special);
}
SPP_HOST_DEVICE inline float to_float(Fp16 x) { return fp16_value(x.bits); }

/// from_float<T>(x): x as a T.
template <class T>
SPP_HOST_DEVICE T from_float(float x);

template <>
SPP_HOST_DEVICE inline float from_float<float>(float x) {
  return x;
}

[[gnu::always_inline]] SPP_HOST_DEVICE inline std::uint16_t bf16_bits(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U;
  const std::uint32_t quiet = (u >> 16U) | 0x40U;
  const bool nan = (u & 0x7fffffffU) > 0x7f800000U;
  return static_cast<std::uint16_t>(nan ? quiet : rounded);
}
template <>
SPP_HOST_DEVICE inline Bf16 from_float<Bf16>(float x) {
  return {bf16_bits(x)};
}

[[gnu::always_inline]] SPP_HOST_DEVICE inline std::uint16_t fp16_bits(float x) {
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
SPP_HOST_DEVICE inline Fp16 from_float<Fp16>(float x) {
  return {fp16_bits(x)};
}

}  // namespace spp::runtime
