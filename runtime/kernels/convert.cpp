#include "runtime/kernels/convert.hpp"

#include "runtime/kernels/every_cpu.hpp"

#include <algorithm>

namespace spp::runtime {
namespace {

SPP_EVERY_CPU void bf16_to_floats(const std::uint16_t* from, float* to, std::size_t n) {
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(std::uint32_t{from[i]} << 16U));
  }
}
SPP_EVERY_CPU void fp16_to_floats(const std::uint16_t* from, float* to, std::size_t n) {
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = fp16_value(from[i]);
  }
}
SPP_EVERY_CPU void floats_to_bf16(const float* from, std::uint16_t* to, std::size_t n) {
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = bf16_bits(from[i]);
  }
}
SPP_EVERY_CPU void floats_to_fp16(const float* from, std::uint16_t* to, std::size_t n) {
#pragma omp simd
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = fp16_bits(from[i]);
  }
}

}  // namespace

void to_floats(DType dtype, const std::byte* from, std::span<float> to) {
  switch (dtype) {
    case DType::fp32:
      std::ranges::copy(std::span(from, to.size_bytes()), std::as_writable_bytes(to).begin());
      return;
    case DType::bf16:
      return bf16_to_floats(reinterpret_cast<const std::uint16_t*>(from), to.data(), to.size());
    case DType::fp16:
      return fp16_to_floats(reinterpret_cast<const std::uint16_t*>(from), to.data(), to.size());
  }
  throw InternalError("unknown dtype");
}

void from_floats(DType dtype, std::span<const float> from, std::byte* to) {
  switch (dtype) {
    case DType::fp32:
      std::ranges::copy(std::as_bytes(from), to);
      return;
    case DType::bf16:
      return floats_to_bf16(from.data(), reinterpret_cast<std::uint16_t*>(to), from.size());
    case DType::fp16:
      return floats_to_fp16(from.data(), reinterpret_cast<std::uint16_t*>(to), from.size());
  }
  throw InternalError("unknown dtype");
}

}  // namespace spp::runtime
