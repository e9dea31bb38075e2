// Kernels poll between tiles; this keeps them from doing so more often than is useful.
#pragma once

#include "runtime/kernels/attention.hpp"

#include <chrono>

namespace spp::runtime {

/// Calls a Poll about every millisecond.
class Pacer {
 public:
  explicit Pacer(const Poll& poll) : poll_(poll) {}
  void operator()() {
    if (poll_ && Clock::now() - last_ > std::chrono::microseconds(500)) {
      poll_();
      last_ = Clock::now();
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Poll& poll_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace spp::runtime
