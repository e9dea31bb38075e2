// A thread that acts when another one has been silent for too long.
#pragma once

#include "base/units.hpp"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace spp::runtime::cuda {

/// Calls `act` when nothing has been heard for `timeout` while it is armed; once.
class Watchdog {
 public:
  Watchdog(Seconds timeout, std::function<void()> act)
      : timeout_(timeout), act_(std::move(act)), thread_([this] { watch(); }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void arm(bool armed) {
    const std::scoped_lock lock(mutex_);
    armed_ = armed;
    heard_ = Clock::now();
  }
  void hear() {
    const std::scoped_lock lock(mutex_);
    heard_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void watch() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      if (armed_ && !stop_ && Clock::now() - heard_ > timeout_) {
        armed_ = false;
        lock.unlock();
        act_();
        lock.lock();
      }
    }
  }

  Seconds timeout_;
  std::function<void()> act_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  bool armed_ = false;
  bool stop_ = false;
  Clock::time_point heard_ = Clock::now();
  std::thread thread_;  // last: it uses the rest
};

}  // namespace spp::runtime::cuda
