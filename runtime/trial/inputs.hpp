// Test data: every element of every input tensor is a function of its global place, so that any
// rank can make any part of it, and the oracle too.
#pragma once

#include "runtime/kernels/rows.hpp"
#include "schedule/op.hpp"

namespace spp::runtime {

/// Elements are uniform in [-1, 1), rounded to the storage type; tokens and heads that were padded
/// are 0.
struct InputData {
  Problem requested;  // before padding
  std::uint64_t seed = 1;

  [[nodiscard]] float value(Tensor tensor, std::int64_t batch, std::int64_t token, int head,
                            int dim) const;
  /// Fills rows: row i is the i-th token of `tokens`, its heads are `heads`.
  void fill(Tensor tensor, const TokenSet& tokens, HeadRange heads, const Rows& rows) const;
};

}  // namespace spp::runtime
