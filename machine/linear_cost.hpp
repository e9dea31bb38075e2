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
// Nothing is faster than its FLOPs at the matrix units' peak, or grows shorter with a longer
// sequence, more of them, or more heads.
#pragma once

#include "base/json.hpp"
#include "machine/machine.hpp"

#include <cstdint>
#include <optional>

namespace spp {

/// `linear` of a generation. Plans have no such layers, so it is read where it is asked for.
struct LinearSpec {
  Sourced<Bandwidth> of_sm;  // that one SM reads and writes
  Sourced<double> memory;    // part of the memory's rate
  Sourced<Bytes> l2_of_sm;   // an SM's part of the L2
  Sourced<Seconds> startup;  // of one kernel
  struct Chunked {
    Sourced<Seconds> startup;  // of its kernels together
    Sourced<Seconds> step;     // a chunk
  };
  struct Fused {
    Sourced<Seconds> item;  // start and end of a head of a sequence
    Sourced<Seconds> step;  // a chunk
  };
  Chunked chunked;
  std::optional<Fused> fused;  // none: nobody measured such a kernel
};

/// Of a generation's document. InputError names the key; or says that there is none. Strict.
LinearSpec read_linear(const JsonView& generation);

/// A width-`d_conv` causal convolution over `channels` channels, in 16 bits.
struct ConvolutionWork {
  std::int64_t seq = 0, batch = 1, channels = 0;
};
Seconds convolution_time(const GpuSpec& gpu, const LinearSpec& spec, const ConvolutionWork& work);

/// q and k: key_heads x key_dim a token; v: value_heads x value_dim. In 16 bits, state in fp32.
struct GatedDeltaWork {
  std::int64_t seq = 0, batch = 1;
  std::int64_t key_heads = 1, key_dim = 128;
  std::int64_t value_heads = 1, value_dim = 128;
  bool fused = false;
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
};
/// Its chunked kernels. No table of them was at hand: the constants are those of the delta rule.
Seconds mamba_time(const GpuSpec& gpu, const LinearSpec& spec, const MambaWork& work, DType dtype);

}  // namespace spp
