// Heads of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), on the host:
// as the kernels of layer.hpp.
#pragma once

#include "runtime/kernels/rows.hpp"
#include "schedule/tokens.hpp"

namespace spp::runtime {

/// What latents were projected up to, and the heads made of it. Of heads as wide as d, of which r
/// numbers are turned by their position, and of values as wide as w:
///   q_row    [n, b, 1, H d]            q
///   kv_row   [n, b, 1, H (d - r + w)]  of each head [k's first d - r numbers | v]
///   position [n, b, 1, r]              the last r numbers of all heads of k
///   q, k     [n, b, H, d], v [n, b, H, w]
/// The last r numbers of q and of k are turned as in SplitHeadsArgs, in pairs (i, i + r/2).
/// `positions`: row i is its i-th token, in storage order; theta 0: nothing is turned.
struct LatentHeadsArgs {
  Rows q_row, kv_row, position, q, k, v;
  TokenSet positions;
  double theta = 0;
};
void latent_heads(const LatentHeadsArgs& args);
/// The backward: gradients of q, k and v become those of the rows; that of `position` is the sum
/// over these heads, in fp32.
void join_latent_heads(const LatentHeadsArgs& args);

/// Numbers of a head, as above.
struct LatentShape {
  std::int64_t heads = 0, content = 0, turned = 0, value = 0;  // d = content + turned
};
/// InternalError where rows do not belong together.
LatentShape shape_of_latents(const LatentHeadsArgs& args);

}  // namespace spp::runtime
