// Bytes that the tensors of a list of operations take, per row: per local token, and per token of
// the text. What is kept for the backward is what the operations say (layer.hpp); what is alive
// beside that follows from who reads a tensor last.
//
// The gradients of Q, K and V over the sequence are attention's buffers, which a schedule knows,
// and are not counted here. The text is short beside the tokens: of its gradients none is counted.
#pragma once

#include "schedule/problem.hpp"
#include "transformer/layer_kernels.hpp"

#include <cstdint>

namespace spp {

struct RowBytes {
  std::int64_t tokens = 0, text = 0;
  friend bool operator==(const RowBytes&, const RowBytes&) = default;
};

/// That wait for the backward. Under Recompute::full: what is read and never written, the input.
RowBytes kept_bytes(const TensorOps& ops, DType dtype, Recompute recompute);
/// That come on top while the list's backward runs: what is computed again, and the most bytes of
/// gradients at once.
RowBytes working_bytes(const TensorOps& ops, DType dtype, Recompute recompute);
/// The most bytes at once in a forward that keeps nothing.
RowBytes forward_bytes(const TensorOps& ops, DType dtype);
/// K and V over the sequence, as they stand in attention.
std::int64_t cached_bytes(const TensorOps& ops, DType dtype);

}  // namespace spp
