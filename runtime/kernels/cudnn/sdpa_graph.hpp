// Attention as graphs of matrix products, reductions and pointwise operations, which cuDNN's
// engines recognise and run as one fused kernel (FlashAttention, Dao, arXiv:2307.08691). The graphs
// are those that cudnn-frontend 1.23 emits (node/scaled_dot_product_flash_attention.h), as cuDNN's
// own log shows them. cuDNN sees [batch, heads, rows, width]; strides say that tokens are outermost
// in memory. Statistics (lse, delta, row_sum) are dense in that order.
//
//   forward    S = scale Q K^T, hidden: -inf     m = row max of S     l = row sum of e^(S - m)
//              lse = m + log l                   O = (e^(S - m) / l) V
//   backward   delta = 1 * row sum of dO O       P = e^(S - lse)      dV = P^T dO
//              dS = scale P (dO V^T - delta)     dK = dS^T Q          dQ = dS K
#pragma once

#if defined(SPP_CUDNN)

#include "runtime/kernels/cudnn/backend.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"

namespace spp::runtime::cudnn {

/// Names of the tensors and numbers in a VariantPack.
namespace uid {
enum : std::int64_t {
  q = 1,
  k,
  v,
  out,
  lse,
  d_out,
  delta,
  d_q,
  d_k,
  d_v,
  d_q_sum,         // fp32, dense [batch, heads, rows, width]: written, then cast to d_q
  row_sum,         // fp32, dense [batch, heads, rows]: written, then read as delta
  scale,           // float
  dropout,         // float, 1
  one,             // float, 1; SdpaDelta::given only
  minus_infinity,  // float; causal masks only
  diagonal         // int32, k_rows - q_rows; bottom-right masks only
};
}  // namespace uid

/// Reads q, k, v; writes out, lse.
Graph forward_graph(const SdpaShape& shape);

/// Reads q, k, v, d_out, lse, and out or delta (SdpaOptions::delta); writes d_q, d_k, d_v, row_sum,
/// and d_q_sum unless deterministic.
Graph backward_graph(const SdpaShape& shape, const SdpaOptions& options);

}  // namespace spp::runtime::cudnn

#endif
