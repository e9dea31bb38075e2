// Tensors in the memory of a rank. A buffer of a schedule is stored as rows, one a token:
// [rows, batch, heads, width], dense, tokens outermost, so that any run of tokens is one piece of
// memory (docs/schedule.md, "Storage").
#pragma once

#include "schedule/problem.hpp"

#include <cstddef>
#include <cstdint>

namespace spp::runtime {

/// A run of rows of a buffer: dense [count, batch, heads, width] of `dtype` at `data`. Does not
/// own.
struct Rows {
  std::byte* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t count = 0;
  std::int64_t batch = 1;
  int heads = 1;
  int width = 1;  // head_dim; value_dim; 1 for lse and delta

  [[nodiscard]] std::int64_t elements() const { return count * batch * heads * width; }
  [[nodiscard]] std::int64_t bytes() const { return elements() * size_of(dtype); }
};

/// Rows as a matrix, row-major: a row for each (row, batch), all heads side by side.
inline std::int64_t matrix_rows(const Rows& rows) { return rows.count * rows.batch; }
inline std::int64_t matrix_columns(const Rows& rows) {
  return std::int64_t{rows.heads} * rows.width;
}

}  // namespace spp::runtime
