// Linear attention that carries a state of key_dim x value_dim numbers a value head through a
// sequence, with gates: what its chunked kernels compute. No schedule executes it; `linear_fwd`
// (op.hpp) has no gates.
//
//   gated_delta  S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T, o_t = S_t^T q_t
//                (gated DeltaNet, arXiv:2412.06464)
//   mamba2       S_t = a_t S_{t-1} + B_t (dt_t x_t)^T, y_t = S_t^T C_t + D x_t
//                (arXiv:2405.21060): B and C are its keys and queries, of groups of heads; x its
//                values
#pragma once

#include "base/units.hpp"

#include <cstdint>

namespace spp {

enum class StateRule : std::uint8_t { gated_delta, mamba2 };

struct StateScan {
  StateRule rule = StateRule::gated_delta;
  int key_heads = 1, key_dim = 128;  // of keys, and of queries; mamba2: groups and d_state
  int value_heads = 1, value_dim = 128;
  int chunk = 64;  // tokens that its kernels take at once
  [[nodiscard]] std::int64_t key_width() const { return std::int64_t{key_heads} * key_dim; }
  [[nodiscard]] std::int64_t value_width() const { return std::int64_t{value_heads} * value_dim; }
  /// Numbers of a sequence's state.
  [[nodiscard]] std::int64_t state() const { return value_width() * key_dim; }
  friend bool operator==(const StateScan&, const StateScan&) = default;
};

/// FLOPs of the forward over `tokens`, in whole products. gated_delta: of a chunk and value head
/// keys and queries with keys, W and U, the state's part in U, in the output and its update, the
/// output. mamba2: the chunk's part of the state, the states' and the chunk's part of the output;
/// C B once a group.
FlopCount forward_flops(const StateScan& scan, double tokens);

}  // namespace spp
