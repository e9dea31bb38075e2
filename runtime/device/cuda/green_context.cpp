#include "runtime/device/cuda/green_context.hpp"

#include "base/error.hpp"

#include <cuda.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace spp::runtime::cuda {
namespace {

constexpr unsigned since = 12050;  // the CUDA version that completed green contexts

template <class Function>
Function* entry(const char* name) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion(name, &address, since, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
  if (found != cudaDriverEntryPointSuccess || address == nullptr) {
    throw BackendError(name,
                       "the NVIDIA driver has no green contexts (it needs CUDA 12.5 or newer)", -1);
  }
  return reinterpret_cast<Function*>(address);
}

/// The calls that are needed, by the types of cuda.h.
struct Driver {
  decltype(&cuGetErrorName) error_name = entry<decltype(cuGetErrorName)>("cuGetErrorName");
  decltype(&cuDeviceGetDevResource) resource =
      entry<decltype(cuDeviceGetDevResource)>("cuDeviceGetDevResource");
  decltype(&cuDevSmResourceSplitByCount) split =
      entry<decltype(cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount");
  decltype(&cuDevResourceGenerateDesc) describe =
      entry<decltype(cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc");
  decltype(&cuGreenCtxCreate) create = entry<decltype(cuGreenCtxCreate)>("cuGreenCtxCreate");
  decltype(&cuGreenCtxDestroy) destroy = entry<decltype(cuGreenCtxDestroy)>("cuGreenCtxDestroy");
  decltype(&cuGreenCtxStreamCreate) make_stream =
      entry<decltype(cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate");
  decltype(&cuCtxFromGreenCtx) as_context = entry<decltype(cuCtxFromGreenCtx)>("cuCtxFromGreenCtx");
  decltype(&cuCtxPushCurrent) push = entry<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent");
  decltype(&cuCtxPopCurrent) pop = entry<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent");

  void check(CUresult result, std::string_view call) const {
    if (result != CUDA_SUCCESS) {
      const char* name = nullptr;
      error_name(result, &name);
      throw BackendError(call, name == nullptr ? "unknown error" : name, -1);
    }
  }
};

}  // namespace

ShareRules share_rules(int major) {
  if (major >= 9) {
    return {.least = 8, .granularity = 8};
  }
  return major == 8 ? ShareRules{.least = 4, .granularity = 2}
                    : ShareRules{.least = 2, .granularity = 2};
}

ShareRules stricter(const ShareRules& a, const ShareRules& b) {
  return {.least = std::max(a.least, b.least),
          .granularity = std::lcm(std::max(a.granularity, 1), std::max(b.granularity, 1))};
}

int share_of(int total, int ranks, const ShareRules& rules) {
  ensure(ranks > 0 && rules.granularity > 0, "shares for nobody");
  const int share = total / ranks / rules.granularity * rules.granularity;
  return share < rules.least ? 0 : share;
}

struct GreenContext::Handles {
  std::shared_ptr<const Driver> driver;
  CUgreenCtx context = nullptr;
  CUcontext as_context = nullptr;  // the same, as calls that take any context want it
  int multiprocessors = 0;
};

GreenContext::GreenContext(std::unique_ptr<Handles> handles) : handles_(std::move(handles)) {}

GreenContext::~GreenContext() { handles_->driver->destroy(handles_->context); }

cudaStream_t GreenContext::make_stream(int priority) const {
  CUstream stream = nullptr;
  handles_->driver->check(
      handles_->driver->make_stream(&stream, handles_->context, CU_STREAM_NON_BLOCKING, priority),
      "cuGreenCtxStreamCreate");
  return stream;  // streams of the driver and of the runtime are the same thing
}

int GreenContext::multiprocessors() const { return handles_->multiprocessors; }

std::shared_ptr<const void> GreenContext::enter() const {
  const Driver& driver = *handles_->driver;
  driver.check(driver.push(handles_->as_context), "cuCtxPushCurrent");
  return {handles_->as_context, [&driver](const void*) {
            CUcontext popped = nullptr;
            driver.pop(&popped);
          }};
}

namespace {

/// As the driver says it; all 0 where CUDA is too old to.
ShareRules rules_of([[maybe_unused]] const CUdevSmResource& sm) {
#if CUDA_VERSION >= 13000
  return {.least = static_cast<int>(sm.minSmPartitionSize),
          .granularity = static_cast<int>(sm.smCoscheduledAlignment)};
#else
  return {.least = 0, .granularity = 0};
#endif
}

}  // namespace

std::vector<std::unique_ptr<GreenContext>> split_device(int device, int ranks) {
  use_device(device);
  check(cudaFree(nullptr), "cudaFree");  // the primary context exists from now on
  const auto driver = std::make_shared<const Driver>();
  CUdevResource all{};
  driver->check(driver->resource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
  const int total = static_cast<int>(all.sm.smCount);
  const ShareRules rules = stricter(share_rules(device_info(device).major), rules_of(all.sm));
  const int share = share_of(total, ranks, rules);
  if (share == 0) {
    throw BackendError(
        "cuDevSmResourceSplitByCount",
        fmt::format("{} SMs make no {} shares of at least {} SMs", total, ranks, rules.least), -1);
  }
  std::vector<CUdevResource> shares(static_cast<std::size_t>(ranks));
  auto made = static_cast<unsigned>(ranks);
  driver->check(driver->split(shares.data(), &made, &all, nullptr, 0, static_cast<unsigned>(share)),
                "cuDevSmResourceSplitByCount");
  if (made != static_cast<unsigned>(ranks)) {
    throw BackendError(
        "cuDevSmResourceSplitByCount",
        fmt::format("{} SMs made {} shares of {}, not {}", total, made, share, ranks), -1);
  }
  std::vector<std::unique_ptr<GreenContext>> contexts;
  for (CUdevResource& resource : shares) {
    CUdevResourceDesc description{};
    driver->check(driver->describe(&description, &resource, 1), "cuDevResourceGenerateDesc");
    CUgreenCtx context = nullptr;
    driver->check(driver->create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
                  "cuGreenCtxCreate");
    auto handles = std::make_unique<GreenContext::Handles>(
        GreenContext::Handles{.driver = driver,
                              .context = context,
                              .multiprocessors = static_cast<int>(resource.sm.smCount)});
    CUcontext& as_context = handles->as_context;
    contexts.push_back(std::make_unique<GreenContext>(std::move(handles)));
    driver->check(driver->as_context(&as_context, context), "cuCtxFromGreenCtx");
  }
  return contexts;
}

}  // namespace spp::runtime::cuda
