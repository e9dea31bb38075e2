// The rows of some heads out of [rows, batch, heads, width], and back.
#pragma once

#include "runtime/kernels/convert.hpp"
#include "schedule/tokens.hpp"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace spp::runtime {

/// The DType of arrays of T.
template <class T>
inline constexpr DType stored_as = std::is_same_v<T, float>  ? DType::fp32
                                   : std::is_same_v<T, Bf16> ? DType::bf16
                                                             : DType::fp16;

/// Some heads of one batch element.
struct HeadGroup {
  std::int64_t batch = 0;
  int first = 0;
  int count = 1;
};

/// Where the run of a token's heads of `group` starts, in elements.
inline std::int64_t run_of(const Rows& rows, std::int64_t token, const HeadGroup& group) {
  return ((token * rows.batch + group.batch) * rows.heads + group.first) * rows.width;
}

/// Tokens [from, from + count) of `group` -> dense [count * heads, width] of T.
template <class T>
void gather(const Rows& rows, const HeadGroup& group, Interval tokens, T* to) {
  const std::int64_t run = std::int64_t{group.count} * rows.width;
  std::vector<float> floats(rows.dtype != stored_as<T> ? static_cast<std::size_t>(run) : 0);
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t, to += run) {
    const std::byte* from = rows.data + run_of(rows, t, group) * size_of(rows.dtype);
    if (rows.dtype == stored_as<T>) {
      std::memcpy(to, from, static_cast<std::size_t>(run) * sizeof(T));
    } else {
      to_floats(rows.dtype, from, floats);
      from_floats(stored_as<T>, floats, reinterpret_cast<std::byte*>(to));
    }
  }
}

/// The reverse, from fp32.
inline void scatter(const float* from, const Rows& rows, const HeadGroup& group, Interval tokens) {
  const std::int64_t run = std::int64_t{group.count} * rows.width;
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t, from += run) {
    from_floats(rows.dtype, {from, static_cast<std::size_t>(run)},
                rows.data + run_of(rows, t, group) * size_of(rows.dtype));
  }
}

/// to[columns, rows] = from[rows, columns]^T, in blocks that stay in the first cache.
template <class T>
void transpose(const T* from, std::int64_t rows, std::int64_t columns, T* to) {
  constexpr std::int64_t block = 16;
  for (std::int64_t r0 = 0; r0 < rows; r0 += block) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += block) {
      for (std::int64_t c = c0; c < std::min(c0 + block, columns); ++c) {
        for (std::int64_t r = r0; r < std::min(r0 + block, rows); ++r) {
          to[c * rows + r] = from[r * columns + c];
        }
      }
    }
  }
}

}  // namespace spp::runtime
