#include "runtime/device/cuda/cuda.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace spp::runtime::cuda {

std::string error_text(cudaError_t error) {
  return fmt::format("{}: {}", cudaGetErrorName(error), cudaGetErrorString(error));
}

void check(cudaError_t error, std::string_view call, Rank rank) {
  if (error != cudaSuccess) {
    throw BackendError(call, error_text(error), rank.value);
  }
}

std::string why_not_cuda() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    return driver == 0 ? fmt::format("no NVIDIA driver here ({})", error_text(error))
                       : fmt::format("the NVIDIA driver is for CUDA {}.{}, which is too old ({})",
                                     driver / 1000, driver % 1000 / 10, error_text(error));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return fmt::format("no GPU here ({})", error_text(cudaErrorNoDevice));
  }
  return error == cudaSuccess ? "" : error_text(error);
}

int hardware_queues() {
  constexpr int most = 32;
  constexpr int usual = 8;
  const char* text =
      std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const int wanted = text == nullptr ? usual : std::atoi(text);
  return wanted < 1 ? usual : std::min(wanted, most);
}

int device_count() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}

void use_device(int device) { check(cudaSetDevice(device), "cudaSetDevice"); }

DeviceInfo device_info(int device) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
  };
  DeviceInfo info;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory = Bytes(static_cast<std::int64_t>(properties.totalGlobalMem));
  info.l2 = Bytes(properties.l2CacheSize);
  check(cudaDriverGetVersion(&info.driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&info.runtime), "cudaRuntimeGetVersion");
  info.clock_khz = attribute(cudaDevAttrClockRate);
  info.memory_clock_khz = attribute(cudaDevAttrMemoryClockRate);
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device),
        "cudaDeviceGetPCIBusId");
  info.bus_id = bus.data();
  return info;
}

Bytes memory_free(int device) {
  std::size_t free = 0;
  std::size_t total = 0;
  use_device(device);
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return Bytes(static_cast<std::int64_t>(free));
}

Priorities priorities() {
  Priorities p;
  check(cudaDeviceGetStreamPriorityRange(&p.normal, &p.urgent), "cudaDeviceGetStreamPriorityRange");
  return p;
}

Stream::Stream(int priority, const StreamSource* source) {
  if (source != nullptr) {
    stream_ = source->make_stream(priority);
  } else {
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority),
          "cudaStreamCreateWithPriority");
  }
}

Stream::~Stream() {
  if (stream_ != nullptr) {
    cudaStreamDestroy(stream_);
  }
}

void Stream::synchronize() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

Event::Event(EventUse use) {
  check(cudaEventCreateWithFlags(&event_,
                                 use == EventUse::time ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
}

Event::~Event() {
  if (event_ != nullptr) {
    cudaEventDestroy(event_);
  }
}

void Event::record(cudaStream_t stream) const {
  check(cudaEventRecord(event_, stream), "cudaEventRecord");
}

bool Event::happened() const {
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    return false;
  }
  check(error, "cudaEventQuery");
  return true;
}

void wait(cudaStream_t stream, cudaEvent_t event) {
  check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

Seconds between(const Event& first, const Event& second) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, first.get(), second.get()), "cudaEventElapsedTime");
  return Seconds(static_cast<double>(milliseconds) * 1e-3);
}

Seconds event_cost(const Stream& stream) {
  constexpr int many = 200;
  const Event first(EventUse::time);
  const Event between_them(EventUse::time);
  const Event last(EventUse::time);
  first.record(stream.get());
  for (int i = 0; i < many; ++i) {
    between_them.record(stream.get());
  }
  last.record(stream.get());
  stream.synchronize();
  return between(first, last) / (many + 1);
}

DeviceBuffer::DeviceBuffer(std::size_t bytes, Rank rank) : size_(bytes) {
  if (bytes > 0) {
    void* data = nullptr;
    check(cudaMalloc(&data, bytes), fmt::format("cudaMalloc of {} bytes", bytes), rank);
    data_ = static_cast<std::byte*>(data);
  }
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) {
    cudaFree(data_);
  }
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) {
  void* data = nullptr;
  // With unified addresses, which every 64-bit system has, the host's pointer is the device's.
  check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
  data_ = static_cast<std::byte*>(data);
}

PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream) {
  if (bytes > 0) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  }
}

namespace {

cudaError_t copy_beside_kernels(std::byte* to, const std::byte* from, std::size_t bytes,
                                cudaStream_t stream) {
#if CUDART_VERSION >= 12080
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  std::size_t first = 0;
#if CUDART_VERSION >= 13000
  void* const target = to;
  const void* const source = from;
  return cudaMemcpyBatchAsync(&target, &source, &bytes, 1, &attributes, &first, 1, stream);
#else
  void* target = to;
  void* source = const_cast<std::byte*>(from);
  std::size_t failed = 0;
  return cudaMemcpyBatchAsync(&target, &source, &bytes, 1, &attributes, &first, 1, &failed, stream);
#endif
#else
  (void)to, (void)from, (void)bytes, (void)stream;
  return cudaErrorNotSupported;
#endif
}

}  // namespace

CopyWay find_copy_way(cudaStream_t stream) {
  constexpr std::size_t bytes = 256;
  const DeviceBuffer memory(2 * bytes);
  const cudaError_t error =
      copy_beside_kernels(memory.data() + bytes, memory.data(), bytes, stream);
  if (error != cudaSuccess) {
    cudaGetLastError();  // forget it
  }
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return error == cudaSuccess ? CopyWay::beside_kernels : CopyWay::plain;
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes, CopyWay way,
          cudaStream_t stream) {
  if (way == CopyWay::plain) {
    copy(to, from, bytes, stream);
  } else if (bytes > 0) {
    check(copy_beside_kernels(to, from, bytes, stream), "cudaMemcpyBatchAsync");
  }
}

}  // namespace spp::runtime::cuda
