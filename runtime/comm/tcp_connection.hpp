// Sockets of the `tcp` transport that carry frames, and the addresses they are made of.
#pragma once

#include "runtime/comm/deadlines.hpp"
#include "runtime/comm/frames.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spp::runtime::tcp {

/// A socket; closed with it.
class Socket {
 public:
  explicit Socket(int number = -1) : number_(number) {}
  Socket(Socket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();
  [[nodiscard]] int get() const { return number_; }
  [[nodiscard]] bool valid() const { return number_ >= 0; }

 private:
  int number_;
};

/// A connected socket with what has been read and what is still to be written. Nothing blocks and
/// nothing throws: a connection that breaks is gone, and says why.
class Connection {
 public:
  /// `largest`: payload of a frame that may come.
  Connection(Socket socket, const Deadlines& deadlines, std::size_t largest);

  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] bool writes() const { return written_ < out_.size(); }
  /// "" while it stands; else "Connection reset by peer", "it was closed".
  [[nodiscard]] const std::string& gone() const { return gone_; }

  void put(const Header& header, std::span<const std::byte> payload) {
    if (heard_) {
      encode(header, payload, out_);
    }
  }
  /// If the other side takes nothing any more, what it has said last is still to be read.
  void write();
  /// At most about `most` bytes.
  void read(std::size_t most = 1 << 20);
  /// The oldest whole frame that has been read.
  std::optional<Frame> next() { return reader_.next(); }
  [[nodiscard]] Flaw flaw() const { return reader_.flaw(); }
  /// From now on it is one of ours.
  void trust() { reader_.set_largest(largest_payload); }

 private:
  Socket socket_;
  FrameReader reader_;
  std::vector<std::byte> out_;
  std::size_t written_ = 0;  // of out_
  bool heard_ = true;        // false: writing has failed
  std::string gone_;
};

/// Where rank 0 is. Waits for the name service as long as that takes.
struct Address {
  std::vector<std::byte> bytes;  // a sockaddr
  int family = 0;
  bool loopback = false;
};
/// All addresses of a name; of this host's interfaces if it is empty. `why`: if there are none.
std::vector<Address> resolve(const std::string& name, int port, std::string& why);
/// 127.0.0.1, ::1 and their like, written as such, or "localhost".
bool says_loopback(const std::string& name);
/// "[::1]:29501", "node1:29501"
std::string place(const std::string& name, int port);

/// Listens at one address; else not valid, and errno says why. As many as the system allows may
/// knock at a time: those who say nothing must not keep others from it.
Socket listen_at(const Address& address);
/// Connects within `patience`. Never to itself, as it may happen where nobody listens on a port
/// that the system hands out itself. Else not valid, and `why` says so.
Socket connect_to(const Address& address, Seconds patience, std::string& why);

}  // namespace spp::runtime::tcp
