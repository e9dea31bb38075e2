// Both sides of one handshake, which must agree word for word.
#include "runtime/comm/tcp_setup.hpp"

#include "base/error.hpp"
#include "runtime/comm/question.hpp"

#include <fmt/ranges.h>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

namespace spp::runtime::tcp {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point after(Seconds wait) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(wait);
}

/// Its time does not tell how much of a guess was right.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    different |= static_cast<unsigned>(static_cast<unsigned char>(a[i] ^ other));
  }
  return different == 0;
}

/// Why a stranger is one; the text follows "2 strangers were turned away: 1 ".
enum class Strange : std::uint8_t {
  not_ours,
  silent,
  version,
  token,
  size,
  request,
  rank,
  taken,
  crowded
};
constexpr std::array<std::string_view, 9> why_strange{"that does not speak as sp-plan does",
                                                      "that said nothing in time",
                                                      "of another version",
                                                      "with another job token",
                                                      "of a run of another size",
                                                      "that is asked for something else",
                                                      "with a rank that this run does not have",
                                                      "with a rank that is there already",
                                                      "too many at a time"};

int error_of_socket_calls() { return errno; }

std::string text_of(int error) { return std::generic_category().message(error); }

/// Rank 0's door.
class Gate {
 public:
  Gate(const TorchLaunch& launch, const Identity& identity, const RunSettings& settings,
       std::map<int, Connection>& ranks)
      : launch_(launch), identity_(identity), settings_(settings), ranks_(ranks) {}

  void run() {
    if (launch_.ranks == 1) {
      return;
    }
    listen();
    const auto end = after(settings_.deadlines.timeout);
    while (std::ssize(ranks_) + 1 < launch_.ranks) {
      if (Clock::now() > end) {
        throw BackendError(
            "set-up",
            fmt::format("{} of {} ranks have come within {:.1f} s{}", ranks_.size() + 1,
                        launch_.ranks, settings_.deadlines.timeout.count(), missing()),
            0);
      }
      wait();
      accept();
      hear();
    }
    for (const std::string& text : {elsewhere_, turned_away()}) {
      if (settings_.warn && !text.empty()) {
        settings_.warn(text);
      }
    }
  }

 private:
  struct Stranger {
    Connection connection;
    Clock::time_point until;
  };

  [[nodiscard]] int port() const { return launch_.port + 1; }

  void listen() {
    std::string why;
    const std::vector<Address> addresses = resolve(launch_.master, port(), why);
    if (addresses.empty()) {
      throw BackendError("getaddrinfo", fmt::format("MASTER_ADDR '{}': {}", launch_.master, why),
                         0);
    }
    const bool hidden = !launch_.one_host && !says_loopback(launch_.master) &&
                        std::ranges::all_of(addresses, &Address::loopback);
    if (hidden) {
      listen_everywhere("is a loopback address on this host, where others may see another one");
      return;
    }
    for (const Address& address : addresses) {
      listen(address, EADDRNOTAVAIL);
    }
    if (listeners_.empty()) {
      listen_everywhere("is no address of this host (NAT, or a container's outer address?)");
    }
  }
  void listen_everywhere(std::string_view why) {
    elsewhere_ = fmt::format("MASTER_ADDR '{}' {}: rank 0 listens on all addresses, port {}",
                             launch_.master, why, port());
    std::string unknown;
    for (const Address& address : resolve("", port(), unknown)) {
      listen(address, EAFNOSUPPORT);
    }
    if (listeners_.empty()) {
      throw BackendError("listen", fmt::format("no address to listen on: {}", unknown), 0);
    }
  }
  /// At one address, which may fail in one way.
  void listen(const Address& address, int allowed) {
    Socket socket = listen_at(address);
    if (const int error = error_of_socket_calls(); socket.valid()) {
      listeners_.push_back(std::move(socket));
    } else if (error != allowed && error != EAFNOSUPPORT && error != EADDRNOTAVAIL) {
      throw BackendError("listen",
                         fmt::format("{}, the port behind MASTER_PORT: {}",
                                     place(launch_.master, port()), text_of(error)),
                         0);
    }
  }

  void wait() {
    std::vector<pollfd> sockets;
    for (const Socket& listener : listeners_) {
      sockets.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
    }
    for (const Stranger& s : strangers_) {
      sockets.push_back({.fd = s.connection.socket(), .events = POLLIN, .revents = 0});
    }
    constexpr int look_again = 20;  // milliseconds
    (void)::poll(sockets.data(), sockets.size(), look_again);
  }

  void accept() {
    constexpr int most_at_once = 64;
    for (const Socket& listener : listeners_) {
      for (int i = 0; i < most_at_once; ++i) {
        Socket socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket.valid()) {
          break;  // nobody is there; or what is wrong will be over, or the time will
        }
        strangers_.push_back(
            {.connection = Connection(std::move(socket), settings_.deadlines, largest_hello),
             .until = after(settings_.deadlines.reply())});
      }
    }
    // Ranks speak at once: the oldest are most likely none.
    while (std::ssize(strangers_) > launch_.ranks + 64) {
      ++counts_[Strange::crowded];
      strangers_.pop_front();
    }
  }

  /// What strangers say; each is admitted, turned away, or may still speak.
  void hear() {
    std::deque<Stranger> waiting;
    for (Stranger& s : strangers_) {
      s.connection.read(header_bytes + largest_hello);
      if (auto frame = s.connection.next()) {
        judge(*frame, s.connection);
      } else if (s.connection.flaw() == Flaw::other_protocol) {
        turn_away(s.connection, Strange::version, "another protocol of sp-plan");
      } else if (s.connection.flaw() != Flaw::none) {
        ++counts_[Strange::not_ours];
      } else if (!s.connection.gone().empty() || Clock::now() > s.until) {
        ++counts_[Strange::silent];
      } else {
        waiting.push_back(std::move(s));
      }
    }
    strangers_ = std::move(waiting);
  }

  void judge(const Frame& frame, Connection& connection) {
    const auto hello = decode_hello(frame.payload);
    if (frame.header.kind != Kind::hello || frame.header.more || !hello) {
      ++counts_[Strange::not_ours];
      return;
    }
    const Hello& ours = identity_.hello;
    const int rank = frame.header.from;
    if (!same_secret(hello->token, ours.token)) {  // first: others are told no more than that
      turn_away(
          connection, Strange::token,
          identity_.token_variable.empty()
              ? "another job token: rank 0 has none"
              : fmt::format("another job token: rank 0's is from {}", identity_.token_variable));
    } else if (hello->version != ours.version) {
      turn_away(connection, Strange::version, another_version(ours.version));
    } else if (hello->size != ours.size) {
      turn_away(connection, Strange::size,
                fmt::format("another size of the run: rank 0 has WORLD_SIZE {}", ours.size));
    } else if (rank < 1 || rank >= launch_.ranks) {
      turn_away(connection, Strange::rank,
                fmt::format("no such rank: ranks are 0 to {}", launch_.ranks - 1));
    } else if (hello->request != ours.request) {
      turn_away(connection, Strange::request, another_request);
    } else if (is_there(rank)) {
      turn_away(connection, Strange::taken, "a rank of that number is there already");
    } else {
      connection.trust();
      connection.put({.kind = Kind::welcome, .from = 0, .to = rank}, {});
      connection.write();
      ranks_.emplace(rank, std::move(connection));
    }
  }

  /// A rank that has come and gone may come again.
  bool is_there(int rank) {
    const auto at = ranks_.find(rank);
    if (at == ranks_.end()) {
      return false;
    }
    at->second.read();
    if (at->second.gone().empty()) {
      return true;
    }
    ranks_.erase(at);
    return false;
  }

  void turn_away(Connection& connection, Strange why, std::string_view reason) {
    ++counts_[why];
    connection.put({.kind = Kind::refused}, std::as_bytes(std::span(reason)));
    connection.write();  // fits into any socket's buffer
  }

  /// "2 strangers were turned away: 1 with another job token, 1 of another version"; or "".
  [[nodiscard]] std::string turned_away() const {
    std::vector<std::string> parts;
    int all = 0;
    for (const auto& [why, count] : counts_) {
      parts.push_back(fmt::format("{} {}", count, why_strange[static_cast<std::size_t>(why)]));
      all += count;
    }
    return all == 0 ? ""
                    : fmt::format("{} stranger{} turned away at port {}: {}", all,
                                  all == 1 ? " was" : "s were", port(), fmt::join(parts, ", "));
  }

  /// "; ranks 2, 3 are missing; 1 stranger …"
  [[nodiscard]] std::string missing() const {
    constexpr std::size_t most = 20;
    std::vector<std::string> absent;
    for (int r = 1; r < launch_.ranks && absent.size() <= most; ++r) {
      if (!ranks_.contains(r)) {
        absent.push_back(absent.size() < most ? fmt::format("{}", r) : "…");
      }
    }
    std::string text = fmt::format("; rank{} {} {} missing", absent.size() == 1 ? "" : "s",
                                   fmt::join(absent, ", "), absent.size() == 1 ? "is" : "are");
    for (const std::string& more : {turned_away(), elsewhere_}) {
      text += more.empty() ? "" : "; " + more;
    }
    return text;
  }

  const TorchLaunch& launch_;
  const Identity& identity_;
  const RunSettings& settings_;
  std::map<int, Connection>& ranks_;
  std::vector<Socket> listeners_;
  std::string elsewhere_;  // why it listens elsewhere than at MASTER_ADDR; "" if it does not
  std::deque<Stranger> strangers_;  // in the order of coming
  std::map<Strange, int> counts_;
};

/// One try: all addresses, one after the other.
std::optional<Connection> connect_once(const std::vector<Address>& addresses,
                                       const Deadlines& deadlines, Clock::time_point end,
                                       std::string& why) {
  for (const Address& address : addresses) {
    const Seconds left = end - Clock::now();
    Socket socket = connect_to(address, std::clamp(left, Seconds(0.001), deadlines.reply()), why);
    if (socket.valid()) {
      return std::optional<Connection>(std::in_place, std::move(socket), deadlines,
                                       largest_payload);
    }
  }
  return std::nullopt;
}

/// The answer to a hello; nothing if there is none until `end`, or the connection breaks.
std::optional<Frame> answer(Connection& connection, Clock::time_point end) {
  while (Clock::now() < end && connection.gone().empty() && connection.flaw() == Flaw::none) {
    connection.write();
    pollfd ready{.fd = connection.socket(),
                 .events = static_cast<short>(POLLIN | (connection.writes() ? POLLOUT : 0)),
                 .revents = 0};
    constexpr int look_again = 20;  // milliseconds
    (void)::poll(&ready, 1, look_again);
    connection.read();
    if (auto frame = connection.next()) {
      return frame;
    }
  }
  return std::nullopt;
}

}  // namespace

Identity identity_of(int ranks, const RunSettings& settings) {
  const JobToken token = job_token();
  if (token.value.size() > largest_word) {
    throw InputError(token.variable, fmt::format("{} characters are more than {}",
                                                 token.value.size(), largest_word));
  }
  Question question = question_of(settings);
  question.program.resize(std::min(question.program.size(), largest_word));
  return {.hello = {.size = static_cast<std::uint32_t>(ranks),
                    .request = question.request,
                    .version = std::move(question.program),
                    .token = token.value},
          .token_variable = token.variable};
}

void admit_ranks(const TorchLaunch& launch, const Identity& identity, const RunSettings& settings,
                 std::map<int, Connection>& ranks) {
  Gate(launch, identity, settings, ranks).run();
}

Connection join(const TorchLaunch& launch, const Identity& identity, const Deadlines& deadlines) {
  const auto end = after(deadlines.timeout);
  const std::string at = place(launch.master, launch.port + 1);
  std::string why;
  const auto failed = [&](const std::string& text) {
    return BackendError("set-up", text, launch.rank);
  };
  const std::vector<Address> addresses = resolve(launch.master, launch.port + 1, why);
  if (addresses.empty()) {
    throw failed(fmt::format("MASTER_ADDR '{}': {}", launch.master, why));
  }
  while (Clock::now() < end) {
    auto connection = connect_once(addresses, deadlines, end, why);
    if (!connection) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    connection->put({.kind = Kind::hello, .from = launch.rank, .to = 0},
                    encode_hello(identity.hello));
    const auto frame = answer(*connection, end);
    if (frame && frame->header.kind == Kind::welcome) {
      return std::move(*connection);
    }
    if (frame && frame->header.kind == Kind::refused) {
      constexpr std::size_t most = 300;
      throw failed(fmt::format(
          "rank 0 at {} turned this rank away: {}", at,
          printable({reinterpret_cast<const char*>(frame->payload.data()), frame->payload.size()},
                    most)));
    }
    if (frame || connection->flaw() != Flaw::none) {
      throw failed(fmt::format("what answers at {} is not rank 0 of this sp-plan", at));
    }
    why = connection->gone().empty() ? "it was connected to, but says nothing" : connection->gone();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  throw failed(fmt::format("rank 0 does not answer at {} within {:.1f} s: {}", at,
                           deadlines.timeout.count(), why));
}

}  // namespace spp::runtime::tcp
