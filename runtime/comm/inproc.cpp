// Ranks as threads of this process. A message is copied once, from the sender's memory to the
// receiver's, by the receiver, in its progress():
//
//   sender                                     receiver
//   send(): a Message onto the inbox  ------>  progress(): takes the inbox, matches by (from, tag),
//                                              copies a slice of every matched message in turn
//   done(): Message::taken            <------  last slice copied
//
// The inbox is a lock-free stack: many push, its owner takes all at once and turns it round, which
// keeps the order of each sender. A rank that polls without news costs one atomic load.
//
// Abort. Buffers die when their rank unwinds, so nobody may copy then: a copying rank raises its
// flag before it looks whether the run was aborted; whoever aborts, or throws because of an abort,
// waits until all flags are down (one slice at most).
#include "base/error.hpp"
#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/inproc_world.hpp"

#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

namespace spp::runtime {
namespace {

using inproc_world::Message;
using inproc_world::World;

// Concurrent messages share a receiver slice by slice, as flows share a link in the simulator; a
// call of progress() copies at most a few slices, about 0.1 ms at 10 GB/s.
constexpr std::size_t slice_bytes = 256 << 10;
constexpr std::size_t progress_bytes = 4 * slice_bytes;

/// The receiver's side.
struct Receive {
  std::span<std::byte> data;
  bool complete = false;
};

/// What the other ranks throw after an abort: never the cause.
class Aborted : public BackendError {
 public:
  using BackendError::BackendError;
};

class InprocTransport : public Transport {
 public:
  InprocTransport(World& world, Rank rank)
      : world_(world), rank_(rank), patience_(world.deadlines()) {}

  [[nodiscard]] Rank rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return world_.size(); }
  [[nodiscard]] int host(Rank /*rank*/) const override { return 0; }

  Ticket send(Rank to, int tag, std::span<const std::byte> data) override {
    go_on("send");
    check_message(*this, to, tag);
    auto message = std::make_unique<Message>();
    message->from = rank_;
    message->tag = tag;
    message->data = data;
    world_.push(to, *message);
    sends_.emplace(++last_ticket_, std::move(message));
    return last_ticket_;
  }

  Ticket receive(Rank from, int tag, std::span<std::byte> data) override {
    go_on("receive");
    check_message(*this, from, tag);
    const auto at = receives_.emplace(++last_ticket_, Receive{.data = data}).first;
    Mailbox& box = mailbox(from, tag);
    box.wanted.push_back(&at->second);  // stays there: the map has nodes
    match(from, tag, box);
    return last_ticket_;
  }

  void progress() override;

  bool done(Ticket ticket) override {
    go_on("done");
    if (const auto send = sends_.find(ticket); send != sends_.end()) {
      if (!send->second->taken.load(std::memory_order_acquire)) {
        return false;
      }
      sends_.erase(send);
    } else {
      const auto receive = receives_.find(ticket);
      ensure(receive != receives_.end(), fmt::format("no message with ticket {}", ticket));
      if (!receive->second.complete) {
        return false;
      }
      receives_.erase(receive);
    }
    patience_.news();
    return true;
  }

  void idle() override {
    go_on("idle");
    if (patience_.wait()) {
      working();
    }
    patience_.nap();
  }

  [[nodiscard]] const Deadlines& deadlines() const override { return world_.deadlines(); }
  void working() override {
    if (patience_.sign_due()) {
      world_.sign();
    }
  }
  [[nodiscard]] Seconds silence() override {
    return std::min(patience_.silence(), world_.since_sign());
  }

  void barrier() override { meet("barrier", "", nullptr); }

  std::vector<std::string> all_gather_text(const std::string& mine) override {
    std::vector<std::string> texts;
    meet("all_gather_text", mine, &texts);
    return texts;
  }

  void abort(std::string_view text) noexcept override { world_.abort(rank_, text); }

  [[nodiscard]] std::size_t open_messages() const { return sends_.size() + receives_.size(); }

 private:
  struct Mailbox {  // of one (sender, tag): one of the two is empty
    std::deque<Message*> sent;
    std::deque<Receive*> wanted;
  };
  struct Copy {
    Message* from;
    Receive* to;
    std::size_t offset = 0;
  };

  Mailbox& mailbox(Rank from, int tag) { return mailboxes_[from.value * message_tags + tag]; }

  void match(Rank from, int tag, Mailbox& box);
  void copy_slices();

  /// Throws if the run was aborted.
  void go_on(std::string_view call) {
    if (world_.aborted()) {
      throw Aborted(call, world_.why_aborted(), rank_.value);
    }
  }

  void meet(std::string_view call, std::string_view text, std::vector<std::string>* texts) {
    go_on(call);
    std::vector<Rank> missing;
    const World::Met met = world_.meet(rank_, text, texts, missing);
    if (met != World::Met::all) {
      go_on(call);
      throw BackendError(call, silence_text(world_.since_sign(), missing), rank_.value);
    }
    patience_.news();
  }

  World& world_;
  Rank rank_;
  Ticket last_ticket_ = 0;
  std::unordered_map<Ticket, std::unique_ptr<Message>> sends_;
  std::unordered_map<Ticket, Receive> receives_;
  std::unordered_map<int, Mailbox> mailboxes_;
  std::deque<Copy> copies_;
  Patience patience_;
};

void InprocTransport::progress() {
  go_on("progress");
  for (Message* message = world_.take(rank_); message != nullptr;) {
    Message& now = *message;
    message = message->next;
    Mailbox& box = mailbox(now.from, now.tag);
    box.sent.push_back(&now);
    match(now.from, now.tag, box);
  }
  if (!copies_.empty()) {
    copy_slices();
    patience_.news();
  }
}

void InprocTransport::match(Rank from, int tag, Mailbox& box) {
  while (!box.sent.empty() && !box.wanted.empty()) {
    Message* message = box.sent.front();
    Receive* receive = box.wanted.front();
    if (message->data.size() != receive->data.size()) {
      const std::string text =
          fmt::format("{} bytes from rank {} with tag {}, but {} were expected",
                      message->data.size(), from.value, tag, receive->data.size());
      world_.abort(rank_, text);
      throw BackendError("receive", text, rank_.value);
    }
    box.sent.pop_front();
    box.wanted.pop_front();
    copies_.push_back({.from = message, .to = receive});
  }
}

void InprocTransport::copy_slices() {
  std::size_t budget = progress_bytes;
  while (!copies_.empty() && budget > 0) {
    if (!world_.begin_copy(rank_)) {
      go_on("progress");
    }
    Copy copy = copies_.front();
    copies_.pop_front();
    const std::size_t left = copy.from->data.size() - copy.offset;
    const std::size_t bytes = std::min({left, slice_bytes, budget});
    if (bytes > 0) {
      std::memcpy(copy.to->data.data() + copy.offset, copy.from->data.data() + copy.offset, bytes);
    }
    copy.offset += bytes;
    budget -= bytes;
    if (bytes == left) {
      copy.to->complete = true;
      copy.from->taken.store(true, std::memory_order_release);  // last touch of the message
    } else {
      copies_.push_back(copy);
    }
    world_.end_copy(rank_);
  }
}

/// The exception that run() rethrows: the first cause, or else the first word of an abort.
class FirstError {
 public:
  void keep(std::exception_ptr error, bool cause) {
    const std::scoped_lock lock(mutex_);
    if (!error_ || (cause && !cause_)) {
      error_ = std::move(error);
      cause_ = cause;
    }
  }
  void rethrow() {
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool cause_ = false;
};

void run_rank(InprocTransport& transport, const RankBody& body, FirstError& error) {
  try {
    abort_on_throw(transport, [&] {
      body(transport);
      ensure(transport.open_messages() == 0,
             fmt::format("rank {} ended with {} open messages", transport.rank().value,
                         transport.open_messages()));
    });
  } catch (const Aborted&) {
    error.keep(std::current_exception(), false);
  } catch (...) {
    error.keep(std::current_exception(), true);
  }
}

void run(int ranks, const RankBody& body, const RunSettings& settings) {
  ensure(ranks >= 1, "a run without ranks");
  World world(ranks, settings.deadlines);
  FirstError error;
  std::vector<std::unique_ptr<InprocTransport>>
      ends;  // outlive all threads: their messages are linked
  ends.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    ends.push_back(std::make_unique<InprocTransport>(world, Rank(r)));
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    InprocTransport& transport = *ends[static_cast<std::size_t>(r)];
    try {
      threads.emplace_back([&] { run_rank(transport, body, error); });
    } catch (const std::system_error& e) {
      const BackendError cause("std::thread", e.what(), r);
      error.keep(std::make_exception_ptr(cause), true);
      world.abort(Rank(r), cause.what());
      break;
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  error.rethrow();
}

}  // namespace

namespace transports {
extern const TransportBackend inproc{
    .name = "inproc",
    .title = "threads of this process",
    .why_not = [] { return std::string(); },
    .launched = [] { return false; },
    .launched_ranks = [] { return 0; },
    .launched_rank = [] { return 0; },
    .start = run,
};
}  // namespace transports

}  // namespace spp::runtime
