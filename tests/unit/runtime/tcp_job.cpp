#include "tests/unit/runtime/tcp_job.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <utility>

namespace spp::test {
namespace {

void expect(bool ok, const char* what) {
  if (!ok) {
    throw std::runtime_error(what);
  }
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

int bound_socket(int& port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof(address);
  expect(::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  expect(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0, "getsockname");
  port = ntohs(address.sin_port);
  return socket;
}

// How a child reports: warnings, then the error, each ended by a byte that no text has.
constexpr char mark = '\x01';

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written <= 0) {
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

int free_port() {
  int port = 0;
  ::close(bound_socket(port));
  return port;
}

TcpJob::TcpJob(int ranks, std::string address)
    : ranks_(ranks), address_(std::move(address)), port_(free_port()) {}

TcpJob::~TcpJob() {
  for (const auto& [rank, process] : processes_) {
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
    ::close(process.pipe);
  }
}

void TcpJob::start(int rank, const runtime::RankBody& body, const runtime::RunSettings& settings,
                   const Environment& environment) {
  std::array<int, 2> ends{};
  expect(::pipe(ends.data()) == 0, "pipe");
  const pid_t child = ::fork();
  expect(child >= 0, "fork");
  if (child == 0) {
    for (const char* ours : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SP_PLAN_JOB_TOKEN"}) {
      ::unsetenv(ours);
    }
    Environment all = environment;
    all.insert({{"RANK", std::to_string(rank)},
                {"WORLD_SIZE", std::to_string(ranks_)},
                {"MASTER_ADDR", address_},
                {"MASTER_PORT", std::to_string(port_ - 1)}});
    for (const auto& [name, value] : all) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
    runtime::RunSettings heard = settings;
    std::string told;
    heard.warn = [&](const std::string& text) { told += text + mark; };
    std::string error;
    try {
      runtime::transports::by_name("tcp", "test").run(ranks_, body, heard);
    } catch (const std::exception& e) {
      error = e.what();
    }
    write_all(ends[1], told + error);
    ::_exit(0);
  }
  ::close(ends[1]);
  processes_[rank] = {.pid = child, .pipe = ends[0]};
}

void TcpJob::start_all(const runtime::RankBody& body, const runtime::RunSettings& settings,
                       const Environment& environment) {
  for (int r = 0; r < ranks_; ++r) {
    start(r, body, settings, environment);
  }
}

Ended TcpJob::end_of(int rank) {
  const Process process = processes_.at(rank);
  processes_.erase(rank);
  std::string text;
  std::array<char, 512> some{};
  for (ssize_t got = 0; (got = ::read(process.pipe, some.data(), some.size())) > 0;) {
    text.append(some.data(), static_cast<std::size_t>(got));
  }
  ::close(process.pipe);
  int status = 0;
  ::waitpid(process.pid, &status, 0);
  Ended ended;
  for (std::size_t at = 0; (at = text.find(mark)) != std::string::npos;) {
    ended.warnings.push_back(text.substr(0, at));
    text.erase(0, at + 1);
  }
  ended.error = text + (status != 0 ? " (ended by a signal)" : "");
  return ended;
}

std::vector<std::string> TcpJob::errors() {
  std::vector<std::string> all;
  for (int r = 0; r < ranks_; ++r) {
    all.push_back(end_of(r).error);
  }
  return all;
}

void TcpJob::kill(int rank) { ::kill(processes_.at(rank).pid, SIGKILL); }

SilentService::SilentService() : socket_(bound_socket(port_)) {
  expect(::listen(socket_, 64) == 0, "listen");
}
SilentService::~SilentService() { ::close(socket_); }

Stranger::Stranger(int port) {
  const sockaddr_in address = loopback(port);
  for (int tries = 0; tries < 1000; ++tries) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return;
    }
    ::close(socket_);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw std::runtime_error("nobody listens");
}
Stranger::Stranger(Stranger&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
Stranger::~Stranger() {
  if (socket_ >= 0) {
    ::close(socket_);
  }
}

void Stranger::say(std::span<const std::byte> bytes) const {
  (void)::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}
void Stranger::say(std::string_view text) const { say(std::as_bytes(std::span(text))); }
void Stranger::say(const runtime::tcp::Header& header, std::string_view payload) const {
  std::vector<std::byte> bytes;
  runtime::tcp::encode(header, std::as_bytes(std::span(payload)), bytes);
  say(bytes);
}
void Stranger::greet(int rank, const runtime::tcp::Hello& hello) const {
  std::vector<std::byte> bytes;
  runtime::tcp::encode({.kind = runtime::tcp::Kind::hello, .from = rank},
                       runtime::tcp::encode_hello(hello), bytes);
  say(bytes);
}

std::optional<runtime::tcp::Frame> Stranger::hear() {
  std::array<std::byte, 4096> some{};
  for (;;) {
    if (auto frame = reader_.next()) {
      return frame;
    }
    pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 10'000) <= 0) {
      return std::nullopt;
    }
    const ssize_t got = ::recv(socket_, some.data(), some.size(), 0);
    if (got <= 0) {
      return std::nullopt;
    }
    reader_.push(std::span(some).first(static_cast<std::size_t>(got)));
  }
}

std::string Stranger::answer() {
  const auto frame = hear();
  if (!frame) {
    return "hung up";
  }
  return frame->header.kind == runtime::tcp::Kind::welcome
             ? "welcome"
             : std::string(reinterpret_cast<const char*>(frame->payload.data()),
                           frame->payload.size());
}

}  // namespace spp::test
