#include "runtime/comm/tcp_connection.hpp"

#include <fmt/format.h>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace spp::runtime::tcp {
namespace {

std::string text_of(int error) { return std::generic_category().message(error); }

void set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

/// Small frames go at once; a host that is gone without a word is noticed.
void set_up(int socket, const Deadlines& deadlines) {
  const auto seconds = [](Seconds s) { return std::max(1, static_cast<int>(s.count())); };
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds(deadlines.timeout / 4));
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds(deadlines.timeout / 8));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

bool again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof(v4));
    return ntohl(v4.sin_addr.s_addr) >> 24U == IN_LOOPBACKNET;
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof(v6));
    constexpr std::array<unsigned char, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    const auto* bytes = v6.sin6_addr.s6_addr;
    return std::memcmp(&v6.sin6_addr, &in6addr_loopback, sizeof(in6addr_loopback)) == 0 ||
           (std::equal(mapped.begin(), mapped.end(), bytes) && bytes[12] == IN_LOOPBACKNET);
  }
  return false;
}

using Found = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Found look_up(const char* name, const std::string& port, int flags, int& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  error = getaddrinfo(name, port.c_str(), &hints, &found);
  return {error == 0 ? found : nullptr, freeaddrinfo};
}

const sockaddr* sockaddr_of(const Address& address) {
  return reinterpret_cast<const sockaddr*>(address.bytes.data());
}
socklen_t length_of(const Address& address) { return static_cast<socklen_t>(address.bytes.size()); }

Socket socket_for(const Address& address) {
  return Socket(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Both ends are one.
bool meets_itself(const Socket& socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof(here);
  socklen_t there_length = sizeof(there);
  return getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &here_length) == 0 &&
         getpeername(socket.get(), reinterpret_cast<sockaddr*>(&there), &there_length) == 0 &&
         here_length == there_length && std::memcmp(&here, &there, here_length) == 0;
}

}  // namespace

Socket::~Socket() {
  if (number_ >= 0) {
    close(number_);
  }
}

Connection::Connection(Socket socket, const Deadlines& deadlines, std::size_t largest)
    : socket_(std::move(socket)), reader_(largest) {
  set_up(socket_.get(), deadlines);
}

void Connection::write() {
  while (writes()) {
    const ssize_t sent = ::send(socket_.get(), out_.data() + written_, out_.size() - written_,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && again(errno)) {
      break;
    }
    if (sent < 0) {
      heard_ = false;
      out_.clear();
      written_ = 0;
      return;
    }
    written_ += static_cast<std::size_t>(sent);
  }
  // What was written goes when it is most of it: every byte is moved about once.
  if (written_ >= out_.size() / 2) {
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(written_));
    written_ = 0;
  }
}

void Connection::read(std::size_t most) {
  std::array<std::byte, 1 << 14> some;
  for (std::size_t taken = 0; taken < most && gone_.empty() && flaw() == Flaw::none;) {
    const std::size_t room = std::min(some.size(), most - taken);
    const ssize_t got = ::recv(socket_.get(), some.data(), room, MSG_DONTWAIT);
    if (got < 0 && again(errno)) {
      return;
    }
    if (got <= 0) {
      gone_ = got == 0 ? "it was closed" : text_of(errno);
      return;
    }
    taken += static_cast<std::size_t>(got);
    reader_.push(std::span(some).first(static_cast<std::size_t>(got)));
  }
}

std::vector<Address> resolve(const std::string& name, int port, std::string& why) {
  int error = 0;
  const Found found = look_up(name.empty() ? nullptr : name.c_str(), fmt::format("{}", port),
                              name.empty() ? AI_PASSIVE : 0, error);
  if (error != 0) {
    why = error == EAI_SYSTEM ? text_of(errno) : gai_strerror(error);
  }
  std::vector<Address> addresses;
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    const auto* first = reinterpret_cast<const std::byte*>(a->ai_addr);
    addresses.push_back({.bytes = {first, first + a->ai_addrlen},
                         .family = a->ai_family,
                         .loopback = is_loopback(*a->ai_addr)});
  }
  return addresses;
}

bool says_loopback(const std::string& name) {
  int error = 0;
  const Found found = look_up(name.c_str(), "1", AI_NUMERICHOST, error);
  return name == "localhost" || (found != nullptr && is_loopback(*found->ai_addr));
}

std::string place(const std::string& name, int port) {
  return name.find(':') == std::string::npos ? fmt::format("{}:{}", name, port)
                                             : fmt::format("[{}]:{}", name, port);
}

Socket listen_at(const Address& address) {
  Socket socket = socket_for(address);
  if (!socket.valid()) {
    return socket;
  }
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family == AF_INET6) {
    set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);  // IPv4 has a socket of its own
  }
  if (::bind(socket.get(), sockaddr_of(address), length_of(address)) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    socket = Socket();
    errno = error;
  }
  return socket;
}

Socket connect_to(const Address& address, Seconds patience, std::string& why) {
  Socket socket = socket_for(address);
  if (!socket.valid()) {
    why = text_of(errno);
    return socket;
  }
  if (::connect(socket.get(), sockaddr_of(address), length_of(address)) != 0) {
    int error = errno;
    if (error == EINPROGRESS) {
      pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(patience);
      socklen_t length = sizeof(error);
      if (::poll(&ready, 1, static_cast<int>(wait.count())) <= 0) {
        error = ETIMEDOUT;
      } else if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        error = errno;
      }
    }
    if (error != 0) {
      why = text_of(error);
      return Socket();
    }
  }
  if (meets_itself(socket)) {
    why = "nobody listens there yet";
    return Socket();
  }
  return socket;
}

}  // namespace spp::runtime::tcp
