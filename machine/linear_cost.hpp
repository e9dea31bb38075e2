// Time of a prefill's linear attention on one GPU, kernel by kernel: the gated delta rule
// (arXiv:2412.06464), Mamba2 (arXiv:2405.21060), and the short convolution in front of them.
//
// Streaming. A kernel that does little with what it reads moves B bytes at the rate of its SMs, or
// at the memory's where they do not stay in the L2:
//
//   streams(B) = max(B / (sms * of_sm), missed * B / (memory * bandwidth))
//
//   convolution   startup + streams(read and written once); called again and again on the same
//                 tensors they stay in an L2 that holds them, up to `l2_full` of it, and less and
//                 less up to `l2_gone`
//   chunked       several kernels (Triton, flash-linear-attention), each over chunks of 64 tokens,
//                 with their results in memory between them; one of them goes through a sequence's
//                 chunks one after another:
//                   startup + chunks * step + (sms^2 + missed^2)^(1/2)
//                 of the two sides of streams(), B counted kernel by kernel (gated_delta_bytes);
//                 what the L2 holds twice over is read back from it: missed = 1 - 2 * l2 / B
//   fused         one kernel (FlashInfer): a block of an SM takes a head of a sequence through all
//                 its chunks with the state on chip:
//                   startup + (busy^3 + (bytes / elementwise rate)^3)^(1/3)
//                   busy = ceil(batch * heads / sms) * (item + chunks * step)
//                 `step` for keys and values of 128, and by FLOPs for others
//
// Backwards the chunked kernels take `backward` times as long: they compute the forward's states
// again, and from these the gradients (flash-linear-attention). Tokens whose state comes from other
// ranks take `summary` a chunk besides, forward and backward: kernels that go through the chunks
// twice, for the state that a rank ends with if it began with none, and for the matrix that it
// multiplies a state with (fla/ops/cp/KCP.md). A convolution reads three tensors backward, not two.
//
// Nothing is faster than its FLOPs at the matrix units' peak, or grows shorter with a longer
// sequence, more of them, or more heads.
#pragma once

#include "machine/machine.hpp"
#include "schedule/problem.hpp"
#include "schedule/state_scan.hpp"

#include <cstdint>

namespace spp {

/// A width-`d_conv` causal convolution over `channels` channels, in 16 bits.
struct ConvolutionWork {
  std::int64_t seq = 0, batch = 1, channels = 0;
  Phase phase = Phase::forward;
};
Seconds convolution_time(const GpuSpec& gpu, const LinearSpec& spec, const ConvolutionWork& work);

/// q and k: key_heads x key_dim a token; v: value_heads x value_dim. In 16 bits, state in fp32.
struct GatedDeltaWork {
  std::int64_t seq = 0, batch = 1;
  std::int64_t key_heads = 1, key_dim = 128;
  std::int64_t value_heads = 1, value_dim = 128;
  bool fused = false;  // forward alone
  Phase phase = Phase::forward;
};
/// InputError(gpu) if it is to be fused, but nobody knows how this generation does that.
Seconds gated_delta_time(const GpuSpec& gpu, const LinearSpec& spec, const GatedDeltaWork& work,
                         DType dtype);
/// What the chunked kernels read and write for one token of one value head: keys times keys, the
/// triangular solve, the two products that follow from it, the walk over states, the output.
double gated_delta_bytes(std::int64_t key_dim, std::int64_t value_dim);

/// mamba_chunk_scan_combined: x is heads x head_dim a token, B and C groups x d_state.
struct MambaWork {
  std::int64_t seq = 0, batch = 1;
  std::int64_t heads = 1, head_dim = 64, d_state = 128, groups = 1, chunk = 256;
  Phase phase = Phase::forward;
};
/// Its chunked kernels. No table of them was at hand: the constants are those of the delta rule.
Seconds mamba_time(const GpuSpec& gpu, const LinearSpec& spec, const MambaWork& work, DType dtype);

/// Of a scan over sequences of `seq` tokens. gated_delta: chunked, or, if `fused` and the
/// generation has such a kernel, fused. InputError(gpu) if the generation does not say how linear
/// attention runs.
struct ScanWork {
  StateScan scan;  // heads of this rank
  std::int64_t seq = 0, batch = 1;
  bool fused = false;
  Phase phase = Phase::forward;
};
Seconds scan_time(const GpuSpec& gpu, const ScanWork& work, DType dtype);
/// What it takes besides where states come from other ranks. mamba2: nothing, its kernels find each
/// chunk's state before they pass states on.
Seconds summary_time(const GpuSpec& gpu, const ScanWork& work);
/// Relative spread of these.
double scan_spread(const GpuSpec& gpu, const ScanWork& work);
/// `linear` of the GPU's generation, else InputError(gpu).
const LinearSpec& linear_spec_of(const GpuSpec& gpu);

}  // namespace spp
