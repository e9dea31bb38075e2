// split_heads and join_heads (layer.hpp) as moves of boxes, for host and device.
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

}  // namespace spp::runtime
