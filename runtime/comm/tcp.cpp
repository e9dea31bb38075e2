// One class, hence one file.
//
// Ranks as processes that torchrun, or whoever sets its variables, started: RANK, WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT. For runs on GPUs without MPI: NCCL moves the data, this is their
// control plane, and carries the few messages of set-up. So it is simple, not fast: rank 0 is a
// hub, all others have one connection to it, and it passes on what they send each other.
//
//   rank r > 0  <---- frames (frames.hpp) ---->  rank 0
//
// Who may take part, and where rank 0 listens: tcp_setup.hpp (SP_PLAN_JOB_TOKEN is the secret that
// keeps others out). From then on a connection is one rank's: a frame from another rank, to a rank
// that is not there, or that is no frame ends the run with its sender's number. Frames are small,
// however large a message is; a message that is larger than what was posted for it is refused
// before all of it has come. What others say of their failure is shown in one line of plain text.
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/tcp_setup.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace spp::runtime {
namespace {

using Clock = std::chrono::steady_clock;

using namespace tcp;

/// What other ranks throw after an abort: never the cause.
class Aborted : public BackendError {
 public:
  using BackendError::BackendError;
};

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class TcpTransport : public Transport {
 public:
  TcpTransport(const TorchLaunch& launch, const RunSettings& settings)
      : launch_(launch),
        settings_(settings),
        rank_(launch.rank),
        size_(launch.ranks),
        patience_(settings.deadlines) {}

  /// Until all ranks have come. Before all else.
  void set_up() {
    const Identity identity = identity_of(size_, settings_);
    if (rank_ == 0) {
      admit_ranks(launch_, identity, settings_, spokes_);
    } else {
      hub_.emplace(join(launch_, identity, settings_.deadlines));
    }
    hosts_ = numbers_of(meet("set-up", host_name()));
  }

  [[nodiscard]] Rank rank() const override { return Rank(rank_); }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] int host(Rank rank) const override { return hosts_[rank.index()]; }

  Ticket send(Rank to, int tag, std::span<const std::byte> data) override {
    go_on("send");
    check_message(*this, to, tag);
    const Header header{.kind = Kind::message, .from = rank_, .to = to.value, .tag = tag};
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

  [[nodiscard]] const Deadlines& deadlines() const override { return settings_.deadlines; }
  void working() override {
    if (patience_.sign_due()) {
      spread({.kind = Kind::alive, .from = rank_}, {});
    }
  }
  [[nodiscard]] Seconds silence() override { return patience_.silence(); }

  void barrier() override { (void)meet("barrier", ""); }
  std::vector<std::string> all_gather_text(const std::string& mine) override {
    return meet("all_gather_text", mine);
  }

  void abort(std::string_view text) noexcept override {
    try {
      if (!aborted_) {
        aborted_ = fmt::format("aborted by rank {}: {}", rank_, text);
        spread_abort();
      }
      flush();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the others will see that we are gone
    }
  }

  [[nodiscard]] bool open_messages() const { return !open_.empty(); }
  /// Until all that was put is written, or nobody takes it.
  void flush() {
    const auto since = Clock::now();
    const auto left = [this] {
      bool any = false;
      for_each([&](int, const Connection& c) { any = any || (c.writes() && c.gone().empty()); });
      return any;
    };
    while (left() && Clock::now() - since < settings_.deadlines.reply()) {
      for_each([](int, Connection& c) { c.write(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  struct Wanted {
    Ticket ticket;
    std::span<std::byte> data;
  };

  /// All ranks together: everybody's text.
  std::vector<std::string> meet(std::string_view call, const std::string& mine) {
    go_on(call);
    if (rank_ != 0) {
      put({.kind = Kind::text, .from = rank_, .to = 0}, std::as_bytes(std::span(mine)));
    } else {
      texts_[0].emplace_back(mine);
    }
    for (answer_if_complete(); answers_.empty(); answer_if_complete()) {
      turn(std::chrono::milliseconds(20));
      if (const Seconds silence = patience_.silence();
          answers_.empty() && silence > settings_.deadlines.silence_of(rank_)) {
        throw BackendError(call, silence_text(silence, absent()), rank_);
      }
    }
    patience_.news();
    std::vector<std::string> texts = std::move(answers_.front());
    answers_.pop_front();
    return texts;
  }
  /// For whom a meeting waits, as far as this rank knows: the others hear from rank 0 only.
  [[nodiscard]] std::vector<Rank> absent() const {
    std::vector<Rank> ranks;
    for (int r = 0; r < (rank_ == 0 ? size_ : 1); ++r) {
      if (const auto at = texts_.find(r); at == texts_.end() || at->second.empty()) {
        ranks.emplace_back(r);
      }
    }
    return ranks;
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
    way.write();
  }

  /// To all that this rank is connected with.
  void spread(Header header, std::span<const std::byte> payload) {
    for_each([&](int rank, Connection& c) {
      header.to = rank;
      c.put(header, payload);
      c.write();
    });
  }
  void spread_abort() {
    spread({.kind = Kind::abort, .from = rank_}, std::as_bytes(std::span(*aborted_)));
  }

  /// Waits a while for news, then moves what can be moved.
  void turn(std::chrono::milliseconds wait) {
    go_on("progress");
    if (take_frames()) {  // what came together with the greeting
      return;
    }
    if (patience_.wait()) {
      working();  // there was news
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
    for_each([](int, Connection& c) {
      c.write();
      c.read();
    });
    // Last words count: who is gone is seen again in the next turn.
    if (!take_frames() && !aborted_) {
      for_each([this](int rank, const Connection& c) {
        if (!c.gone().empty() && !aborted_) {
          aborted_ = fmt::format("rank {} has ended ({})", rank, c.gone());
        }
      });
      if (aborted_) {
        spread_abort();
      }
    }
    go_on("progress");
  }

  /// Of all connections; says whether there were any.
  bool take_frames() {
    bool any = false;
    for_each([&](int rank, Connection& c) {
      while (auto frame = c.next()) {
        any = true;
        expect_right(rank, frame->header);
        take(std::move(*frame));
      }
      if (c.flaw() != Flaw::none) {
        wrong(rank, "what is no frame of ours");
      }
    });
    return any;
  }

  [[noreturn]] void wrong(int sender, std::string_view what) const {
    throw BackendError("tcp", fmt::format("rank {} sent {}", sender, what), rank_);
  }
  /// Each rank speaks for itself only, to one that is there, and of what its part is.
  void expect_right(int sender, const Header& header) const {
    const bool from_spoke = rank_ == 0;
    const auto is_rank = [&](int rank) { return rank >= 0 && rank < size_; };
    switch (header.kind) {
      case Kind::message:
        if (header.tag < 0 || header.tag >= message_tags) {
          wrong(sender, fmt::format("a message with tag {}", header.tag));
        }
        if (!is_rank(header.from) || (from_spoke ? header.from != sender : header.from == rank_)) {
          wrong(sender, fmt::format("a message from rank {}", header.from));
        }
        if (!is_rank(header.to) || (from_spoke ? header.to == sender : header.to != rank_)) {
          wrong(sender, fmt::format("a message to rank {} of {}", header.to, size_));
        }
        return;
      case Kind::text:
      case Kind::texts:
      case Kind::abort:
      case Kind::alive:
        if (header.from != sender || header.to != rank_) {
          wrong(sender, fmt::format("a frame from rank {} to rank {}", header.from, header.to));
        }
        if (header.kind == (from_spoke ? Kind::texts : Kind::text)) {
          wrong(sender, "a frame that is not its part");
        }
        return;
      case Kind::hello:
      case Kind::welcome:
      case Kind::refused:
        wrong(sender, "a greeting after the greeting");
    }
    throw InternalError("a kind of frame that the decoder lets pass");
  }

  void take(Frame frame) {
    const Header& header = frame.header;
    if (header.kind == Kind::alive) {
      patience_.heard();
      if (rank_ == 0) {
        working();  // tells the others
      }
      return;
    }
    patience_.news();
    if (header.kind == Kind::message && header.to != rank_) {
      put(header, frame.payload);
      return;
    }
    std::vector<std::byte>& whole = begun_[{header.kind, header.from, header.tag}];
    if (header.kind == Kind::message) {
      expect_posted(header, whole.size() + frame.payload.size());
    }
    whole.insert(whole.end(), frame.payload.begin(), frame.payload.end());
    if (!header.more) {
      take(header, std::exchange(whole, {}));
    }
  }

  void take(const Header& header, std::vector<std::byte> payload) {
    if (header.kind == Kind::message) {
      deliver(header, std::move(payload));
    } else if (header.kind == Kind::text) {
      texts_[header.from].push_back(text_of(payload));
    } else if (header.kind == Kind::texts) {
      auto texts = decode_texts(payload, static_cast<std::size_t>(size_));
      if (!texts) {
        wrong(header.from, "texts that are not one of each rank");
      }
      answers_.push_back(std::move(*texts));
    } else if (!aborted_) {
      constexpr std::size_t most = 2000;
      aborted_ = printable(text_of(payload), most);
      if (rank_ == 0) {
        spread_abort();
        flush();
      }
    }
  }

  /// A message that is larger than its place is refused before all of it is here.
  void expect_posted(const Header& header, std::size_t size) const {
    const auto arrived = arrived_.find({header.from, header.tag});
    const auto wanted = wanted_.find({header.from, header.tag});
    if (wanted == wanted_.end() || wanted->second.empty() ||
        (arrived != arrived_.end() && !arrived->second.empty())) {
      return;
    }
    if (const std::size_t place = wanted->second.front().data.size(); size > place) {
      throw BackendError("receive",
                         fmt::format("more than {} bytes from rank {} with tag {}", place,
                                     header.from, header.tag),
                         rank_);
    }
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
    for (int r = 0; r < size_; ++r) {
      all.push_back(std::move(texts_[r].front()));
      texts_[r].pop_front();
    }
    spread({.kind = Kind::texts, .from = 0}, encode_texts(all));
    answers_.push_back(std::move(all));
  }

  const TorchLaunch& launch_;
  const RunSettings& settings_;
  int rank_;
  int size_;
  std::optional<Connection> hub_;     // of ranks other than 0
  std::map<int, Connection> spokes_;  // of rank 0, by rank
  std::vector<int> hosts_;            // by rank
  Ticket last_ticket_ = 0;
  std::set<Ticket> open_;                                     // receives
  std::map<std::pair<int, int>, std::deque<Wanted>> wanted_;  // by sender and tag
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> arrived_;
  std::map<std::tuple<Kind, int, int>, std::vector<std::byte>> begun_;  // by kind, sender, tag
  std::map<int, std::deque<std::string>> texts_;                        // at the hub, by rank
  std::deque<std::vector<std::string>> answers_;
  std::optional<std::string> aborted_;
  Patience patience_;
};

void run(int ranks, const RankBody& body, const RunSettings& settings) {
  const TorchLaunch launch = launched_by_torchrun();
  if (!launch.wrong.empty()) {
    throw InputError("transport tcp", launch.wrong);
  }
  if (launch.ranks != ranks) {
    throw InputError("--gpus", fmt::format("the launcher started {} ranks, the plan has {}",
                                           launch.ranks, ranks));
  }
  TcpTransport transport(launch, settings);
  abort_on_throw(transport, [&] {
    transport.set_up();
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
          const TorchLaunch launch = launched_by_torchrun();
          return launch.found() ? launch.wrong
                                : std::string(
                                      "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set: "
                                      "start it with torchrun, or set them");
        },
    .launched = [] { return launched_by_torchrun().found(); },
    .launched_ranks = [] { return launched_by_torchrun().ranks; },
    .launched_rank = [] { return launched_by_torchrun().rank; },
    .start = run,
};
}  // namespace transports

}  // namespace spp::runtime
