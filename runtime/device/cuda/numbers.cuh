// Elements in memory that are computed with as floats, N at a time: N = 8 in accesses of 16 bytes
// where everything is aligned to them, else N = 1. The type is a value, not a template parameter:
// the switch is alike for all threads, and memory is what these kernels wait for.
#pragma once

#include "runtime/kernels/host_device.hpp"
#include "runtime/kernels/number_formats.hpp"
#include "runtime/kernels/rows.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace spp::runtime::cuda {

inline constexpr int vector_elements = 8;
inline constexpr std::uintptr_t vector_bytes = 16;

struct Numbers {
  std::byte* data = nullptr;
  DType dtype = DType::fp32;
};

inline Numbers numbers_of(const Rows& rows) { return {.data = rows.data, .dtype = rows.dtype}; }

/// Where vectors of 8 elements may begin: every 8th element is aligned if the first one is.
inline bool vectors_fit(const Numbers& numbers, std::int64_t run) {
  return reinterpret_cast<std::uintptr_t>(numbers.data) % vector_bytes == 0 &&
         run % vector_elements == 0;
}

/// Calls `body` with the elements that are worked on at once as a compile-time constant, 8 or 1.
template <int N>
struct Elements {
  static constexpr int value = N;
};
template <class Body>
void with_elements(bool vectors, Body&& body) {
  if (vectors) {
    body(Elements<vector_elements>());
  } else {
    body(Elements<1>());
  }
}

/// The same for runs of `run` elements of all rows.
template <class Body>
void with_vectors(std::int64_t run, std::initializer_list<Rows> all, const Body& body) {
  with_elements(std::all_of(all.begin(), all.end(),
                            [&](const Rows& rows) { return vectors_fit(numbers_of(rows), run); }),
                body);
}

template <class T, int N>
struct alignas(N * sizeof(T) < vector_bytes ? N * sizeof(T) : vector_bytes) Pack {
  T value[N];
};

template <int N, class T>
SPP_HOST_DEVICE void read_as(const std::byte* data, std::int64_t at, float* to) {
  const std::byte* from = data + at * static_cast<std::int64_t>(sizeof(T));
#if defined(__CUDA_ARCH__)
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
#else
  Pack<T, N> pack;
  std::memcpy(&pack, from, sizeof(pack));
#endif
  for (int i = 0; i < N; ++i) {
    to[i] = to_float(pack.value[i]);
  }
}

template <int N, class T>
SPP_HOST_DEVICE void write_as(std::byte* data, std::int64_t at, const float* from) {
  std::byte* to = data + at * static_cast<std::int64_t>(sizeof(T));
  Pack<T, N> pack;
  for (int i = 0; i < N; ++i) {
    pack.value[i] = from_float<T>(from[i]);
  }
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
#else
  std::memcpy(to, &pack, sizeof(pack));
#endif
}

/// to[0, N) <- elements [at, at + N).
template <int N>
SPP_HOST_DEVICE void read(const Numbers& from, std::int64_t at, float* to) {
  if (from.dtype == DType::fp32) {
    read_as<N, float>(from.data, at, to);
  } else if (from.dtype == DType::bf16) {
    read_as<N, Bf16>(from.data, at, to);
  } else {
    read_as<N, Fp16>(from.data, at, to);
  }
}
template <int N>
SPP_HOST_DEVICE void write(const Numbers& to, std::int64_t at, const float* from) {
  if (to.dtype == DType::fp32) {
    write_as<N, float>(to.data, at, from);
  } else if (to.dtype == DType::bf16) {
    write_as<N, Bf16>(to.data, at, from);
  } else {
    write_as<N, Fp16>(to.data, at, from);
  }
}

SPP_HOST_DEVICE inline float read_one(const Numbers& from, std::int64_t at) {
  float value = 0;
  read<1>(from, at, &value);
  return value;
}
SPP_HOST_DEVICE inline void write_one(const Numbers& to, std::int64_t at, float value) {
  write<1>(to, at, &value);
}

}  // namespace spp::runtime::cuda
