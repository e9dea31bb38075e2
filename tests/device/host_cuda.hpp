// What the stand-ins for CUDA's runtime, its driver, cuDNN, cuBLASLt and NCCL on the host share,
// and what tests may ask and tell them. Like the things they stand in for, they are there once a
// process.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

namespace spp::test::host {

/// Of the calls since the program began.
struct Seen {
  std::atomic<int> streams{0}, most_streams{0};
  std::atomic<int> compiled_plans{0};
  std::atomic<int> gemm_heuristics{0};  // that cuBLASLt was asked for
  std::atomic<int> gemm_sms{0};         // that the last of them was for
  /// Calls that would have waited for a device while work on it waits for somebody else: memory
  /// that is taken or given back, kernels that are loaded, work for a queue that stays full. On a
  /// GPU each of them is slow at best, and where the somebody else waits for this thread, it never
  /// ends.
  std::atomic<int> late_calls{0};
  std::atomic<int> primary_contexts{0}, green_contexts{0};
  std::atomic<int> copies_beside_kernels{0};
  std::atomic<int> group_threads{0};  // that NCCL would have started for groups
  std::atomic<int> stuck_aborts{0};   // that waited for a kernel of another communicator
};
Seen& seen();

/// What cuDNN may have against the context of a share of a device.
enum class Objection : std::uint8_t {
  none,
  to_streams,  // that a handle is given
  to_plans     // of the whole device, when they are to be executed there
};

/// Tests change them for a while.
struct Settings {
  std::atomic<std::int64_t> latency_us{0};          // of every call
  std::atomic<bool> batch_copies{true};             // cudaMemcpyBatchAsync works
  std::atomic<bool> green_contexts{true};           // the driver has them
  std::atomic<bool> driver_says_share_rules{true};  // else zeros, as before CUDA 13
  std::atomic<bool> sm_count_target{false};         // cuDNN has plans for some of the SMs
  std::atomic<Objection> objection{Objection::none};
  std::atomic<std::size_t> cudnn_version{0};  // 0: of the headers
  std::atomic<std::int64_t> compile_ms{2};    // of a plan of cuDNN
  std::atomic<std::size_t> nccl_channels{0};  // bytes of NCCL for each way to or from a peer
  std::atomic<std::size_t> memory{std::size_t{1} << 34};  // of a device
  std::atomic<int> sms{132};
};
Settings& settings();

/// Sets a setting until it goes.
template <class T>
class With {
 public:
  With(std::atomic<T>& setting, T value) : setting_(setting), before_(setting.exchange(value)) {}
  With(const With&) = delete;
  With& operator=(const With&) = delete;
  ~With() { setting_ = before_; }

 private:
  std::atomic<T>& setting_;
  T before_;
};

/// Whether this process is to make a mistake in its callers' place, one that they once made
/// (SPP_HOST_CUDA_MISTAKE; tests/device/CMakeLists.txt lists them): calls then arrive as those of
/// code that makes it, and the tests of the contract must notice.
bool mistaken(std::string_view mistake);

/// Writes a line to the file that SPP_HOST_CUDA_LOG names, if it does: for tests of processes.
void log(std::string_view line);

/// At the beginning of every call.
void call();

/// Memory of a device that nobody looks into; false when there is too little left.
bool reserve(int device, std::size_t bytes);
void release(int device, std::size_t bytes);

/// SMs, of a whole device or of a green context. Kernels take them, and copies that are kernels.
class Context {
 public:
  explicit Context(int sms, int device) : sms_(sms), device_(device) {}
  void take(int sms);
  void give(int sms);
  [[nodiscard]] int sms() const { return sms_; }
  [[nodiscard]] int device() const { return device_; }

 private:
  int sms_, device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int used_ = 0;
};
/// Of the calling thread: the one that was pushed last, else its device's primary one.
std::shared_ptr<Context> current_context();
std::shared_ptr<Context> primary_context(int device);
void push_context(std::shared_ptr<Context> context);
void pop_context();

/// A hardware queue: streams that share it wait for each other, and callers while it is full.
class Queue {
 public:
  Queue() : thread_([this] { work(); }) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue();
  void push(std::function<void()> task);

 private:
  static constexpr std::size_t depth = 1024;
  void work();

  std::mutex mutex_;
  std::condition_variable changed_, has_room_;
  std::deque<std::function<void()>> tasks_;  // an empty one ends the thread
  std::thread thread_;                       // last: it uses the rest
};

cudaStream_t make_stream(std::shared_ptr<Context> context);
/// Of those that there are: one more or less.
void count_stream(int change);

/// Enqueues work. `waits`: for something beside the stream, such as a peer or the host.
void enqueue(cudaStream_t stream, std::function<void()> task, bool waits = false);
/// Something that enqueue() has enqueued on device `on` waits for something else.
bool something_waits(int on);
/// Counts a late call if so, of the calling thread's device.
void expect_idle();

}  // namespace spp::test::host

struct CUstream_st {
  std::shared_ptr<spp::test::host::Context> context;
  std::shared_ptr<spp::test::host::Queue> queue;
};
