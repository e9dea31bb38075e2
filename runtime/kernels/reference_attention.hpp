// Attention in fp64 from any storage type: obvious and slow. What the `reference` kernels run, and
// the oracle that everything else is compared with. Semantics: runtime/kernels/attention.hpp.
//
//   S = Q K^T / sqrt(D), -inf where not visible     lse = log(sum of e^S)     P = e^(S - lse)
//   forward   O = P V
//   backward  dP = dO V^T    dS = P (dP - delta) / sqrt(D)    delta = rowsum(dO O)
//             dQ = dS K      dK = dS^T Q     dV = P^T dO
//
// D is the width of q and k, Dv that of v and out.
//
// Linear attention: P = S, 0 where not visible, and dS = dP / sqrt(D) where visible; no lse, no
// delta (they are neither read nor written).
//
// Any part of a problem can be had alone: `visible` names the tokens of the rows that are given.
// For O, lse and dQ of a few queries give those rows and all keys; for dK and dV of a few keys
// those rows and all queries with their lse and delta. Memory beside the result: one head in fp64,
// and a strip of at most 2^20 scores, a few times.
#pragma once

#include "runtime/kernels/attention.hpp"

#include <span>

namespace spp::runtime {

struct ReferenceForward {
  Rows q, k, v;
  Visibility visible;
  std::span<double> out, lse;  // [Nq, B, H, Dv] and [Nq, B, H]; overwritten
  AttentionFunction function = AttentionFunction::softmax;
};
void reference_forward(const ReferenceForward& args, const Poll& poll = {});

struct ReferenceBackward {
  Rows q, k, v, d_out;
  Visibility visible;
  std::span<const double> lse, delta;  // [Nq, B, H], of *all* keys
  std::span<double> d_q;               // [Nq, B, H, D] or empty: not wanted; overwritten
  std::span<double> d_k, d_v;          // [Nk, B, Hkv, D] and [Nk, B, Hkv, Dv], or both empty
  AttentionFunction function = AttentionFunction::softmax;
};
void reference_backward(const ReferenceBackward& args, const Poll& poll = {});

/// delta[n, b, h] = sum over Dv of d_out * out, for reference_backward.
void reference_row_dot(const Rows& d_out, std::span<const double> out, std::span<double> delta);

}  // namespace spp::runtime
