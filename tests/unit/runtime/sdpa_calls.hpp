// Calls of cuDNN's attention as blocks of tokens.
#pragma once

#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"

namespace spp::test {

/// Tokens that make the mask of a call: query row i is token i, or i + Nk - Nq.
inline runtime::Visibility visibility_of(const runtime::SdpaShape& s) {
  const std::int64_t first = s.mask == runtime::SdpaMask::bottom_right ? s.k_rows - s.q_rows : 0;
  return {.q_tokens = TokenSet({.begin = first, .count = s.q_rows}),
          .k_tokens = TokenSet({.begin = 0, .count = s.k_rows}),
          .mask = {.kind = s.mask == runtime::SdpaMask::none ? MaskKind::full : MaskKind::causal},
          .seq = s.k_rows};
}

}  // namespace spp::test
