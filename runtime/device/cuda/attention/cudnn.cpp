// cuDNN's attention on a device: the calls are made by runtime/kernels/cudnn/, the kernels around
// them are ours, and workspaces live here. GEMMs are cuBLASLt's (cublas/gemm.hpp), but for mixtures
// of types that it does not have.
#include "base/error.hpp"
#include "runtime/device/cuda/attention.hpp"
#include "runtime/device/cuda/cublas/gemm.hpp"
#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/cuda/kernels.hpp"
#include "runtime/device/cuda/layer_kernels.hpp"
#include "runtime/kernels/cudnn/attention.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace spp::runtime::cuda {
namespace {

/// Brings calls to a stream of the device's primary context (SdpaOptions::detour). Its kernels may
/// run on all SMs, also those of other ranks' shares.
class Detour {
 public:
  void operator()(CudaStream stream, const std::function<void(CudaStream)>& work) const {
    there_.record(stream);
    wait(own_.get(), there_.get());
    work(own_.get());
    back_.record(own_.get());
    wait(stream, back_.get());
  }

 private:
  Stream own_{priorities().normal};
  Event there_, back_;
};

SdpaOptions options_for(const StreamSource* streams) {
  SdpaOptions options;
  check(cudaGetDevice(&options.device), "cudaGetDevice");
  if (streams != nullptr) {
    options.sms = streams->multiprocessors();
    options.enter = [streams] { return streams->enter(); };
    // Made when it is first needed: as a rule it is not, and a stream wants a hardware queue.
    options.detour = [detour = std::shared_ptr<const Detour>()](
                         CudaStream stream, const std::function<void(CudaStream)>& work) mutable {
      if (detour == nullptr) {
        detour = std::make_shared<const Detour>();
      }
      (*detour)(stream, work);
    };
  }
  return options;
}

class CudnnKernels final : public DeviceAttention {
 public:
  explicit CudnnKernels(const StreamSource* streams)
      : streams_(streams),
        attention_(
            make_sdpa(options_for(streams)),
            {.fill = [](const Rows& rows, float value,
                        CudaStream stream) { cuda::fill(rows, value, stream); },
             .accumulate = [](const Rows& sum, const Rows& part,
                              CudaStream stream) { cuda::accumulate(sum, part, false, stream); },
             .project = [](const Rows& d_out, const Rows& delta, const Rows& out,
                           CudaStream stream) { cuda::project(d_out, delta, out, stream); },
             .transpose = cuda::transpose}) {}

  void prepare(const AttentionForwardArgs& args, cudaStream_t stream) override {
    grow(attention_.forward_workspace(args));
    if (is_new(block_rows(args), args.visible, Phase::forward)) {
      forward(args, stream);  // what is compiled may be loaded at its first launch only
    }
  }
  void prepare(const AttentionBackwardArgs& args, cudaStream_t stream) override {
    grow(attention_.backward_workspace(args));
    if (is_new(block_rows(args), args.visible, Phase::backward)) {
      backward(args, stream);
    }
  }
  void prepare(const GemmArgs& args, cudaStream_t stream) override {
    if (CublasGemm::takes(args)) {
      if (gemm_ == nullptr) {
        gemm_ = std::make_unique<CublasGemm>(streams_);
      }
      grow(CublasGemm::workspace);
      if (!gemm_->knows(args)) {
        gemm(args, stream);  // finds an algorithm, whose module may be loaded at its first launch
      }
    }
  }
  void forward(const AttentionForwardArgs& args, cudaStream_t stream) override {
    attention_.forward(args, workspaces_.back().data(), stream);
  }
  void backward(const AttentionBackwardArgs& args, cudaStream_t stream) override {
    attention_.backward(args, workspaces_.back().data(), stream);
  }
  void gemm(const GemmArgs& args, cudaStream_t stream) override {
    if (CublasGemm::takes(args)) {
      ensure(gemm_ != nullptr, "a GEMM that was not prepared");
      gemm_->run(args, workspaces_.back().data(), stream);
    } else {
      cuda::gemm(args, stream);
    }
  }
  [[nodiscard]] std::set<int> made_for() const override { return attention_.sdpa().plan_sms(); }
  [[nodiscard]] std::string refusal() const override { return attention_.sdpa().refusal(); }

 private:
  /// Smaller ones stay: calls that were enqueued with them may still run.
  void grow(Bytes needed) {
    const auto bytes = static_cast<std::size_t>(needed.value());
    if (workspaces_.empty() || workspaces_.back().size() < bytes) {
      workspaces_.emplace_back(std::max<std::size_t>(bytes, 256));
    }
  }
  /// Whether one of the calls that a block makes has not been prepared.
  bool is_new(const BlockRows& rows, const Visibility& visible, Phase phase) {
    bool some = false;
    for (const SdpaShape& shape : attention_.shapes(rows, visible)) {
      some = prepared_.insert({shape, phase}).second || some;
    }
    return some;
  }

  const StreamSource* streams_;
  CudnnAttention attention_;
  std::unique_ptr<CublasGemm> gemm_;  // made when there is a GEMM
  std::vector<DeviceBuffer> workspaces_;
  std::set<std::pair<SdpaShape, Phase>> prepared_;
};

/// The version that is loaded may be known to do some calls of a block wrongly.
std::string version_why_not(const BlockRows& rows, const Visibility& visible) {
  for (const Section& section : sections(visible).list) {
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      if (section.seen) {
        if (std::string why = sdpa_why_not(shape_of(section, rows), phase); !why.empty()) {
          return why;
        }
      }
    }
  }
  return "";
}

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
  Rows v = k;
  v.width = problem.v_dim();
  const BlockRows rows{.q = q, .k = k, .v = v};
  const Visibility visible{
      .q_tokens = q_tokens, .k_tokens = k_tokens, .mask = problem.mask, .seq = problem.end()};
  std::string why = cudnn_why_not(rows, visible);
  return why.empty() ? version_why_not(rows, visible) : why;
}

Bytes workspace(const BlockRows& rows, const Visibility& visible, Phase phase) {
  return cudnn_own_workspace(rows, visible, phase);
}

std::unique_ptr<DeviceAttention> make(const StreamSource* streams) {
  return std::make_unique<CudnnKernels>(streams);
}

}  // namespace

namespace device_attention {
extern const DeviceAttentionBackend cudnn{.name = "cudnn",
                                          .title = "cuDNN's SDPA graphs",
                                          .why_not = why_not,
                                          .workspace = workspace,
                                          .gemm_workspace = CublasGemm::workspace,
                                          .make = make};
}  // namespace device_attention

}  // namespace spp::runtime::cuda
