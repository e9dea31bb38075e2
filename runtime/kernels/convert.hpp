// Numbers as they are stored (bf16, fp16, fp32) and as they are computed with (float). To the
// shorter types: round to nearest, ties to even; too large becomes infinity; NaN stays NaN. All are
// integer operations without branches, which compilers vectorise, and need no CPU feature.
#pragma once

#include "base/error.hpp"
#include "runtime/kernels/number_formats.hpp"
#include "runtime/kernels/rows.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace spp::runtime {

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
