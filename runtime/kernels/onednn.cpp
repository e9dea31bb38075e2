// Attention and GEMMs over oneDNN's matrix products. bf16 tensors are multiplied as bf16 where the
// CPU can (AVX512-BF16, AMX), else as fp32; fp16 tensors as fp32.
#include "runtime/kernels/attention.hpp"

#if defined(SPP_ONEDNN)
#include "runtime/kernels/onednn_attention.hpp"
#include "runtime/kernels/onednn_gemm.hpp"

#include <optional>
#endif

namespace spp::runtime {
namespace {

#if defined(SPP_ONEDNN)

bool multiplies_bf16() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & needed) == needed && Matmuls::can(dnnl::memory::data_type::bf16);
}

class OneDnnKernels final : public AttentionKernels {
 public:
  void forward(const AttentionForwardArgs& args, const Poll& poll) override {
    with(args.q.dtype, [&](auto& in) { in.attention.forward(args, poll); });
  }
  void backward(const AttentionBackwardArgs& args, const Poll& poll) override {
    with(args.q.dtype, [&](auto& in) { in.attention.backward(args, poll); });
  }
  void gemm(const GemmArgs& args, const Poll& poll) override {
    const DType dtype = args.a.dtype == args.b.dtype ? args.a.dtype : DType::fp32;
    with(dtype, [&](auto& in) { in.gemm.run(args, poll); });
  }

 private:
  /// Products of T.
  template <class T>
  struct Kernels {
    TiledAttention<T> attention;
    BlockedGemm<T> gemm;
  };

  template <class Body>
  void with(DType dtype, Body&& body) {
    const OneThread one_thread;
    try {
      if (dtype == DType::bf16 && bf16_) {
        body(in_bf16_.has_value() ? *in_bf16_ : in_bf16_.emplace());
      } else {
        body(in_fp32_.has_value() ? *in_fp32_ : in_fp32_.emplace());
      }
    } catch (const dnnl::error& e) {
      throw BackendError("oneDNN matmul", e.message, -1);
    }
  }

  bool bf16_ = multiplies_bf16();
  std::optional<Kernels<float>> in_fp32_;
  std::optional<Kernels<Bf16>> in_bf16_;
};

std::string why_not(DType) {
  const OneThread one_thread;
  return Matmuls::can(dnnl::memory::data_type::f32) ? "" : "oneDNN has no matrix products here";
}
std::unique_ptr<AttentionKernels> make() {
  const OneThread one_thread;
  return std::make_unique<OneDnnKernels>();
}

#else

std::string why_not(DType) { return "not compiled in: oneDNN was not found"; }
std::unique_ptr<AttentionKernels> make() { return nullptr; }

#endif

}  // namespace

namespace attention_kernels {
extern const AttentionBackend onednn{.name = "onednn",
                                     .title = "tiles over oneDNN's matrix products",
                                     .why_not = why_not,
                                     .make = make};
}  // namespace attention_kernels

}  // namespace spp::runtime
