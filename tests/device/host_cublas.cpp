// cuBLASLt on the host, as far as runtime/device/cuda/cublas/ uses it: descriptions keep what they
// are given, products are computed in fp64 on the stream. Linked into a test, these definitions
// take the place of the library's. As in cuBLASLt, an algorithm is for memory of the alignment that
// was promised (256 bytes if nothing was) and needs its workspace; a handle belongs to the context
// that it was made in. Long sums are cut, and where the mask of reduction schemes allows it (as it
// does if nothing was said) their parts are rounded to the type of the result.
#include "runtime/kernels/convert.hpp"
#include "tests/device/host_cuda.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

namespace {

namespace host = spp::test::host;
using spp::DType;

constexpr std::size_t algorithm_workspace = 512;
constexpr std::int64_t split_k = 64;

/// Attributes by number.
using Attributes = std::map<int, std::uint64_t>;

std::uint64_t number_of(const void* value, std::size_t bytes) {
  std::uint64_t number = 0;
  std::memcpy(&number, value, bytes);
  return number;
}

struct Product {
  Attributes attributes;
  [[nodiscard]] bool transposed(int which) const {
    const auto at = attributes.find(which);
    return at != attributes.end() && at->second == CUBLAS_OP_T;
  }
};

/// Column-major.
struct Layout {
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, step = 0;

  [[nodiscard]] DType dtype() const {
    return type == CUDA_R_16BF ? DType::bf16 : type == CUDA_R_16F ? DType::fp16 : DType::fp32;
  }
};

struct Preference {
  Attributes attributes;
  [[nodiscard]] std::uint64_t get(int which, std::uint64_t otherwise) const {
    const auto at = attributes.find(which);
    return at == attributes.end() ? otherwise : at->second;
  }
};

template <class To, class From>
To& of(From* handle) {
  return *reinterpret_cast<To*>(handle);
}

/// What an algorithm remembers; the library's own are as opaque.
struct Algorithm {
  std::array<std::uint64_t, 3> alignments{};  // of A, B, C and D
  std::uint64_t number = 0;
  bool rounds_parts = false;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

/// A matrix, op applied.
struct Operand {
  const std::byte* data;
  Layout layout;
  bool transposed;

  [[nodiscard]] std::int64_t rows() const { return transposed ? layout.columns : layout.rows; }
  [[nodiscard]] std::int64_t columns() const { return transposed ? layout.rows : layout.columns; }
  [[nodiscard]] double at(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = transposed ? row * layout.step + column : column * layout.step + row;
    return spp::runtime::load(layout.dtype(), data, i);
  }
};

double rounded(DType dtype, double number) {
  std::array<std::byte, sizeof(float)> stored{};
  spp::runtime::store(dtype, stored.data(), 0, static_cast<float>(number));
  return spp::runtime::load(dtype, stored.data(), 0);
}

Operand operand(const void* data, const Layout& layout, bool transposed) {
  return {static_cast<const std::byte*>(data), layout, transposed};
}

/// d = op(a) op(b) + beta c, where c lies as d does.
void multiply(const Operand& a, const Operand& b, double beta, const Operand& c, bool rounds_parts,
              std::byte* d) {
  for (std::int64_t column = 0; column < b.columns(); ++column) {
    for (std::int64_t row = 0; row < a.rows(); ++row) {
      double sum = beta == 0 ? 0 : beta * c.at(row, column);
      for (std::int64_t l = 0; l < a.columns(); ++l) {
        sum += a.at(row, l) * b.at(l, column);
        if (rounds_parts && (l + 1) % split_k == 0) {
          sum = rounded(c.layout.dtype(), sum);
        }
      }
      spp::runtime::store(c.layout.dtype(), d, column * c.layout.step + row,
                          static_cast<float>(sum));
    }
  }
}

/// "cublasLtMatmul", "Supported data types": those of them that are computed in fp32.
bool types_go_together(const Layout& a, const Layout& b, const Layout& c) {
  return a.type == b.type && (c.type == a.type || c.type == CUDA_R_32F);
}

bool aligned(const void* data, std::uint64_t to) {
  return reinterpret_cast<std::uintptr_t>(data) % to == 0;
}

/// Whether it is the first time that this algorithm runs: its module is loaded then.
bool is_new(std::uint64_t algorithm) {
  static std::mutex mutex;
  static std::set<std::uint64_t> known;
  const std::scoped_lock lock(mutex);
  return known.insert(algorithm).second;
}

}  // namespace

struct cublasLtContext {
  std::shared_ptr<host::Context> context;
};

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "an error of cuBLASLt on the host"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  host::call();
  host::expect_idle();
  *handle = new cublasLtContext{host::current_context()};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  host::call();
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  host::call();
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  host::call();
  delete &of<Product>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  host::call();
  of<Product>(desc).attributes[attribute] = number_of(value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t step) {
  host::call();
  if (rows == 0 || columns == 0 || step < static_cast<std::int64_t>(rows)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{.type = type,
                 .rows = static_cast<std::int64_t>(rows),
                 .columns = static_cast<std::int64_t>(columns),
                 .step = step});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  host::call();
  delete &of<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  host::call();
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  host::call();
  delete &of<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  host::call();
  of<Preference>(preference).attributes[attribute] = number_of(value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  host::call();
  const int asked = ++host::seen().gemm_heuristics;
  const Product& product = of<Product>(desc);
  const Operand left =
      operand(nullptr, of<Layout>(a), product.transposed(CUBLASLT_MATMUL_DESC_TRANSA));
  const Operand right =
      operand(nullptr, of<Layout>(b), product.transposed(CUBLASLT_MATMUL_DESC_TRANSB));
  const Operand sum = operand(nullptr, of<Layout>(c), false);
  if (left.columns() != right.rows() || left.rows() != sum.rows() ||
      right.columns() != sum.columns()) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto target = product.attributes.find(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET);
  host::seen().gemm_sms = target == product.attributes.end() ? handle->context->sms()
                                                             : static_cast<int>(target->second);
  const Preference& wishes = of<Preference>(preference);
  const bool none = !types_go_together(left.layout, right.layout, sum.layout) ||
                    wishes.get(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0) < algorithm_workspace;
  *count = none || most < 1 ? 0 : 1;
  if (*count > 0) {
    const auto promised = [&](int which) {
      return host::mistaken("alignments taken for granted") ? 256 : wishes.get(which, 256);
    };
    constexpr std::uint64_t all{CUBLASLT_REDUCTION_SCHEME_MASK};
    const std::uint64_t reductions =
        host::mistaken("rounded parts")
            ? all
            : wishes.get(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, all);
    const Algorithm algorithm{
        .alignments = {promised(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
                       promised(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
                       std::max(promised(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES),
                                promised(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES))},
        .number = static_cast<std::uint64_t>(asked),
        .rounds_parts = (reductions & (CUBLASLT_REDUCTION_SCHEME_INPLACE |
                                       CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) != 0};
    *results = {};
    std::memcpy(&results->algo, &algorithm, sizeof(algorithm));
    results->workspaceSize = algorithm_workspace;
    results->state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  host::call();
  Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), algo, sizeof(algorithm));
  if (is_new(algorithm.number)) {
    host::expect_idle();
  }
  if (workspace_bytes < algorithm_workspace || workspace == nullptr ||
      !aligned(a, algorithm.alignments[0]) || !aligned(b, algorithm.alignments[1]) ||
      !aligned(d, algorithm.alignments[2]) || *static_cast<const float*>(alpha) != 1 || c != d) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (host::current_context() != handle->context || stream->context != handle->context) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const Product& product = of<Product>(desc);
  host::enqueue(
      stream,
      [left = operand(a, of<Layout>(a_layout), product.transposed(CUBLASLT_MATMUL_DESC_TRANSA)),
       right = operand(b, of<Layout>(b_layout), product.transposed(CUBLASLT_MATMUL_DESC_TRANSB)),
       factor = *static_cast<const float*>(beta), sum = operand(c, of<Layout>(c_layout), false),
       rounds_parts = algorithm.rounds_parts, to = static_cast<std::byte*>(d), workspace,
       context = handle->context] {
        context->take(context->sms());
        std::memset(workspace, 0x7f, algorithm_workspace);  // it is the algorithm's
        multiply(left, right, static_cast<double>(factor), sum, rounds_parts, to);
        context->give(context->sms());
      });
  return CUBLAS_STATUS_SUCCESS;
}
