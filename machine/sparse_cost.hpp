// Time of sparse attention (DeepSeek Sparse Attention, arXiv:2512.02556) on one GPU: to picked
// keys, and beside or instead of them to those of a window or to entries made of several tokens
// (DeepSeek-V4, arXiv:2606.19348), which the same kernels take as a list of keys for each query
// (FlashMLA's sparse prefill; SGLang #24225).
//
//   attention    2 (head_dim + value_dim) FLOPs a pair that meets and head, backward
//                6 head_dim + 4 value_dim, at a part of the 16-bit peak. A kernel works on so many
//                heads at least; fewer are padded: a query's keys are gathered for all of its heads
//   index        2 dim FLOPs a visible pair and head of the indexer in 8 bits, and its sums over
//                heads, 4 bytes a pair: written once, read twice by the radix selection of the best
//                (TileLang examples/deepseek_v32/topk_selector.py). Backward picked pairs alone:
//                their scores again and both gradients, gathered as attention's backward is
#pragma once

#include "machine/machine.hpp"
#include "schedule/problem.hpp"

#include <cstdint>

namespace spp {

/// Of a GPU's queries: pairs are of all of them, of one head.
struct PickedWork {
  double visible = 0;  // pairs that an indexer scores
  double picked = 0;   // of these
  double beside = 0;   // that meet without being picked
  int q_heads = 1, head_dim = 576, value_dim = 512;
  int index_heads = 64, index_dim = 128;
  Phase phase = Phase::forward;
};
/// Attention, index and selection together. InputError(gpu) if the generation does not say how they
/// run.
Seconds picked_attention_time(const GpuSpec& gpu, const PickedWork& work, DType dtype);
/// Relative spread of that.
double picked_attention_spread(const GpuSpec& gpu, const PickedWork& work, DType dtype);

}  // namespace spp
