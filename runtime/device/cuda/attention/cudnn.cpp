// cuDNN's attention on a device: the calls are made by runtime/kernels/cudnn/, the kernels around
// them are ours, and workspaces live here.
#include "runtime/device/cuda/attention.hpp"
#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/cuda/kernels.hpp"
#include "runtime/kernels/cudnn/attention.hpp"

#include <algorithm>
#include <vector>

namespace spp::runtime::cuda {
namespace {

class CudnnKernels final : public DeviceAttention {
 public:
  explicit CudnnKernels(int multiprocessors)
      : attention_(
            make_sdpa({.sms = multiprocessors}),
            {.fill = [](const Rows& rows, float value,
                        CudaStream stream) { cuda::fill(rows, value, stream); },
             .accumulate = [](const Rows& sum, const Rows& part,
                              CudaStream stream) { cuda::accumulate(sum, part, false, stream); },
             .project = [](const Rows& d_out, const Rows& delta, const Rows& out,
                           CudaStream stream) { cuda::project(d_out, delta, out, stream); }}) {}

  void forward(const AttentionForwardArgs& args, cudaStream_t stream) override {
    attention_.forward(args, workspace(attention_.forward_workspace(args)), stream);
  }
  void backward(const AttentionBackwardArgs& args, cudaStream_t stream) override {
    attention_.backward(args, workspace(attention_.backward_workspace(args)), stream);
  }

 private:
  /// Grows in the first iteration. Smaller ones stay, since freeing waits for the whole device.
  std::byte* workspace(Bytes needed) {
    const auto bytes = static_cast<std::size_t>(needed.value());
    if (workspaces_.empty() || workspaces_.back().size() < bytes) {
      workspaces_.emplace_back(std::max<std::size_t>(bytes, 256));
    }
    return workspaces_.back().data();
  }

  CudnnAttention attention_;
  std::vector<DeviceBuffer> workspaces_;
};

std::string why_not(const Problem& problem, const TokenSet& q_tokens, const TokenSet& k_tokens) {
  if (std::string missing = sdpa_why_not(); !missing.empty()) {
    return missing;
  }
  const Rows q{.data = nullptr,
               .dtype = problem.dtype,
               .count = q_tokens.count(),
               .batch = problem.batch,
               .heads = problem.q_heads,
               .width = problem.head_dim};
  Rows k = q;
  k.heads = problem.kv_heads;
  k.count = k_tokens.count();
  return cudnn_why_not(
      q, k, {.q_tokens = q_tokens, .k_tokens = k_tokens, .mask = problem.mask, .seq = problem.seq});
}

std::unique_ptr<DeviceAttention> make(int multiprocessors) {
  return std::make_unique<CudnnKernels>(multiprocessors);
}

}  // namespace

namespace device_attention {
extern const DeviceAttentionBackend cudnn{
    .name = "cudnn", .title = "cuDNN's SDPA graphs", .why_not = why_not, .make = make};
}  // namespace device_attention

}  // namespace spp::runtime::cuda
