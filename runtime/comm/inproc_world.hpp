// What the ranks of an `inproc` run share: their inboxes, the abort, the meetings (inproc.cpp tells
// how they are used).
#pragma once

#include "base/error.hpp"
#include "base/id.hpp"
#include "runtime/comm/deadlines.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace spp::runtime::inproc_world {

inline constexpr std::size_t cache_line = 64;

/// The sender's side of a message. Its owner keeps it until it was taken.
struct Message {
  Rank from;
  int tag = 0;
  std::span<const std::byte> data;
  Message* next = nullptr;
  std::atomic<bool> taken = false;
};

/// What all ranks of a run share.
class World {
 public:
  World(int ranks, const Deadlines& deadlines)
      : deadlines_(deadlines),
        ends_(static_cast<std::size_t>(ranks)),
        texts_(ends_.size()),
        came_(ends_.size(), false) {}

  [[nodiscard]] int size() const { return static_cast<int>(ends_.size()); }
  [[nodiscard]] const Deadlines& deadlines() const { return deadlines_; }

  /// Some rank is at work.
  void sign() { sign_ = Clock::now().time_since_epoch().count(); }
  [[nodiscard]] Seconds since_sign() const {
    return Clock::now() - Clock::time_point(Clock::duration(sign_));
  }

  void push(Rank to, Message& message) {
    std::atomic<Message*>& inbox = ends_[to.index()].inbox;
    message.next = inbox.load(std::memory_order_relaxed);
    while (!inbox.compare_exchange_weak(message.next, &message, std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
  }

  /// The messages that have come since, oldest first.
  Message* take(Rank owner) {
    std::atomic<Message*>& inbox = ends_[owner.index()].inbox;
    if (inbox.load(std::memory_order_relaxed) == nullptr) {
      return nullptr;
    }
    Message* newest = inbox.exchange(nullptr, std::memory_order_acquire);
    Message* oldest = nullptr;
    while (newest != nullptr) {
      Message* older = std::exchange(newest->next, oldest);
      oldest = newest;
      newest = older;
    }
    return oldest;
  }

  /// False: the run was aborted, nothing may be copied. The order "flag, then look" against
  /// abort()'s "abort, then look at the flags" needs sequential consistency, the default.
  bool begin_copy(Rank rank) {
    ends_[rank.index()].copying = true;
    if (!aborted_) {
      return true;
    }
    end_copy(rank);
    return false;
  }
  void end_copy(Rank rank) { ends_[rank.index()].copying.store(false, std::memory_order_release); }

  [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// The first text stays. Returns when nobody copies any more.
  void abort(Rank by, std::string_view text) {
    {
      const std::scoped_lock lock(mutex_);
      if (!aborted_) {
        why_ = fmt::format("aborted by rank {}: {}", by.value, text);
        aborted_ = true;
      }
    }
    changed_.notify_all();
    wait_for_copies();
  }

  [[nodiscard]] std::string why_aborted() {
    wait_for_copies();
    const std::scoped_lock lock(mutex_);
    return why_;
  }

  enum class Met : std::uint8_t { all, aborted, not_all };

  /// All ranks together; everybody's text by rank. Else `missing` are those who have not come.
  Met meet(Rank rank, std::string_view text, std::vector<std::string>* texts,
           std::vector<Rank>& missing) {
    std::unique_lock lock(mutex_);
    sign();  // somebody comes: something happens
    const auto wait_until = [&](auto&& condition) {
      const auto ready = [&] { return aborted_ || condition(); };
      while (!changed_.wait_for(lock, deadlines_.between_signs(), ready)) {
        if (since_sign() > deadlines_.timeout) {
          return false;
        }
      }
      return !aborted_;
    };
    const auto failed = [&] {
      for (int r = 0; r < size(); ++r) {
        // Where all have come, those are missing who have not left.
        if (came_[Rank(r).index()] == leaving_) {
          missing.emplace_back(r);
        }
      }
      return aborted_ ? Met::aborted : Met::not_all;
    };
    if (!wait_until([this] { return !leaving_; })) {  // the last meeting is over for everybody
      return failed();
    }
    came_[rank.index()] = true;
    texts_[rank.index()] = text;
    if (++inside_ == size()) {
      leaving_ = true;
      changed_.notify_all();
    }
    if (!wait_until([this] { return leaving_; })) {
      return failed();
    }
    if (texts != nullptr) {
      *texts = texts_;
    }
    came_[rank.index()] = false;
    if (--inside_ == 0) {
      leaving_ = false;
      changed_.notify_all();
    }
    return Met::all;
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct alignas(cache_line) End {
    std::atomic<Message*> inbox = nullptr;
    std::atomic<bool> copying = false;
  };

  void wait_for_copies() const {
    for (const End& end : ends_) {
      while (end.copying) {
        std::this_thread::yield();
      }
    }
  }

  const Deadlines deadlines_;
  std::vector<End> ends_;
  std::atomic<Clock::rep> sign_ = Clock::now().time_since_epoch().count();
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::string why_;
  std::vector<std::string> texts_;
  std::vector<bool> came_;  // by rank: to this meeting, and has not left it
  int inside_ = 0;          // ranks that have entered a meeting and not left it
  bool leaving_ = false;
};

}  // namespace spp::runtime::inproc_world
