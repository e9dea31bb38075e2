// Bytes that the tensors of a list of operations take on one rank. What is kept for the backward is
// what the operations say (layer.hpp); what is alive beside that follows from who reads a tensor
// last. Of what is gathered for an operation each rank keeps its own part.
//
// The gradients of Q, K and V over the sequence are attention's buffers, which a schedule knows,
// and are not counted here. The text is short beside the tokens: of its gradients none is counted,
// and of the last tokens' tensors none is.
#pragma once

#include "base/units.hpp"
#include "transformer/layer_split.hpp"
#include "transformer/recompute.hpp"

namespace spp {

/// That wait for the backward. Under Recompute::full: what is read and never written, the input.
Bytes kept_bytes(const TensorOps& ops, const LocalTokens& local,
                 const Recomputation& recomputation);
/// That come on top while the list's backward runs: what is computed again, and the most bytes of
/// gradients and of gathered tensors at once.
Bytes working_bytes(const TensorOps& ops, const LocalTokens& local,
                    const Recomputation& recomputation);
/// That wait between the halves of a backward that is cut: what gradients of weights read, inputs
/// of products and gradients of what these gave: these as gathered over tensor ranks, inputs as
/// they are kept (LocalTokens::gathered_kept).
Bytes cut_bytes(const TensorOps& ops, const LocalTokens& local);
/// The most bytes at once in a forward that keeps nothing. `position_working`: bytes of a number of
/// Q that RoPE has beside.
Bytes forward_bytes(const TensorOps& ops, const LocalTokens& local, double position_working = 0);
/// Of all rows of what row-parallel GEMMs give before it is scattered.
Bytes scattered_sums(const TensorOps& ops, const LocalTokens& local);
/// What attention of later tokens reads: K and V as they stand in attention, or the latent that
/// they are made from, which every rank of a tensor-parallel group has. Of `local`, and in front of
/// it: of `whole` tokens, which all have by heads, latents.
Bytes cached_bytes(const TensorOps& ops, const LocalTokens& local, std::int64_t whole = 0);
/// K and V that are made from latents of the tokens in front, for attention.
Bytes projected_bytes(const TensorOps& ops, const LocalTokens& local);

}  // namespace spp
