// cuBLASLt's functions, each of which loads the library when it is first called, for the reasons
// that cuDNN's do (runtime/kernels/cudnn/library.cpp). Where it cannot be loaded, the version is 0
// and all calls fail.
//
// Tests define the same functions (tests/device/host_cublas.cpp): then nothing of this file is
// linked.
#if defined(SPP_CUBLAS)

#include <cublasLt.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#define SPP_TEXT(number) SPP_TEXT_OF(number)
#define SPP_TEXT_OF(number) #number

namespace {

/// For as long as the process lives: it keeps modules of its own.
void* library() {
  static void* const loaded = [] {
    void* found = nullptr;
    for (const char* name : {"libcublasLt.so." SPP_TEXT(CUBLAS_VER_MAJOR), SPP_CUBLAS_LIBRARY}) {
      found = found == nullptr ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : found;
    }
    return found;
  }();
  return loaded;
}

template <class Function>
Function* theirs(const char* name) {
  void* const from = library();
  return from == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(from, name));
}

template <class Function, class... Arguments>
cublasStatus_t call(Function* function, Arguments... arguments) {
  return function == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : function(arguments...);
}

}  // namespace

#define SPP_THEIRS(name) static auto* const theirs_ = theirs<decltype(name)>(#name)

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): cuBLAS writes them in camel
// case
extern "C" {

std::size_t cublasLtGetVersion() {
  SPP_THEIRS(cublasLtGetVersion);
  return theirs_ == nullptr ? 0 : theirs_();
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  SPP_THEIRS(cublasLtGetStatusString);
  return theirs_ == nullptr ? "it cannot be loaded" : theirs_(status);
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  SPP_THEIRS(cublasLtCreate);
  return call(theirs_, handle);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  SPP_THEIRS(cublasLtDestroy);
  return call(theirs_, handle);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  SPP_THEIRS(cublasLtMatmulDescCreate);
  return call(theirs_, desc, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  SPP_THEIRS(cublasLtMatmulDescDestroy);
  return call(theirs_, desc);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  SPP_THEIRS(cublasLtMatmulDescSetAttribute);
  return call(theirs_, desc, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t step) {
  SPP_THEIRS(cublasLtMatrixLayoutCreate);
  return call(theirs_, layout, type, rows, columns, step);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  SPP_THEIRS(cublasLtMatrixLayoutDestroy);
  return call(theirs_, layout);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  SPP_THEIRS(cublasLtMatmulPreferenceCreate);
  return call(theirs_, preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  SPP_THEIRS(cublasLtMatmulPreferenceDestroy);
  return call(theirs_, preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  SPP_THEIRS(cublasLtMatmulPreferenceSetAttribute);
  return call(theirs_, preference, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  SPP_THEIRS(cublasLtMatmulAlgoGetHeuristic);
  return call(theirs_, handle, desc, a, b, c, d, preference, most, results, count);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  SPP_THEIRS(cublasLtMatmul);
  return call(theirs_, handle, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d,
              d_layout, algo, workspace, workspace_bytes, stream);
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

#undef SPP_THEIRS
#undef SPP_TEXT_OF
#undef SPP_TEXT

#endif
