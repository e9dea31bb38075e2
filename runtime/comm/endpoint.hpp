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

/// Equal names have one number, in the order in which they first appear: a b a c -> 0 1 0 2.
std::vector<int> numbers_of(const std::vector<std::string>& names);

/// How a rank without work waits: it gives its core away, and after a while without any news it
/// naps, since more ranks than cores is normal and each of them polls. Naps grow with the time
/// waited, so they add at most an eighth to it. And when it tells others that it is not dead.
class Patience {
 public:
  explicit Patience(const Deadlines& deadlines)
      : between_signs_(std::chrono::duration_cast<Clock::duration>(deadlines.between_signs())) {}

  void news() { waiting_ = false; }
  /// Another rank is at work.
  void heard() { heard_ = Clock::now(); }
  /// How long there were no news, and nobody was heard.
  [[nodiscard]] Seconds silence() const {
    return waiting_ ? Clock::now() - std::max(since_, heard_) : Clock::duration(0);
  }
  /// True once in a while: it is time to tell others.
  bool sign_due() {
    const auto now = Clock::now();
    if (now - told_ < between_signs_) {
      return false;
    }
    told_ = now;
    return true;
  }
  /// A rank without work begins to wait, or goes on; true if there were news before.
  bool wait() {
    if (waiting_) {
      return false;
    }
    waiting_ = true;
    since_ = Clock::now();
    return true;
  }
  /// Waits a little.
  void nap() const {
    const auto waited = Clock::now() - since_;
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

  Clock::duration between_signs_;
  bool waiting_ = false;
  Clock::time_point since_, heard_;
  Clock::time_point told_ = Clock::now();
};

}  // namespace spp::runtime
