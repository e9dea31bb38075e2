// The kernels of a transformer layer beside its attention, on the host. A GEMM belongs to a back
// end (attention.hpp), the others are here: bound by memory, computed in fp32, rounded once to the
// type of the output, of any mixture of types.
//
// Rows [count, batch, heads, width] are read as a matrix of count * batch rows and heads * width
// columns, row-major; weights [K, N] likewise, as rows with batch 1. No rows are legal everywhere.
// Rows of other shapes than said are an InternalError.
#pragma once

#include "runtime/kernels/rows.hpp"
#include "schedule/graph.hpp"
#include "schedule/tokens.hpp"

#include <cstdint>

namespace spp::runtime {

/// c <- op(a) op(b), or c + op(a) op(b) with `add`; accumulated in fp32 (`reference`: fp64),
/// rounded once. c may be of another type than a and b (main gradients in fp32), and is neither of
/// them.
///   forward          y = x w          a = x   [M, K], b = w   [K, N], c [M, N]
///   input_gradient   d_x = d_y w^T    a = d_y [M, N], b = w   [K, N], c [M, K]
///   weight_gradient  d_w = x^T d_y    a = x   [M, K], b = d_y [M, N], c [K, N]
struct GemmArgs {
  Rows a, b, c;
  GemmKind kind = GemmKind::forward;
  bool add = false;
};

/// c [m, n] = op(a) [m, k] op(b) [k, n].
GemmShape gemm_shape(const GemmArgs& args);

/// Each row of y + bias [K, 1], with weights [n, b, 1, 1] in fp32 of y + weight bias;
/// y [n, b, heads, width], K = heads * width.
struct BiasArgs {
  Rows y, bias;
  Rows weights{};  // no rows: 1
};
void add_bias(const BiasArgs& args);
/// d_bias [K, 1]: the sum over all rows of d_y, or of weight d_y; or added to it.
struct BiasGradientArgs {
  Rows d_y, d_bias;
  Rows weights{};  // no rows: 1
  bool add = false;
};
void bias_gradient(const BiasGradientArgs& args);
/// d_weights [n, b, 1, 1] in fp32, overwritten: of each row of d_y its product with bias.
struct BiasWeightsArgs {
  Rows d_y, bias, d_weights;
};
void bias_weights_gradient(const BiasWeightsArgs& args);

/// x, y [n, b, heads, width], normalised over heads * width; y may be x.
///   rms    (Zhang, Sennrich, arXiv:1910.07467)   y = x r gain,  r = 1 / sqrt(mean(x^2) + epsilon)
///   layer  (Ba et al., arXiv:1607.06450)         y = (x - mean) r gain + bias,
///                                                r = 1 / sqrt(mean((x - mean)^2) + epsilon)
/// weight: gain, or gain and bias, a row each. statistics, fp32: r [n, b, 1, 1], or mean and r
/// [n, b, 1, 2].
struct NormArgs {
  Rows x, weight, y, statistics;
};
void rms_norm(const NormArgs& args, float epsilon);
void layer_norm(const NormArgs& args, float epsilon);

/// With g = gain d_y, z = (x - mean) r:   d_x = r (g - z mean(g z) [- mean(g): layer])
///                                        d_gain = sum over rows of d_y z,   d_bias = that of d_y
/// d_x may be x or d_y; d_weight is like weight, of any type, overwritten.
struct NormBackwardArgs {
  Rows x, weight, statistics, d_y, d_x, d_weight;
};
void rms_norm_backward(const NormBackwardArgs& args);
void layer_norm_backward(const NormBackwardArgs& args);

/// A rank's part of a fused projection, qkv [n, b, 1, (Hq + 2 Hkv) d] = [q | k | v], and its heads
/// q [n, b, Hq, d], k, v [n, b, Hkv, d]. `positions`: row i is its i-th token, in storage order.
/// Rotary embedding (Su et al., arXiv:2104.09864, eq. 34, in pairs (i, i + d/2), as LLaMA has them)
/// of q and k by the angle position * theta^(-2i/d); theta 0: none. With `gain` [2, 1, 1, d], of q
/// and of k, each of their heads is normed before: y = x r gain, r = 1 / sqrt(mean(x^2) + epsilon).
struct SplitHeadsArgs {
  Rows qkv, q, k, v;
  TokenSet positions;
  double theta = 0;
  Rows gain{};  // no rows: heads are not normed
  float epsilon = 0;
};
void split_heads(const SplitHeadsArgs& args);
/// The backward: gradients of q and k, rotated back, and of v become that of qkv. Through norms,
/// with g = gain d_y, z = x r, and r computed again from the row `x` that was split, like qkv:
///   d_x = r (g - z mean(g z)),   d_gain = sum over rows and heads of d_y z, overwritten
struct JoinHeadsArgs {
  SplitHeadsArgs heads;
  Rows x{}, d_gain{};  // like qkv; like gain
};
void join_heads(const JoinHeadsArgs& args);

/// a = silu(gate) up.
void swiglu(const Rows& gate, const Rows& up, const Rows& a);
struct SwigluBackwardArgs {
  Rows gate, up, d_a, d_gate, d_up;
};
void swiglu_backward(const SwigluBackwardArgs& args);
/// In its tanh form (activations.hpp).
void gelu(const Rows& h, const Rows& a);
void gelu_backward(const Rows& h, const Rows& d_a, const Rows& d_h);
/// z = x + y; z may be either.
void add(const Rows& x, const Rows& y, const Rows& z);

}  // namespace spp::runtime
