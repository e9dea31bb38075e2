// Kernels of a device whose speed depends on a library: attention, what runs `attention_fwd` and
// `attention_bwd` there, and GEMMs. One file each in runtime/device/cuda/attention/, listed in
// runtime/CMakeLists.txt, from which `device_attention::all()` is generated.
//
// Semantics, shapes and units as in runtime/kernels/attention.hpp and layer.hpp; rows point to
// device memory and work is put on a stream. Kernels and their memory live until the stream has
// done them.
//
// Whatever may wait for a device (memory, modules) or takes long (compiling) is done in prepare(),
// before the first transfer of a run: while a transfer waits on one device for a peer, nothing on
// the way to that peer may wait for the device.
#pragma once

#include "runtime/device/cuda/cuda.hpp"
#include "runtime/kernels/attention.hpp"

#include <cuda_runtime_api.h>

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace spp::runtime::cuda {

/// Of one rank: may keep workspaces and tables, is used by one thread and on one stream.
class DeviceAttention {
 public:
  DeviceAttention() = default;
  DeviceAttention(const DeviceAttention&) = delete;
  DeviceAttention& operator=(const DeviceAttention&) = delete;
  virtual ~DeviceAttention() = default;
  /// Before the first call with such a block. May run it: what a call writes has any content then.
  virtual void prepare(const AttentionForwardArgs& args, cudaStream_t stream) = 0;
  virtual void prepare(const AttentionBackwardArgs& args, cudaStream_t stream) = 0;
  virtual void prepare(const GemmArgs& args, cudaStream_t stream) = 0;
  /// These only enqueue.
  virtual void forward(const AttentionForwardArgs& args, cudaStream_t stream) = 0;
  virtual void backward(const AttentionBackwardArgs& args, cudaStream_t stream) = 0;
  virtual void gemm(const GemmArgs& args, cudaStream_t stream) = 0;
  /// The SMs that the kernels of its calls were made for, 0: all of the device; empty: any.
  [[nodiscard]] virtual std::set<int> made_for() const { return {}; }
  /// What its library said when it did not take the streams of a share of the device, so that its
  /// kernels run on all SMs; "": it takes them.
  [[nodiscard]] virtual std::string refusal() const { return ""; }
};

struct DeviceAttentionBackend {
  std::string_view name;   // "reference"
  std::string_view title;  // "plain loops in fp32"
  /// "" if it can run blocks of these queries and keys with the problem's heads, widths, type and
  /// mask on the current device, else why not.
  std::string (*why_not)(const Problem& problem, const TokenSet& q, const TokenSet& k);
  /// Device memory beside its rows that a block needs, about; of blocks that why_not() has nothing
  /// against. Asks no device.
  Bytes (*workspace)(const BlockRows& rows, const Visibility& visible, Phase phase);
  /// The same of GEMMs, of any shape, on a stream.
  Bytes gemm_workspace{};
  /// Only if why_not() is "". `streams`: where its streams come from; null: the primary context.
  std::unique_ptr<DeviceAttention> (*make)(const StreamSource* streams);
};

namespace device_attention {
/// All back ends, in the order of runtime/CMakeLists.txt. Generated.
std::span<const DeviceAttentionBackend* const> all();
/// By name; unknown names are an InputError(where) with "did you mean".
const DeviceAttentionBackend& by_name(std::string_view name, std::string_view where);
}  // namespace device_attention

}  // namespace spp::runtime::cuda
