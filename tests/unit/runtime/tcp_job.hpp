// Processes of a job as a launcher starts them, and strangers that talk to its rank 0.
#pragma once

#include "runtime/comm/frames.hpp"
#include "runtime/comm/transport.hpp"

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp::test {

using Environment = std::map<std::string, std::string>;

/// How a process ended.
struct Ended {
  std::string error;                  // what it threw; "" if nothing
  std::vector<std::string> warnings;  // of its RunSettings::warn
  friend bool operator==(const Ended&, const Ended&) = default;
};

/// A job on this machine, over the transport `tcp`.
class TcpJob {
 public:
  explicit TcpJob(int ranks, std::string address = "127.0.0.1");
  ~TcpJob();
  TcpJob(const TcpJob&) = delete;
  TcpJob& operator=(const TcpJob&) = delete;

  /// Starts a rank; `environment` on top of what the launcher sets.
  void start(int rank, const runtime::RankBody& body, const runtime::RunSettings& settings = {},
             const Environment& environment = {});
  void start_all(const runtime::RankBody& body, const runtime::RunSettings& settings = {},
                 const Environment& environment = {});
  /// Waits for one; for all, by rank.
  Ended end_of(int rank);
  std::vector<std::string> errors();
  void kill(int rank);

  /// Where rank 0 listens.
  [[nodiscard]] int port() const { return port_; }

 private:
  struct Process {
    pid_t pid = -1;
    int pipe = -1;
  };
  int ranks_;
  std::string address_;
  int port_;
  std::map<int, Process> processes_;
};

/// A port of the loopback addresses that nobody listens on just now.
int free_port();
/// A socket that accepts connections at 127.0.0.1 and never says a word.
class SilentService {
 public:
  SilentService();
  ~SilentService();
  SilentService(const SilentService&) = delete;
  SilentService& operator=(const SilentService&) = delete;
  [[nodiscard]] int port() const { return port_; }

 private:
  int socket_, port_;
};

/// Somebody who connects to 127.0.0.1.
class Stranger {
 public:
  /// Waits until somebody listens.
  explicit Stranger(int port);
  ~Stranger();
  Stranger(Stranger&& other) noexcept;
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void say(std::span<const std::byte> bytes) const;
  void say(std::string_view text) const;
  void say(const runtime::tcp::Header& header, std::string_view payload = "") const;
  /// Greets as a rank would.
  void greet(int rank, const runtime::tcp::Hello& hello) const;
  /// The next frame; nothing if the other side hangs up, or says nothing for ten seconds.
  std::optional<runtime::tcp::Frame> hear();
  /// The reason for which it was turned away; "welcome"; or "hung up".
  std::string answer();

 private:
  int socket_ = -1;
  runtime::tcp::FrameReader reader_{runtime::tcp::largest_payload};
};

}  // namespace spp::test
