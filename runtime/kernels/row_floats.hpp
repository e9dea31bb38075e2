// Rows as floats and back, a row at a time: one loop for each operation, whatever the types.
#pragma once

#include "runtime/kernels/convert.hpp"
#include "runtime/kernels/rows.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace spp::runtime {

inline std::vector<float> floats(std::int64_t count) {
  return std::vector<float>(static_cast<std::size_t>(count));
}

/// Elements [first, first + to.size()) of row `row`.
inline void read(const Rows& rows, std::int64_t row, std::int64_t first, std::span<float> to) {
  to_floats(rows.dtype, rows.data + (row * matrix_columns(rows) + first) * size_of(rows.dtype), to);
}
inline void write(std::span<const float> from, const Rows& rows, std::int64_t row,
                  std::int64_t first) {
  from_floats(rows.dtype, from,
              rows.data + (row * matrix_columns(rows) + first) * size_of(rows.dtype));
}

}  // namespace spp::runtime
