// attention_fwd and attention_bwd of a schedule by calls of cuDNN: the block is cut into sections
// (sections.hpp), each one call. Every query row lies in one section, so what is written to out,
// lse and d_q never meets; d_k and d_v of sections that share keys are added up.
//
// Rows point to device memory; all work is put on one stream. No CUDA here: the calls are behind
// Sdpa, the few element-wise kernels behind RowKernels, so that this file is tested on the host
// (tests/unit/runtime/cudnn_attention_test.cpp).
#pragma once

#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"
#include "runtime/kernels/cudnn/sections.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace spp::runtime {

/// Element-wise kernels of the device that cuDNN's calls need around them.
struct RowKernels {
  /// Every element becomes `value` (0 or -infinity).
  std::function<void(const Rows& rows, float value, CudaStream)> fill;
  /// sum <- sum + part, in fp32.
  std::function<void(const Rows& sum, const Rows& part, CudaStream)> accumulate;
  /// out [n, B, H, Dv] <- delta / (d_out . d_out) * d_out, row by row, in fp32; 0 where d_out is 0:
  /// rows with rowsum(d_out * out) = delta. Only for SdpaDelta::from_out.
  std::function<void(const Rows& d_out, const Rows& delta, const Rows& out, CudaStream)> project;
  /// to [columns, rows] <- from [rows, columns], numbers in fp32: statistics lie one way in a
  /// schedule's rows and the other way in a call (sdpa.hpp).
  std::function<void(const std::byte* from, std::byte* to, std::int64_t rows, std::int64_t columns,
                     CudaStream)>
      transpose;
};

/// Attention of one rank; used by one thread. Arguments are those of the host's kernels
/// (runtime/kernels/attention.hpp) with device pointers.
///
/// The backward. Schedules give delta, but the graph of SdpaDelta::from_out wants an `out` to sum
/// over. Any with the right row sums will do, so it gets delta times d_out / |d_out|^2, in the
/// type of d_out: Dv roundings whose errors average, less than those of the real out in that type.
class CudnnAttention {
 public:
  /// `delta` must be what `sdpa` was made with.
  CudnnAttention(std::unique_ptr<Sdpa> sdpa, RowKernels kernels,
                 SdpaDelta delta = SdpaDelta::from_out);

  /// Device memory that a call needs, at a multiple of 256. Compiles what is new (a second each):
  /// ask before measuring. InputError, like the calls, when cuDNN cannot do the block.
  Bytes forward_workspace(const AttentionForwardArgs& args);
  Bytes backward_workspace(const AttentionBackwardArgs& args);

  void forward(const AttentionForwardArgs& args, std::byte* workspace, CudaStream stream);
  void backward(const AttentionBackwardArgs& args, std::byte* workspace, CudaStream stream);

  /// Of the calls that a block makes.
  std::vector<SdpaShape> shapes(const BlockRows& rows, const Visibility& visible);
  [[nodiscard]] const Sdpa& sdpa() const { return *sdpa_; }

 private:
  const std::vector<Section>& cut(const Visibility& visible);
  /// Of all calls over these sections, the most that one needs.
  Bytes call_workspace(const std::vector<Section>& list, const BlockRows& rows, Phase phase);

  std::unique_ptr<Sdpa> sdpa_;
  RowKernels kernels_;
  SdpaDelta delta_;
  std::map<std::string, std::vector<Section>> cuts_;  // by what the block is about
};

/// "" or why cuDNN cannot do this block: its mask, its type, its heads. Needs no cuDNN.
std::string cudnn_why_not(const BlockRows& rows, const Visibility& visible);

/// What of the workspaces can be told without cuDNN: all but what its plans ask for themselves.
/// Of a block that cudnn_why_not has nothing against.
Bytes cudnn_own_workspace(const BlockRows& rows, const Visibility& visible, Phase phase);

/// A call over a section of a block with these whole rows.
SdpaShape shape_of(const Section& section, const BlockRows& rows);

}  // namespace spp::runtime
