// Ranks as processes that torchrun, or whoever sets its variables, started: RANK, WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT. For runs on GPUs without MPI: NCCL moves the data, this is their
// control plane, and carries the few messages of set-up. So it is simple, not fast: rank 0 is a
// hub, all others have one connection to it, and it passes on what they send each other.
//
//   rank r > 0  <---- frames: kind, from, to, tag, size, payload ---->  rank 0
//
// The hub listens on MASTER_PORT + 1, since torchrun's own store listens on MASTER_PORT.
//
// One class, hence one file, though longer than most.
#include "base/error.hpp"
#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/tcp_connection.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spp::runtime {
namespace {

using Clock = std::chrono::steady_clock;

using namespace tcp;

int launched_ranks() { return all_set() ? launcher_number("WORLD_SIZE") : 0; }
int launched_rank() { return all_set() ? launcher_number("RANK") : 0; }
/// What other ranks throw after an abort: never the cause.
class Aborted : public BackendError {
 public:
  using BackendError::BackendError;
};

class TcpTransport : public Transport {
 public:
  TcpTransport(int rank, int size) : rank_(rank), size_(size) {
    if (rank == 0) {
      accept_all();
    } else {
      hub_.emplace(connect_to_hub(rank));
      put({.kind = Kind::hello, .from = rank, .to = 0}, {});
    }
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    std::vector<std::string> hosts;
    for (const std::string& host : all_gather_text(name.data())) {
      const auto at = std::ranges::find(hosts, host);
      hosts_.push_back(static_cast<int>(at - hosts.begin()));
      if (at == hosts.end()) {
        hosts.push_back(host);
      }
    }
  }

  [[nodiscard]] Rank rank() const override { return Rank(rank_); }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] int host(Rank rank) const override { return hosts_[rank.index()]; }

  Ticket send(Rank to, int tag, std::span<const std::byte> data) override {
    go_on("send");
    check_message(*this, to, tag);
    const Header header{
        .kind = Kind::message, .from = rank_, .to = to.value, .tag = tag, .size = data.size()};
    if (to.value == rank_) {
      deliver(header, {data.begin(), data.end()});
    } else {
      put(header, data);
    }
    return ++last_ticket_;  // the data was copied: done
  }
  Ticket receive(Rank from, int tag, std::span<std::byte> data) override {
    go_on("receive");
    check_message(*this, from, tag);
    wanted_[{from.value, tag}].push_back({.ticket = ++last_ticket_, .data = data});
    open_.insert(last_ticket_);
    match(from.value, tag);
    return last_ticket_;
  }
  bool done(Ticket ticket) override {
    go_on("done");
    return !open_.contains(ticket);
  }
  void progress() override { turn(std::chrono::milliseconds(0)); }
  void idle() override { turn(std::chrono::milliseconds(1)); }

  void barrier() override { (void)all_gather_text(""); }
  std::vector<std::string> all_gather_text(const std::string& mine) override {
    go_on("all_gather_text");
    const auto bytes = std::as_bytes(std::span(mine));
    if (rank_ != 0) {
      put({.kind = Kind::text, .from = rank_, .to = 0, .size = bytes.size()}, bytes);
    } else {
      texts_[0].emplace_back(mine);
    }
    while (answers_.empty()) {
      answer_if_complete();
      if (answers_.empty()) {
        turn(std::chrono::milliseconds(20));
      }
    }
    std::vector<std::string> texts = std::move(answers_.front());
    answers_.pop_front();
    return texts;
  }

  void abort(std::string_view text) noexcept override {
    try {
      if (!aborted_) {
        aborted_ = fmt::format("aborted by rank {}: {}", rank_, text);
        spread_abort(*aborted_);
      }
      flush();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the others will see that we are gone
    }
  }

  [[nodiscard]] bool open_messages() const { return !open_.empty(); }
  /// Until all that was put is written.
  void flush() {
    const auto since = Clock::now();
    const auto left = [this] {
      bool any = hub_ && hub_->writes();
      for (const auto& [r, c] : spokes_) {
        any = any || c.writes();
      }
      return any;
    };
    while (left() && Clock::now() - since < std::chrono::seconds(5)) {
      for_each([this](int, Connection& c) { c.write(rank_); });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  struct Wanted {
    Ticket ticket;
    std::span<std::byte> data;
  };

  void accept_all() {
    if (size_ == 1) {
      return;
    }
    const Connection listener = listen_for_ranks(size_);
    std::vector<Connection> strangers;
    const auto since = Clock::now();
    while (std::ssize(spokes_) + 1 < size_) {
      if (Clock::now() - since > patience) {
        throw BackendError("accept",
                           fmt::format("{} of {} ranks have come", spokes_.size() + 1, size_), 0);
      }
      pollfd ready{.fd = listener.socket(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 20) > 0) {
        const int socket = ::accept(listener.socket(), nullptr, nullptr);
        if (socket >= 0) {
          strangers.emplace_back(socket);
        }
      }
      for (auto s = strangers.begin(); s != strangers.end();) {
        const bool open = s->read(0);
        if (const auto frame = s->next(0)) {
          spokes_.emplace(frame->first.from, std::move(*s));
        }
        s = open && s->socket() >= 0 ? s + 1 : erased(strangers, s);
      }
    }
  }
  /// Connections cannot be assigned, so vectors of them cannot erase.
  static std::vector<Connection>::iterator erased(std::vector<Connection>& all,
                                                  std::vector<Connection>::iterator at) {
    const auto index = at - all.begin();
    std::vector<Connection> rest;
    for (auto c = all.begin(); c != all.end(); ++c) {
      if (c != at) {
        rest.push_back(std::move(*c));
      }
    }
    all.swap(rest);
    return all.begin() + index;
  }

  void go_on(std::string_view call) const {
    if (aborted_) {
      throw Aborted(call, *aborted_, rank_);
    }
  }

  template <class Body>
  void for_each(Body&& body) {
    if (hub_) {
      body(0, *hub_);
    }
    for (auto& [rank, connection] : spokes_) {
      body(rank, connection);
    }
  }

  /// To a rank that is not us, by the hub if need be.
  void put(const Header& header, std::span<const std::byte> payload) {
    Connection& way = rank_ == 0 ? spokes_.at(header.to) : *hub_;
    way.put(header, payload);
    way.write(rank_);
  }

  void spread_abort(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    for_each([&](int rank, Connection& c) {
      c.put({.kind = Kind::abort, .from = rank_, .to = rank, .size = bytes.size()}, bytes);
    });
  }

  /// Waits a while for news, then moves what can be moved.
  void turn(std::chrono::milliseconds wait) {
    go_on("progress");
    if (take_frames()) {  // what came together with the greeting
      return;
    }
    std::vector<pollfd> sockets;
    for_each([&](int, const Connection& c) {
      sockets.push_back({.fd = c.socket(),
                         .events = static_cast<short>(POLLIN | (c.writes() ? POLLOUT : 0)),
                         .revents = 0});
    });
    if (sockets.empty()) {
      if (wait.count() > 0) {
        std::this_thread::sleep_for(wait);
      }
      return;
    }
    if (::poll(sockets.data(), sockets.size(), static_cast<int>(wait.count())) <= 0) {
      return;
    }
    std::optional<int> gone;
    for_each([&](int rank, Connection& c) {
      c.write(rank_);
      if (!c.read(rank_)) {
        gone = rank;
      }
    });
    // Last words count: who is gone is seen again in the next turn.
    if (!take_frames() && gone && !aborted_) {
      aborted_ = fmt::format("rank {} has ended", *gone);
      spread_abort(*aborted_);
    }
    go_on("progress");
  }

  /// Of all connections; says whether there were any.
  bool take_frames() {
    bool any = false;
    for_each([&](int, Connection& c) {
      while (auto frame = c.next(rank_)) {
        any = true;
        take(frame->first, std::move(frame->second));
      }
    });
    return any;
  }

  void take(const Header& header, std::vector<std::byte> payload) {
    switch (header.kind) {
      case Kind::hello:
        return;
      case Kind::message:
        if (header.to == rank_) {
          deliver(header, std::move(payload));
        } else {
          put(header, payload);
        }
        return;
      case Kind::text:
        texts_[header.from].emplace_back(reinterpret_cast<const char*>(payload.data()),
                                         payload.size());
        return;
      case Kind::texts:
        answers_.push_back(unpacked(payload));
        return;
      case Kind::abort:
        if (!aborted_) {
          aborted_ = std::string(reinterpret_cast<const char*>(payload.data()), payload.size());
          if (rank_ == 0) {
            spread_abort(*aborted_);
            flush();
          }
        }
        return;
    }
    throw BackendError("tcp", "a frame of a kind that we do not know", rank_);
  }

  void deliver(const Header& header, std::vector<std::byte> payload) {
    arrived_[{header.from, header.tag}].push_back(std::move(payload));
    match(header.from, header.tag);
  }
  void match(int from, int tag) {
    auto& arrived = arrived_[{from, tag}];
    auto& wanted = wanted_[{from, tag}];
    while (!arrived.empty() && !wanted.empty()) {
      const std::vector<std::byte>& data = arrived.front();
      const Wanted& place = wanted.front();
      if (data.size() != place.data.size()) {
        throw BackendError("receive",
                           fmt::format("{} bytes from rank {} with tag {}, but {} were expected",
                                       data.size(), from, tag, place.data.size()),
                           rank_);
      }
      std::ranges::copy(data, place.data.begin());
      open_.erase(place.ticket);
      arrived.pop_front();
      wanted.pop_front();
    }
  }

  /// The hub: everybody's text is there.
  void answer_if_complete() {
    if (rank_ != 0) {
      return;
    }
    for (int r = 0; r < size_; ++r) {
      if (texts_[r].empty()) {
        return;
      }
    }
    std::vector<std::string> all;
    std::vector<std::byte> packed;
    for (int r = 0; r < size_; ++r) {
      const std::string& text = all.emplace_back(std::move(texts_[r].front()));
      texts_[r].pop_front();
      const std::uint64_t length = text.size();
      const auto head = std::as_bytes(std::span(&length, 1));
      const auto body = std::as_bytes(std::span(text));
      packed.insert(packed.end(), head.begin(), head.end());
      packed.insert(packed.end(), body.begin(), body.end());
    }
    for (const auto& [rank, connection] : spokes_) {
      put({.kind = Kind::texts, .from = 0, .to = rank, .size = packed.size()}, packed);
    }
    answers_.push_back(std::move(all));
  }
  std::vector<std::string> unpacked(std::span<const std::byte> packed) const {
    std::vector<std::string> texts;
    for (int r = 0; r < size_; ++r) {
      std::uint64_t length = 0;
      ensure(packed.size() >= sizeof(length), "texts that end too early");
      std::memcpy(&length, packed.data(), sizeof(length));
      packed = packed.subspan(sizeof(length));
      ensure(packed.size() >= length, "texts that end too early");
      texts.emplace_back(reinterpret_cast<const char*>(packed.data()), length);
      packed = packed.subspan(length);
    }
    return texts;
  }

  int rank_;
  int size_;
  std::optional<Connection> hub_;     // of ranks other than 0
  std::map<int, Connection> spokes_;  // of rank 0, by rank
  std::vector<int> hosts_;
  Ticket last_ticket_ = 0;
  std::set<Ticket> open_;                                     // receives
  std::map<std::pair<int, int>, std::deque<Wanted>> wanted_;  // by sender and tag
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> arrived_;
  std::map<int, std::deque<std::string>> texts_;  // at the hub, by rank
  std::deque<std::vector<std::string>> answers_;
  std::optional<std::string> aborted_;
};

void run(int ranks, const RankBody& body) {
  const int launched = launched_ranks();
  if (launched != ranks) {
    throw InputError(
        "--gpus", fmt::format("the launcher started {} ranks, the plan has {}", launched, ranks));
  }
  TcpTransport transport(launched_rank(), ranks);
  abort_on_throw(transport, [&] {
    body(transport);
    ensure(!transport.open_messages(), "a rank ended with open messages");
    transport.barrier();  // nobody leaves while others still talk
  });
  transport.flush();
}

}  // namespace

namespace transports {
extern const TransportBackend tcp{
    .name = "tcp",
    .title = "processes that torchrun started",
    .why_not =
        [] {
          return all_set() ? std::string()
                           : std::string(
                                 "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set: "
                                 "start it with torchrun, or set them");
        },
    .launched_ranks = launched_ranks,
    .launched_rank = launched_rank,
    .run = run,
};
}  // namespace transports

}  // namespace spp::runtime
