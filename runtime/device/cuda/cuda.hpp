// CUDA's runtime as C++: streams, events and memory that own themselves, errors as BackendError.
// Nothing here uses the default stream. A binary with this in it starts on machines without a
// driver, since the runtime library loads libcuda at the first call; why_not_cuda() asks.
//
// Read by nvcc, too, so without fmt, which it cannot compile.
#pragma once

#include "base/id.hpp"
#include "base/units.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace spp::runtime::cuda {

/// "cudaErrorInvalidValue: invalid argument".
std::string error_text(cudaError_t error);

/// BackendError(call) unless `error` is success. `rank` for messages; -1: no rank of a run.
void check(cudaError_t error, std::string_view call, Rank rank = Rank());

/// "" if there is a GPU and a driver for it, else why not.
std::string why_not_cuda();
int device_count();
/// Hardware queues that streams of a GPU go through, as the driver reads it when it starts
/// (CUDA_DEVICE_MAX_CONNECTIONS).
int hardware_queues();
/// Of the calling thread, from now on. Every thread that works with a device says so first.
void use_device(int device);

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  Bytes memory{}, l2{};
  int driver = 0, runtime = 0;              // 13000 is 13.0
  int clock_khz = 0, memory_clock_khz = 0;  // highest; 0 where the driver does not say
  std::string bus_id;
};
/// Makes no context on the device: eight processes that ask for one would leave one each there, and
/// all but one fail where a GPU is for one process alone.
DeviceInfo device_info(int device);
/// Of the calling thread's device from now on, which is `device`.
Bytes memory_free(int device);

/// Where a stream is made; null: in the device's primary context.
class StreamSource {
 public:
  StreamSource() = default;
  StreamSource(const StreamSource&) = delete;
  StreamSource& operator=(const StreamSource&) = delete;
  virtual ~StreamSource() = default;
  /// Lower numbers are more urgent; out of range is clamped.
  [[nodiscard]] virtual cudaStream_t make_stream(int priority) const = 0;
  /// SMs that kernels on these streams run on.
  [[nodiscard]] virtual int multiprocessors() const = 0;
  /// Makes the streams' context the calling thread's current one for as long as the result lives.
  /// For libraries that ask which one it is; a context is one thread's at a time.
  [[nodiscard]] virtual std::shared_ptr<const void> enter() const = 0;
};

/// Most urgent and least urgent stream priority of the current device.
struct Priorities {
  int urgent = 0, normal = 0;
};
Priorities priorities();

class Stream {
 public:
  explicit Stream(int priority, const StreamSource* source = nullptr);
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream();
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

enum class EventUse : std::uint8_t { order, time };

class Event {
 public:
  explicit Event(EventUse use = EventUse::order);
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event();
  [[nodiscard]] cudaEvent_t get() const { return event_; }
  /// After what `stream` holds now.
  void record(cudaStream_t stream) const;
  /// All that is done is done: what was recorded has happened.
  [[nodiscard]] bool happened() const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// `stream` goes on when what `event` has recorded so far has happened.
void wait(cudaStream_t stream, cudaEvent_t event);
/// Time from one timed event to another; both must have happened.
Seconds between(const Event& first, const Event& second);
/// What one timed event costs on a stream: mean of many, one after the other.
Seconds event_cost(const Stream& stream);

/// Memory of the current device.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes, Rank rank = Rank());
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Memory of the host that devices can read.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes);
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer();
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

/// Enqueues a copy; either side may be host or device.
void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream);

/// How a device copies from one of its memories to another.
///  plain          cudaMemcpyAsync: as the driver likes, on one device often by SMs, so that a copy
///                 waits for attention that fills them
///  beside_kernels cudaMemcpyBatchAsync with the wish to overlap with kernels (CUDA 12.8 or newer)
enum class CopyWay : std::uint8_t { plain, beside_kernels };
/// The better one that the runtime, the driver and the stream's context can do. Copies a few bytes
/// and waits for them.
CopyWay find_copy_way(cudaStream_t stream);
/// Enqueues a copy between memories of devices.
void copy(std::byte* to, const std::byte* from, std::size_t bytes, CopyWay way,
          cudaStream_t stream);

}  // namespace spp::runtime::cuda
