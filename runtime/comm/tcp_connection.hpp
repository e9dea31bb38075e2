// Connections and frames of the `tcp` transport (tcp.cpp).
#pragma once

#include "base/error.hpp"
#include "runtime/comm/launcher.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace spp::runtime::tcp {

inline constexpr std::chrono::seconds patience{60};  // until all ranks have come
inline constexpr std::uint32_t magic = 0x73707031;   // "spp1"

// NOLINTBEGIN(concurrency-mt-unsafe): nobody sets variables while these are read
inline bool all_set() {
  return std::ranges::all_of(std::array{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
                             [](const char* variable) { return std::getenv(variable) != nullptr; });
}
inline std::string master() { return std::getenv("MASTER_ADDR"); }
// NOLINTEND(concurrency-mt-unsafe)

inline std::string port() { return fmt::format("{}", launcher_number("MASTER_PORT") + 1); }

enum class Kind : std::uint32_t { hello, message, text, texts, abort };

struct Header {
  std::uint32_t mark = magic;
  Kind kind = Kind::message;
  std::int32_t from = 0, to = 0, tag = 0;
  std::uint64_t size = 0;  // of the payload that follows
};

[[noreturn]] inline void fail(std::string_view call, int rank) {
  throw BackendError(call, std::generic_category().message(errno), rank);
}

/// A connected socket with what has been read and what is still to be written.
class Connection {
 public:
  explicit Connection(int socket) : socket_(socket) {
    const int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  }
  Connection(Connection&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)),
        in_(std::move(other.in_)),
        out_(std::move(other.out_)) {}
  Connection& operator=(Connection&&) = delete;
  ~Connection() {
    if (socket_ >= 0) {
      close(socket_);
    }
  }

  [[nodiscard]] int socket() const { return socket_; }
  [[nodiscard]] bool writes() const { return !out_.empty(); }
  void put(const Header& header, std::span<const std::byte> payload) {
    const auto head = std::as_bytes(std::span(&header, 1));
    out_.insert(out_.end(), head.begin(), head.end());
    out_.insert(out_.end(), payload.begin(), payload.end());
  }
  void write(int rank) {
    while (!out_.empty()) {
      const ssize_t sent = ::send(socket_, out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
      }
      if (sent < 0) {
        fail("send", rank);
      }
      out_.erase(out_.begin(), out_.begin() + sent);
    }
  }
  /// False: the other side has closed it.
  bool read(int rank) {
    std::array<std::byte, 1 << 16> some;
    for (;;) {
      const ssize_t got = ::recv(socket_, some.data(), some.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
      }
      if (got < 0 && errno != ECONNRESET) {
        fail("recv", rank);
      }
      if (got <= 0) {
        return false;
      }
      in_.insert(in_.end(), some.begin(), some.begin() + got);
    }
  }
  /// The oldest whole frame that has been read.
  std::optional<std::pair<Header, std::vector<std::byte>>> next(int rank) {
    Header header;
    if (in_.size() < sizeof(header)) {
      return std::nullopt;
    }
    std::memcpy(&header, in_.data(), sizeof(header));
    if (header.mark != magic) {
      throw BackendError("tcp", "somebody who is no rank of ours talks on the port", rank);
    }
    if (in_.size() - sizeof(header) < header.size) {
      return std::nullopt;
    }
    const auto begin = in_.begin() + static_cast<std::ptrdiff_t>(sizeof(header));
    const auto end = begin + static_cast<std::ptrdiff_t>(header.size);
    std::vector<std::byte> payload(begin, end);
    in_.erase(in_.begin(), end);
    return std::pair(header, std::move(payload));
  }

 private:
  int socket_;
  std::vector<std::byte> in_, out_;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
inline Addresses resolve(const char* host, int flags, int rank) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host, port().c_str(), &hints, &found); error != 0) {
    throw BackendError("getaddrinfo", fmt::format("MASTER_ADDR: {}", gai_strerror(error)), rank);
  }
  return {found, freeaddrinfo};
}

/// The hub, which may start after us.
inline Connection connect_to_hub(int rank) {
  const Addresses addresses = resolve(master().c_str(), 0, rank);
  for (const auto since = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - since < patience;) {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      const int socket = ::socket(a->ai_family, a->ai_socktype, a->ai_protocol);
      if (socket < 0) {
        continue;
      }
      Connection connection(socket);
      if (::connect(socket, a->ai_addr, a->ai_addrlen) == 0) {
        return connection;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  throw BackendError("connect", fmt::format("rank 0 does not answer at {}:{}", master(), port()),
                     rank);
}

/// A socket that listens on all addresses.
inline Connection listen_for_ranks(int ranks) {
  const Addresses addresses = resolve(nullptr, AI_PASSIVE, 0);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const int socket = ::socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (socket < 0) {
      continue;
    }
    Connection listener(socket);
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (::bind(socket, a->ai_addr, a->ai_addrlen) == 0 && ::listen(socket, ranks) == 0) {
      return listener;
    }
  }
  fail(fmt::format("bind to port {}", port()), 0);
}

}  // namespace spp::runtime::tcp
