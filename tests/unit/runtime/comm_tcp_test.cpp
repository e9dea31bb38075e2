// The transport of torchrun's variables, between processes: every check that all transports must
// pass, and what happens when a rank fails.
#include "base/error.hpp"
#include "runtime/comm/transport.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/comm_checks.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

using namespace spp;
using namespace spp::runtime;

namespace {

/// A port that nobody listens on just now.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

/// What each rank's process threw, by rank; "" if nothing.
std::vector<std::string> run_processes(int ranks, const RankBody& body) {
  const std::string port = std::to_string(free_port() - 1);  // the hub listens on the next one
  std::vector<int> pipes;
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      setenv("RANK", std::to_string(r).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
      setenv("MASTER_ADDR", "127.0.0.1", 1);
      setenv("MASTER_PORT", port.c_str(), 1);
      std::string error;
      try {
        transports::by_name("tcp", "test").run(ranks, body);
      } catch (const std::exception& e) {
        error = e.what();
      }
      const bool told = ::write(ends[1], error.data(), error.size()) >= 0;
      ::_exit(told ? 0 : 1);
    }
    ::close(ends[1]);
    children.push_back(child);
    pipes.push_back(ends[0]);
  }
  std::vector<std::string> errors;
  for (std::size_t r = 0; r < children.size(); ++r) {
    std::string& error = errors.emplace_back();
    std::array<char, 512> some{};
    for (ssize_t got = 0; (got = ::read(pipes[r], some.data(), some.size())) > 0;) {
      error.append(some.data(), static_cast<std::size_t>(got));
    }
    ::close(pipes[r]);
    int status = 0;
    ::waitpid(children[r], &status, 0);
    if (status != 0) {
      error += " (ended by a signal)";
    }
  }
  return errors;
}

}  // namespace

TEST_CASE("processes that torchrun starts pass every check of transports") {
  for (const int ranks : {1, 2, 4}) {
    for (const test::CommCheck& check : test::comm_checks()) {
      INFO(check.name << " on " << ranks << " ranks");
      CHECK(run_processes(ranks, check.run) ==
            std::vector<std::string>(static_cast<std::size_t>(ranks)));
    }
  }
}

TEST_CASE("a process that throws ends the run of all, with its own message") {
  const std::vector<std::string> errors = run_processes(3, [](Transport& t) {
    if (t.rank().value == 2) {
      throw BackendError("kernel", "no more", 2);
    }
    t.barrier();
  });
  CHECK(errors[2] == "kernel failed on rank 2: no more");
  for (const std::string& other : {errors[0], errors[1]}) {
    CHECK(other.find("aborted by rank 2: kernel failed on rank 2: no more") != std::string::npos);
  }
}

TEST_CASE("without torchrun's variables the transport says what is missing") {
  const TransportBackend& tcp = transports::by_name("tcp", "test");
  if (tcp.launched_ranks() > 0) {
    SPP_SKIP("torchrun's variables are set here");
  }
  CHECK(tcp.why_not().find("WORLD_SIZE") != std::string::npos);
}
