// Contexts, hardware queues and streams on the host (host_cuda.hpp).
#include "tests/device/host_cuda.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace spp::test::host {
namespace {

thread_local int device = 0;
thread_local std::vector<std::shared_ptr<Context>> contexts;

struct Devices {
  std::mutex mutex;
  std::map<int, std::shared_ptr<Context>> primary;
  std::map<int, std::vector<std::weak_ptr<Queue>>> queues;
  std::map<int, int> waiting;  // work that waits for something else
};
Devices& devices() {
  static Devices all;
  return all;
}

/// As the driver of CUDA has them.
std::size_t queues_of_a_device() {
  const char* text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return text == nullptr ? 8 : static_cast<std::size_t>(std::clamp(std::atoi(text), 1, 32));
}

/// The one that the fewest streams use.
std::shared_ptr<Queue> queue_of(int of_device) {
  const std::scoped_lock lock(devices().mutex);
  std::vector<std::weak_ptr<Queue>>& queues = devices().queues[of_device];
  queues.resize(queues_of_a_device());
  const auto least = std::ranges::min_element(
      queues, {}, [](const std::weak_ptr<Queue>& queue) { return queue.use_count(); });
  std::shared_ptr<Queue> queue = least->lock();
  if (queue == nullptr) {
    queue = std::make_shared<Queue>();
    *least = queue;
  }
  return queue;
}

}  // namespace

Seen& seen() {
  static Seen seen;
  return seen;
}
Settings& settings() {
  static Settings settings;
  return settings;
}

bool mistaken(std::string_view mistake) {
  static const char* const made = std::getenv("SPP_HOST_CUDA_MISTAKE");
  return made != nullptr && mistake == made;
}

void log(std::string_view line) {
  static std::mutex mutex;
  static const char* const file = std::getenv("SPP_HOST_CUDA_LOG");
  if (file != nullptr) {
    const std::scoped_lock lock(mutex);
    std::ofstream(file, std::ios::app) << line << '\n';
  }
}

void call() {
  if (const std::int64_t us = settings().latency_us; us > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(us));
  }
}

void Context::take(int sms) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return used_ + sms <= sms_; });
  used_ += sms;
}
void Context::give(int sms) {
  {
    const std::scoped_lock lock(mutex_);
    used_ -= sms;
  }
  changed_.notify_all();
}

std::shared_ptr<Context> current_context() {
  return contexts.empty() ? primary_context(device) : contexts.back();
}
std::shared_ptr<Context> primary_context(int of_device) {
  const std::scoped_lock lock(devices().mutex);
  std::shared_ptr<Context>& primary = devices().primary[of_device];
  if (primary == nullptr) {
    ++seen().primary_contexts;
    log("context on GPU " + std::to_string(of_device));
    primary = std::make_shared<Context>(settings().sms, of_device);
  }
  return primary;
}
void push_context(std::shared_ptr<Context> context) {
  contexts.push_back(mistaken("another context") ? current_context() : std::move(context));
}
void pop_context() { contexts.pop_back(); }

Queue::~Queue() {
  push({});
  thread_.join();
}
void Queue::push(std::function<void()> task) {
  // What the caller has just let go drains in less, on a busy machine, too; a gate that it keeps
  // closed is patient for longer.
  constexpr std::chrono::seconds a_while{1};
  const auto has_room = [this] { return tasks_.size() < depth; };
  {
    std::unique_lock lock(mutex_);
    if (!has_room_.wait_for(lock, a_while, has_room)) {
      ++seen().late_calls;
      has_room_.wait(lock, has_room);
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}
void Queue::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    has_room_.notify_one();
    if (!task) {
      return;
    }
    task();
  }
}

void count_stream(int change) {
  const int phases = mistaken("streams of every phase") ? 2 : 1;
  const int streams = seen().streams += phases * change;
  int most = seen().most_streams;
  while (streams > most && !seen().most_streams.compare_exchange_weak(most, streams)) {
  }
}

cudaStream_t make_stream(std::shared_ptr<Context> context) {
  count_stream(1);
  std::shared_ptr<Queue> queue = queue_of(context->device());
  return new CUstream_st{.context = std::move(context), .queue = std::move(queue)};
}

void enqueue(cudaStream_t stream, std::function<void()> task, bool waits) {
  const int on = stream->context->device();
  if (!waits) {
    stream->queue->push(std::move(task));
    return;
  }
  {
    const std::scoped_lock lock(devices().mutex);
    ++devices().waiting[on];
  }
  stream->queue->push([task = std::move(task), on] {
    task();
    const std::scoped_lock lock(devices().mutex);
    --devices().waiting[on];
  });
}

bool something_waits(int on) {
  const std::scoped_lock lock(devices().mutex);
  return devices().waiting[on] > 0;
}

void expect_idle() { seen().late_calls += something_waits(current_context()->device()) ? 1 : 0; }

}  // namespace spp::test::host

/// From CUDA 12 on this makes the device's primary context.
cudaError_t cudaSetDevice(int to) {
  spp::test::host::call();
  spp::test::host::device = to;
  (void)spp::test::host::current_context();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* current) {
  spp::test::host::call();
  *current = spp::test::host::device;
  return cudaSuccess;
}
