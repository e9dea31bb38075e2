// Kernels of the host whose speed depends on a library: attention, what runs `attention_fwd` and
// `attention_bwd`, and GEMMs (layer.hpp). One file each in runtime/kernels/, listed in
// runtime/CMakeLists.txt, from which `attention_kernels::all()` is generated.
//
// Semantics: docs/schedule.md. Rows are [rows, batch, heads, width]; query head h attends to KV
// head h / (heads of q / heads of k). LSE is the natural logarithm, fp32. Softmax scale is
// 1/sqrt(head_dim). A query that sees no key of the block gets out 0 and lse -infinity; padded
// tokens (`seq` and beyond) are no keys for anyone.
#pragma once

#include "runtime/kernels/layer.hpp"
#include "runtime/kernels/rows.hpp"
#include "schedule/tokens.hpp"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace spp::runtime {

struct GemmArgs;  // layer.hpp

/// Called by a kernel between its tiles, about every millisecond of work, so that communication
/// moves on while the rank computes.
using Poll = std::function<void()>;

/// Which (query, key) pairs of a block count.
struct Visibility {
  TokenSet q_tokens, k_tokens;  // row i of q is the i-th token of q_tokens, in storage order
  Mask mask;
  std::int64_t seq = 0;  // keys from here on are padding
};

/// q [Nq, B, H, D], k [Nk, B, Hkv, D], v [Nk, B, Hkv, Dv], out [Nq, B, H, Dv], lse [Nq, B, H, 1]
/// fp32. Writes out and lse.
struct AttentionForwardArgs {
  Rows q, k, v, out, lse;
  Visibility visible;
};

/// d_out like out, d_q, d_k, d_v like q, k, v; lse and delta [Nq, B, H, 1] fp32, of *all* keys.
/// Overwrites d_q, d_k, d_v with what this block contributes. (A query with lse -infinity
/// contributes nothing.)
struct AttentionBackwardArgs {
  Rows q, k, v, d_out, lse, delta, d_q, d_k, d_v;
  Visibility visible;
};

/// What a block reads of queries, keys and values: their shapes say what a call costs.
struct BlockRows {
  Rows q, k, v;
};
template <class Args>
BlockRows block_rows(const Args& args) {
  return {.q = args.q, .k = args.k, .v = args.v};
}

/// Kernels of one rank: may keep workspaces and primitives, is used by one thread.
class AttentionKernels {
 public:
  AttentionKernels() = default;
  AttentionKernels(const AttentionKernels&) = delete;
  AttentionKernels& operator=(const AttentionKernels&) = delete;
  virtual ~AttentionKernels() = default;
  virtual void forward(const AttentionForwardArgs& args, const Poll& poll) = 0;
  virtual void backward(const AttentionBackwardArgs& args, const Poll& poll) = 0;
  virtual void gemm(const GemmArgs& args, const Poll& poll) = 0;
};

struct AttentionBackend {
  std::string_view name;   // "reference"
  std::string_view title;  // "plain loops in fp64"
  /// "" if it can run here with this type, else why not: not compiled in, no bf16 on this CPU, …
  std::string (*why_not)(DType dtype);
  /// Only if why_not() is "".
  std::unique_ptr<AttentionKernels> (*make)();
};

namespace attention_kernels {
/// All back ends, in the order of runtime/CMakeLists.txt. Generated.
std::span<const AttentionBackend* const> all();
/// By name; unknown names are an InputError(where) with "did you mean".
const AttentionBackend& by_name(std::string_view name, std::string_view where);
}  // namespace attention_kernels

}  // namespace spp::runtime
