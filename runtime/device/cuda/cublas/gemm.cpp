#include "runtime/device/cuda/cublas/gemm.hpp"

#include "base/error.hpp"

#if defined(SPP_CUBLAS)
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <map>
#endif

namespace spp::runtime::cuda {

bool CublasGemm::takes(const GemmArgs& args) {
  const GemmShape shape = gemm_shape(args);
  return args.a.dtype == args.b.dtype &&
         (args.c.dtype == args.a.dtype || args.c.dtype == DType::fp32) && shape.m > 0 &&
         shape.n > 0 && shape.k > 0;
}

#if defined(SPP_CUBLAS)

namespace {

void cublas_check(cublasStatus_t status, std::string_view call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw BackendError(call, cublasLtGetStatusString(status), -1);
  }
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::fp16:
      return CUDA_R_16F;
  }
  throw InternalError("unknown dtype");
}

/// What cublasLt…Create made, until cublasLt…Destroy.
template <class Pointer, auto destroy>
struct Destroy {
  using pointer = Pointer;
  void operator()(Pointer made) const { destroy(made); }
};
template <class Pointer, auto destroy>
using Owned = std::unique_ptr<void, Destroy<Pointer, destroy>>;
using Handle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Product = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

Handle make_handle() {
  cublasLtHandle_t handle = nullptr;
  cublas_check(cublasLtCreate(&handle), "cublasLtCreate");
  return Handle(handle);
}

/// As it lies in memory: cuBLAS's rows are our columns.
Layout layout_of(const Rows& rows) {
  cublasLtMatrixLayout_t layout = nullptr;
  const std::int64_t columns = matrix_columns(rows);
  cublas_check(
      cublasLtMatrixLayoutCreate(&layout, type_of(rows.dtype), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(matrix_rows(rows)), columns),
      "cublasLtMatrixLayoutCreate");
  return Layout(layout);
}

template <class Value>
void set(const Product& product, cublasLtMatmulDescAttributes_t attribute, Value value) {
  cublas_check(cublasLtMatmulDescSetAttribute(product.get(), attribute, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
}
template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         Value value) {
  cublas_check(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

/// `sms` 0: all.
Product product_of(GemmKind kind, int sms) {
  cublasLtMatmulDesc_t made = nullptr;
  cublas_check(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  Product product(made);
  const auto op = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(product, CUBLASLT_MATMUL_DESC_TRANSA, op(kind == GemmKind::input_gradient));
  set(product, CUBLASLT_MATMUL_DESC_TRANSB, op(kind == GemmKind::weight_gradient));
  if (sms > 0) {
    set(product, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{sms});
  }
  return product;
}

/// The largest power of two up to 256 that memory is aligned to: cuBLAS takes 256 for granted.
std::uint32_t alignment_of(const Rows& rows) {
  const auto place = reinterpret_cast<std::uintptr_t>(rows.data) | 256U;
  return static_cast<std::uint32_t>(place & (~place + 1));
}

/// What cuBLAS's choice depends on.
struct Key {
  std::int64_t m = 0, n = 0, k = 0;
  GemmKind kind = GemmKind::forward;
  DType in = DType::fp32, out = DType::fp32;
  std::array<std::uint32_t, 3> alignments{};  // of a, b, c
  friend auto operator<=>(const Key&, const Key&) = default;
};

Key key_of(const GemmArgs& args) {
  const GemmShape shape = gemm_shape(args);
  return {.m = shape.m,
          .n = shape.n,
          .k = shape.k,
          .kind = args.kind,
          .in = args.a.dtype,
          .out = args.c.dtype,
          .alignments = {alignment_of(args.a), alignment_of(args.b), alignment_of(args.c)}};
}

struct Plan {
  Product product;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
};

std::string text_of(const Key& key) {
  return fmt::format("no algorithm for {} x {} x {} of {} to {}", key.m, key.n, key.k,
                     to_string(key.in), to_string(key.out));
}

Plan plan_of(cublasLtHandle_t handle, const GemmArgs& args, int sms) {
  Plan plan{.product = product_of(args.kind, sms),
            .a = layout_of(args.a),
            .b = layout_of(args.b),
            .c = layout_of(args.c)};
  cublasLtMatmulPreference_t made = nullptr;
  cublas_check(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(CublasGemm::workspace.value()));
  // Where it cuts k, it may add up parts that were rounded to the type of the result otherwise.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(args.b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(args.a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(args.c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(args.c));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  cublas_check(cublasLtMatmulAlgoGetHeuristic(handle, plan.product.get(), plan.b.get(),
                                              plan.a.get(), plan.c.get(), plan.c.get(),
                                              preference.get(), 1, &best, &found),
               "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0 || best.state != CUBLAS_STATUS_SUCCESS) {
    throw BackendError("cublasLtMatmulAlgoGetHeuristic", text_of(key_of(args)), -1);
  }
  plan.algorithm = best.algo;
  return plan;
}

}  // namespace

std::string cublas_why_not() {
  return cublasLtGetVersion() == 0
             ? fmt::format("libcublasLt.so.{} cannot be loaded", CUBLAS_VER_MAJOR)
             : "";
}

/// The handle belongs to the streams' context, and is used and given back there.
class CublasGemm::Plans {
 public:
  explicit Plans(const StreamSource* streams)
      : streams_(streams), sms_(streams == nullptr ? 0 : streams->multiprocessors()) {
    if (const std::string why = cublas_why_not(); !why.empty()) {
      throw BackendError("cuBLASLt", why, -1);
    }
    const auto context = enter();
    handle_ = make_handle();
  }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;
  ~Plans() {
    try {
      const auto context = enter();
      handle_.reset();
    } catch (const BackendError&) {  // of a context that is gone with all that it held
      [[maybe_unused]] const auto left = handle_.release();
    }
  }

  [[nodiscard]] bool know(const GemmArgs& args) const { return plans_.contains(key_of(args)); }
  void run(const GemmArgs& args, std::byte* room, cudaStream_t stream) {
    const auto context = enter();
    const Plan& plan = plan_for(args);
    const float alpha = 1;
    const float beta = args.add ? 1 : 0;
    cublas_check(cublasLtMatmul(handle_.get(), plan.product.get(), &alpha, args.b.data,
                                plan.b.get(), args.a.data, plan.a.get(), &beta, args.c.data,
                                plan.c.get(), args.c.data, plan.c.get(), &plan.algorithm, room,
                                static_cast<std::size_t>(workspace.value()), stream),
                 "cublasLtMatmul");
  }

 private:
  [[nodiscard]] std::shared_ptr<const void> enter() const {
    return streams_ == nullptr ? nullptr : streams_->enter();
  }
  const Plan& plan_for(const GemmArgs& args) {
    const Key key = key_of(args);
    auto at = plans_.find(key);
    if (at == plans_.end()) {
      at = plans_.emplace(key, plan_of(handle_.get(), args, sms_)).first;
    }
    return at->second;
  }

  const StreamSource* streams_;
  int sms_;
  Handle handle_;
  std::map<Key, Plan> plans_;
};

CublasGemm::CublasGemm(const StreamSource* streams) : plans_(std::make_unique<Plans>(streams)) {}
CublasGemm::~CublasGemm() = default;
bool CublasGemm::knows(const GemmArgs& args) const { return plans_->know(args); }
void CublasGemm::run(const GemmArgs& args, std::byte* room, cudaStream_t stream) {
  plans_->run(args, room, stream);
}

#else

std::string cublas_why_not() { return "not compiled in: cuBLASLt was not found"; }

class CublasGemm::Plans {};
CublasGemm::CublasGemm(const StreamSource*) {
  throw BackendError("cuBLASLt", cublas_why_not(), -1);
}
CublasGemm::~CublasGemm() = default;
bool CublasGemm::knows(const GemmArgs&) const { return false; }
void CublasGemm::run(const GemmArgs&, std::byte*, cudaStream_t) {}

#endif

}  // namespace spp::runtime::cuda
