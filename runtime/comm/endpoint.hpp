// What the ends of all transports have in common.
#pragma once

#include "runtime/comm/transport.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace spp::runtime {

inline constexpr int message_tags = 64;

/// InternalError if there is no such rank or tag.
void check_message(const Transport& transport, Rank peer, int tag);

/// How a rank without work waits: it gives its core away, and after a while without any news it
/// naps, since more ranks than cores is normal and each of them polls. Naps grow with the time
/// waited, so they add at most an eighth to it.
class Patience {
 public:
  void news() { waiting_ = false; }
  void idle() {
    const auto now = Clock::now();
    if (!waiting_) {
      waiting_ = true;
      since_ = now;
    }
    const auto waited = now - since_;
    if (waited < yield_for) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(
          std::clamp<Clock::duration>(waited / 8, shortest_nap, longest_nap));
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds yield_for{200};
  static constexpr std::chrono::microseconds shortest_nap{50};  // the kernel's timer slack
  static constexpr std::chrono::microseconds longest_nap{500};

  bool waiting_ = false;
  Clock::time_point since_;
};

}  // namespace spp::runtime
