// split_heads and join_heads (layer.hpp) as moves of boxes, for host and device; and rows side by
// side in wider ones.
#pragma once

#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/layer.hpp"

#include <array>

namespace spp::runtime {

/// The heads of `part` (q, k or v), between it and the packed rows.
struct HeadMove {
  Rows part;
  Box from, to;
  int sign = 0;  // of the angles that pairs are turned by; 0: they are not
  /// Of a head that is normed, a row; to join: what was normed, and the gradient of its gain.
  Rows gain{}, d_gain{};
  Box normed{};
  [[nodiscard]] bool norms() const { return gain.count > 0; }
};
/// Of q, k and v. InternalError where rows do not belong together.
std::array<HeadMove, 3> moves_to_split(const SplitHeadsArgs& args);
std::array<HeadMove, 3> moves_to_join(const JoinHeadsArgs& args);

/// One of two rows that a wider one has side by side.
struct ColumnMove {
  Rows part;  // in heads as wide as both parts and the row have whole ones
  Box in_row, alone;
};
/// a [n, b, 1, A] and b [n, b, 1, B] in row [n, b, 1, A + B].
std::array<ColumnMove, 2> moves_of_columns(const Rows& row, const Rows& a, const Rows& b);

}  // namespace spp::runtime
