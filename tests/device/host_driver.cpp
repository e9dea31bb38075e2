// CUDA's driver on the host, as far as runtime/device/cuda/green_context.cpp uses it: shares of SMs
// with contexts of their own. As the driver does, a split rounds up to what the hardware allows,
// and makes fewer shares when there is no room for more.
#include "tests/device/host_cuda.hpp"

#include <cuda.h>

#include <cstring>
#include <map>
#include <string_view>

struct CUgreenCtx_st {
  std::shared_ptr<spp::test::host::Context> context;
};
struct CUdevResourceDesc_st {
  unsigned sms = 0;
};

namespace {

namespace host = spp::test::host;

constexpr unsigned granularity = 8;  // from compute capability 9 on

CUresult error_name(CUresult, const char** name) {
  *name = "an error of the driver on the host";
  return CUDA_SUCCESS;
}
CUresult device_resource(CUdevice, CUdevResource* resource, CUdevResourceType type) {
  host::call();
  *resource = {};
  resource->type = type;
  resource->sm.smCount = static_cast<unsigned>(host::settings().sms);
#if CUDA_VERSION >= 13000
  if (host::settings().driver_says_share_rules) {
    resource->sm.minSmPartitionSize = granularity;
    resource->sm.smCoscheduledAlignment = granularity;
  }
#endif
  return CUDA_SUCCESS;
}
CUresult split(CUdevResource* result, unsigned* groups, const CUdevResource* input, CUdevResource*,
               unsigned, unsigned least) {
  host::call();
  if (host::mistaken("shares without rules")) {
    least = input->sm.smCount / *groups;
  }
  const unsigned share = (least + granularity - 1) / granularity * granularity;
  *groups = std::min(*groups, input->sm.smCount / share);
  for (unsigned i = 0; i < *groups; ++i) {
    result[i] = *input;
    result[i].sm.smCount = share;
  }
  return CUDA_SUCCESS;
}
CUresult describe(CUdevResourceDesc* description, CUdevResource* resources, unsigned) {
  host::call();
  *description = new CUdevResourceDesc_st{.sms = resources->sm.smCount};
  return CUDA_SUCCESS;
}
CUresult create(CUgreenCtx* context, CUdevResourceDesc description, CUdevice device, unsigned) {
  host::call();
  ++host::seen().green_contexts;
  *context = new CUgreenCtx_st{
      .context = std::make_shared<host::Context>(static_cast<int>(description->sms), device)};
  delete description;
  return CUDA_SUCCESS;
}
CUresult destroy(CUgreenCtx context) {
  host::call();
  --host::seen().green_contexts;
  delete context;
  return CUDA_SUCCESS;
}
CUresult make_stream(CUstream* stream, CUgreenCtx context, unsigned flags, int) {
  host::call();
  if (flags != CU_STREAM_NON_BLOCKING) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *stream = host::make_stream(context->context);
  return CUDA_SUCCESS;
}
CUresult as_context(CUcontext* context, CUgreenCtx green) {
  host::call();
  *context = reinterpret_cast<CUcontext>(green);
  return CUDA_SUCCESS;
}
CUresult push(CUcontext context) {
  host::call();
  host::push_context(reinterpret_cast<CUgreenCtx>(context)->context);
  return CUDA_SUCCESS;
}
CUresult pop(CUcontext*) {
  host::call();
  host::pop_context();
  return CUDA_SUCCESS;
}

template <class Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  static const std::map<std::string_view, void*> all{
      {"cuGetErrorName", address(error_name)},
      {"cuDeviceGetDevResource", address(device_resource)},
      {"cuDevSmResourceSplitByCount", address(split)},
      {"cuDevResourceGenerateDesc", address(describe)},
      {"cuGreenCtxCreate", address(create)},
      {"cuGreenCtxDestroy", address(destroy)},
      {"cuGreenCtxStreamCreate", address(make_stream)},
      {"cuCtxFromGreenCtx", address(as_context)},
      {"cuCtxPushCurrent", address(push)},
      {"cuCtxPopCurrent", address(pop)}};
  const auto at = all.find(name);
  const bool there = host::settings().green_contexts && at != all.end();
  *function = there ? at->second : nullptr;
  *found = there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
