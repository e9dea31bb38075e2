// Attention kernels of a device: what runs `attention_fwd` and `attention_bwd` there. One file each
// in runtime/device/cuda/attention/, listed in runtime/CMakeLists.txt, from which
// `device_attention::all()` is generated.
//
// Semantics, shapes and units as in runtime/kernels/attention.hpp; rows point to device memory and
// work is put on a stream. Kernels and their memory live until the stream has done them.
#pragma once

#include "runtime/kernels/attention.hpp"

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace spp::runtime::cuda {

/// Of one rank: may keep workspaces and tables, is used by one thread and on one stream. The first
/// call with a shape may take long (it prepares); later ones only enqueue.
class DeviceAttention {
 public:
  DeviceAttention() = default;
  DeviceAttention(const DeviceAttention&) = delete;
  DeviceAttention& operator=(const DeviceAttention&) = delete;
  virtual ~DeviceAttention() = default;
  virtual void forward(const AttentionForwardArgs& args, cudaStream_t stream) = 0;
  virtual void backward(const AttentionBackwardArgs& args, cudaStream_t stream) = 0;
};

struct DeviceAttentionBackend {
  std::string_view name;   // "reference"
  std::string_view title;  // "plain loops in fp32"
  /// "" if it can run blocks of these queries and keys with the problem's heads, type and mask on
  /// the current device, else why not.
  std::string (*why_not)(const Problem& problem, const TokenSet& q, const TokenSet& k);
  /// Only if why_not() is "". `multiprocessors`: SMs that its streams can use; 0: all.
  std::unique_ptr<DeviceAttention> (*make)(int multiprocessors);
};

namespace device_attention {
/// All back ends, in the order of runtime/CMakeLists.txt. Generated.
std::span<const DeviceAttentionBackend* const> all();
/// By name; unknown names are an InputError(where) with "did you mean".
const DeviceAttentionBackend& by_name(std::string_view name, std::string_view where);
}  // namespace device_attention

}  // namespace spp::runtime::cuda
