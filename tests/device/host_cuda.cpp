// CUDA's runtime on the host, as far as runtime/device/cuda/ uses it: so that all of that room is
// tested where there is no GPU. Linked into a test, these definitions take the place of the
// library's.
//
// A hardware queue is a thread; so streams run side by side as far as there are queues, in any
// order that events leave open, and ThreadSanitizer sees a missing wait as a race. Device memory is
// host memory full of NaN, and finite. Kernels are the same ops, run by the host
// (runtime/device/cuda/launch.cuh), and take SMs of their stream's context.
#include "tests/device/host_cuda.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

namespace {

namespace host = spp::test::host;

using Clock = std::chrono::steady_clock;

/// One recording of an event.
class Record {
 public:
  void happen() {
    {
      const std::scoped_lock lock(mutex_);
      if (!host::mistaken("the host's clock")) {
        when_ = Clock::now();
      }
      happened_ = true;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return happened_; });
  }
  bool happened() {
    const std::scoped_lock lock(mutex_);
    return happened_;
  }
  Clock::time_point when() {
    const std::scoped_lock lock(mutex_);
    return when_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;
  Clock::time_point when_ = Clock::now();
};

/// What is allocated.
class Memory {
 public:
  /// Null when there is too little left.
  void* take(int device, std::size_t size) {
    constexpr std::size_t unit = 256;
    const std::size_t whole = (size + unit - 1) / unit * unit;
    const std::scoped_lock lock(mutex_);
    if (!fits(device, whole)) {
      return nullptr;
    }
    void* data = std::aligned_alloc(unit, whole);
    std::memset(data, 0xff, whole);
    blocks_[data] = {.device = device, .size = whole};
    used_[device] += whole;
    return data;
  }
  void give(void* data) {
    const std::scoped_lock lock(mutex_);
    if (const auto at = blocks_.find(data); at != blocks_.end()) {
      used_[at->second.device] -= at->second.size;
      blocks_.erase(at);
      std::free(data);
    }
  }
  bool reserve(int device, std::size_t size) {
    const std::scoped_lock lock(mutex_);
    const bool there = fits(device, size);
    used_[device] += there ? size : 0;
    return there;
  }
  void release(int device, std::size_t size) {
    const std::scoped_lock lock(mutex_);
    used_[device] -= size;
  }
  bool holds(const void* data) {
    const std::scoped_lock lock(mutex_);
    const auto behind = blocks_.upper_bound(const_cast<void*>(data));
    if (behind == blocks_.begin()) {
      return false;
    }
    const auto& [begin, block] = *std::prev(behind);
    return data < static_cast<const std::byte*>(begin) + block.size;
  }
  std::size_t used(int device) {
    const std::scoped_lock lock(mutex_);
    return used_[device];
  }

 private:
  struct Block {
    int device = 0;
    std::size_t size = 0;
  };
  bool fits(int device, std::size_t size) {
    return used_[device] + size <= host::settings().memory;
  }

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::map<int, std::size_t> used_;  // by device
};
Memory& memory() {
  static Memory memory;
  return memory;
}

/// Kernels that are on the device.
class Kernels {
 public:
  void load(const void* kernel) {
    const std::scoped_lock lock(mutex_);
    if (loaded_.insert(kernel).second) {
      host::expect_idle();
    }
  }

 private:
  std::mutex mutex_;
  std::set<const void*> loaded_;
};
Kernels& kernels() {
  static Kernels kernels;
  return kernels;
}

}  // namespace

namespace spp::test::host {
bool reserve(int device, std::size_t bytes) { return memory().reserve(device, bytes); }
void release(int device, std::size_t bytes) { memory().release(device, bytes); }
}  // namespace spp::test::host

struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<Record> last;
  std::shared_ptr<Record> record() {
    const std::scoped_lock lock(mutex);
    return last;
  }
};

cudaError_t cudaMalloc(void** data, std::size_t size) {
  host::call();
  host::expect_idle();
  *data = memory().take(host::current_context()->device(), size);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  host::call();
  if (data != nullptr) {
    host::expect_idle();
    memory().give(data);
  }
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, std::size_t size, unsigned) {
  host::call();
  host::expect_idle();
  *data = std::malloc(size);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  host::call();
  host::expect_idle();
  std::free(data);
  return cudaSuccess;
}

namespace {

/// Within a device a plain copy is a kernel, which waits for an SM; an engine's waits for none.
void enqueue_copy(void* to, const void* from, std::size_t size, bool by_engine,
                  cudaStream_t stream) {
  const int sms = !by_engine && memory().holds(to) && memory().holds(from) ? 1 : 0;
  host::enqueue(stream, [=, context = stream->context] {
    context->take(sms);
    std::memcpy(to, from, size);
    context->give(sms);
  });
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  host::call();
  enqueue_copy(to, from, size, false, stream);
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const std::size_t* size,
                                 std::size_t count, cudaMemcpyAttributes* attributes, std::size_t*,
                                 std::size_t, cudaStream_t stream) {
  host::call();
  if (!host::settings().batch_copies || stream == nullptr ||
      attributes->srcAccessOrder != cudaMemcpySrcAccessOrderStream) {
    return cudaErrorInvalidValue;
  }
  const bool beside = attributes->flags == cudaMemcpyFlagPreferOverlapWithCompute &&
                      !host::mistaken("copies by kernels");
  host::seen().copies_beside_kernels += beside ? 1 : 0;
  for (std::size_t i = 0; i < count; ++i) {
    enqueue_copy(to[i], from[i], size[i], beside, stream);
  }
  return cudaSuccess;
}
#endif

/// A kernel takes as many SMs as it has blocks; one of a single warp fits beside others. Those wait
/// for something, too (runtime/device/cuda/kernels.cu).
cudaError_t cudaLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** arguments,
                             std::size_t, cudaStream_t stream) {
  host::call();
  kernels().load(kernel);
  const bool one_warp = threads.x <= 32;
  const bool beside_others = one_warp && !host::mistaken("holds of a block");
  const int sms = beside_others ? 0 : std::min(static_cast<int>(blocks.x), stream->context->sms());
  const auto work =
      std::shared_ptr<std::function<void()>>(static_cast<std::function<void()>*>(arguments[0]));
  host::enqueue(
      stream,
      [work, sms, context = stream->context] {
        context->take(sms);
        (*work)();
        context->give(sms);
      },
      one_warp);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  host::call();
  *attributes = {};
  if (!host::mistaken("lazy modules")) {
    kernels().load(kernel);
  }
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  host::call();
  *stream = host::make_stream(host::current_context());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  host::call();
  host::count_stream(-1);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  host::call();
  const auto record = std::make_shared<Record>();
  host::enqueue(stream, [record] { record->happen(); });
  record->wait();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  host::call();
  if (const auto record = event->record()) {
    host::enqueue(stream, [record] { record->wait(); });
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  host::call();
  (void)host::current_context();
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  host::call();
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto record = std::make_shared<Record>();
  {
    const std::scoped_lock lock(event->mutex);
    event->last = record;
  }
  host::call();
  host::enqueue(stream, [record] { record->happen(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  host::call();
  const auto record = event->record();
  return record == nullptr || record->happened() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  host::call();
  const auto first = begin->record();
  const auto last = end->record();
  if (first == nullptr || last == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  if (!first->happened() || !last->happened()) {
    return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(last->when() - first->when()).count();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  host::call();
  const char* devices = std::getenv("SPP_HOST_CUDA_DEVICES");
  *count = devices == nullptr ? 1 : std::atoi(devices);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  host::call();
  if (host::mistaken("contexts to ask")) {
    (void)host::primary_context(device);
  }
  *properties = {};
  std::strcpy(properties->name, "threads of the host");
  properties->major = 9;
  properties->multiProcessorCount = host::settings().sms;
  properties->l2CacheSize = 1 << 20;
  properties->totalGlobalMem = host::settings().memory;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  host::call();
  *value = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int room, int device) {
  host::call();
  std::snprintf(text, static_cast<std::size_t>(room), "0000:%02x:00.0",
                static_cast<unsigned>(device));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  host::call();
  (void)host::current_context();
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* possible, int, int) {
  host::call();
  *possible = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  host::call();
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  host::call();
  *total = host::settings().memory;
  *free = *total - std::min(*total, memory().used(host::current_context()->device()));
  if (host::mistaken("memory for buffers alone")) {
    *free *= 2;  // so that whatever comes beside them seems to fit
  }
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfTheHost"; }
const char* cudaGetErrorString(cudaError_t) { return "an error of CUDA on the host"; }
