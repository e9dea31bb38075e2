// What the ranks of an `inproc` run share: their inboxes, the abort, the meetings (inproc.cpp tells
// how they are used).
#pragma once

#include "base/error.hpp"
#include "base/id.hpp"

#include <atomic>
#include <condition_variable>
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
  explicit World(int ranks) : ends_(static_cast<std::size_t>(ranks)), texts_(ends_.size()) {}

  [[nodiscard]] int size() const { return static_cast<int>(ends_.size()); }

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

  /// All ranks together; everybody's text by rank. False: aborted.
  bool meet(Rank rank, std::string_view text, std::vector<std::string>* texts) {
    std::unique_lock lock(mutex_);
    const auto wait_until = [&](auto&& condition) {
      changed_.wait(lock, [&] { return aborted_ || condition(); });
      return !aborted_;
    };
    if (!wait_until([this] { return !leaving_; })) {  // the last meeting is over for everybody
      return false;
    }
    texts_[rank.index()] = text;
    if (++inside_ == size()) {
      leaving_ = true;
      changed_.notify_all();
    }
    if (!wait_until([this] { return leaving_; })) {
      return false;
    }
    if (texts != nullptr) {
      *texts = texts_;
    }
    if (--inside_ == 0) {
      leaving_ = false;
      changed_.notify_all();
    }
    return true;
  }

 private:
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

  std::vector<End> ends_;
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::string why_;
  std::vector<std::string> texts_;
  int inside_ = 0;  // ranks that have entered a meeting and not left it
  bool leaving_ = false;
};

}  // namespace spp::runtime::inproc_world
