// CUDA's runtime on the host, as far as runtime/device/cuda/ uses it: so that all of that room but
// the driver's green contexts is tested where there is no GPU. Linked into a test, these
// definitions take the place of the library's.
//
// A stream is a thread that works off a queue; so streams run side by side, in any order that
// events leave open, and ThreadSanitizer sees a missing wait as a race. Device memory is host
// memory full of NaN. Kernels are the same ops, run by the host (runtime/device/cuda/launch.cuh).
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

/// One recording of an event.
class Record {
 public:
  void happen() {
    {
      const std::scoped_lock lock(mutex_);
      when_ = Clock::now();
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
  Clock::time_point when_;
};

/// What is allocated.
class Memory {
 public:
  void add(void* data, std::size_t size) {
    const std::scoped_lock lock(mutex_);
    sizes_[data] = size;
    used_ += size;
  }
  void remove(void* data) {
    const std::scoped_lock lock(mutex_);
    if (const auto at = sizes_.find(data); at != sizes_.end()) {
      used_ -= at->second;
      sizes_.erase(at);
    }
  }
  std::size_t used() {
    const std::scoped_lock lock(mutex_);
    return used_;
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::size_t> sizes_;
  std::size_t used_ = 0;
};
Memory& memory() {
  static Memory memory;
  return memory;
}

}  // namespace

struct CUstream_st {
  CUstream_st() : thread([this] { work(); }) {}
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;
  ~CUstream_st() {
    push({});
    thread.join();
  }
  /// An empty function ends the thread.
  void push(std::function<void()> task) {
    {
      const std::scoped_lock lock(mutex);
      tasks.push_back(std::move(task));
    }
    changed.notify_one();
  }
  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return !tasks.empty(); });
        task = std::move(tasks.front());
        tasks.pop_front();
      }
      if (!task) {
        return;
      }
      task();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  std::thread thread;  // last: it uses the rest
};

struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<Record> last;
  std::shared_ptr<Record> record() {
    const std::scoped_lock lock(mutex);
    return last;
  }
};

cudaError_t cudaMalloc(void** data, std::size_t size) {
  constexpr std::size_t unit = 256;
  const std::size_t whole = (size + unit - 1) / unit * unit;
  *data = std::aligned_alloc(unit, whole);
  std::memset(*data, 0xff, whole);
  memory().add(*data, whole);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  memory().remove(data);
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  stream->push([=] { std::memcpy(to, from, size); });
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  stream->push([=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto record = std::make_shared<Record>();
  stream->push([record] { record->happen(); });
  record->wait();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const auto record = event->record()) {
    stream->push([record] { record->wait(); });
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto record = std::make_shared<Record>();
  {
    const std::scoped_lock lock(event->mutex);
    event->last = record;
  }
  stream->push([record] { record->happen(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto record = event->record();
  return record == nullptr || record->happened() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
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
  const char* devices = std::getenv("SPP_HOST_CUDA_DEVICES");
  *count = devices == nullptr ? 1 : std::atoi(devices);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "threads of the host");
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int, int) {
  std::strcpy(text, "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* possible, int, int) {
  *possible = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = std::size_t{1} << 34;
  *free = *total - memory().used();
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
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = nullptr;
  *found = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfTheHost"; }
const char* cudaGetErrorString(cudaError_t) { return "an error of CUDA on the host"; }
