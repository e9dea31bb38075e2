// The transport of torchrun's variables, between processes: every check that all transports must
// pass, and what happens when a rank fails.
#include "base/error.hpp"
#include "runtime/comm/transport.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/comm_checks.hpp"
#include "tests/unit/runtime/tcp_job.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace spp;
using namespace spp::runtime;
using Catch::Matchers::ContainsSubstring;
using test::TcpJob;

namespace {

std::vector<std::string> run_processes(int ranks, const RankBody& body,
                                       const std::string& address = "127.0.0.1") {
  TcpJob job(ranks, address);
  job.start_all(body);
  return job.errors();
}

std::vector<std::string> nothing(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks));
}

}  // namespace

TEST_CASE("processes that torchrun starts pass every check of transports") {
  for (const int ranks : {1, 2, 4}) {
    for (const test::CommCheck& check : test::comm_checks()) {
      INFO(check.name << " on " << ranks << " ranks");
      CHECK(run_processes(ranks, check.run) == nothing(ranks));
    }
  }
}

TEST_CASE("a name and an address of IPv6 do as MASTER_ADDR") {
  const RankBody gather = [](Transport& t) {
    if (t.all_gather_text("x").size() != 3) {
      throw std::runtime_error("not three texts");
    }
  };
  CHECK(run_processes(3, gather, "localhost") == nothing(3));
  if (::access("/proc/net/if_inet6", R_OK) != 0) {
    SPP_SKIP("this machine has no IPv6");
  }
  CHECK(run_processes(3, gather, "::1") == nothing(3));
}

TEST_CASE("a message of several frames arrives whole, directly and by way of the hub") {
  const auto errors = run_processes(3, [](Transport& t) {
    std::vector<std::byte> memory = test::pattern(7, (3 << 20) + 17);
    std::vector<std::byte> in(memory.size());
    const int me = t.rank().value;
    const auto receive = t.receive(Rank((me + 2) % 3), 5, in);
    const auto send = t.send(Rank((me + 1) % 3), 5, memory);
    test::wait_for(t, receive);
    test::wait_for(t, send);
    test::expect_same("a long message", t, in, memory);
  });
  CHECK(errors == nothing(3));
}

TEST_CASE("a message that is larger than its place is refused before all of it has come") {
  TcpJob job(2);
  job.start_all([](Transport& t) {
    std::vector<std::byte> memory(4 << 20);
    if (t.rank().value == 1) {
      test::wait_for(t, t.receive(Rank(0), 3, std::span(memory).first(100)));
    } else {
      (void)t.send(Rank(1), 3, memory);
      t.barrier();
    }
  });
  CHECK_THAT(job.end_of(1).error, ContainsSubstring("more than 100 bytes from rank 0 with tag 3"));
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

TEST_CASE("a process that is stopped ends the run of all, who say whom they wait for") {
  TcpJob job(4);
  job.start_all(
      [](Transport& t) {
        t.barrier();
        if (t.rank().value == 1 || t.rank().value == 3) {
          ::raise(SIGSTOP);
        }
        t.barrier();
      },
      {.deadlines = {.timeout = Seconds(1)}});
  const std::string first = job.end_of(0).error;
  CHECK_THAT(first,
             Catch::Matchers::StartsWith("barrier failed on rank 0: nothing happened for 1."));
  CHECK_THAT(first, Catch::Matchers::EndsWith("s; it waits for ranks 1, 3"));
  CHECK_THAT(job.end_of(2).error, ContainsSubstring("it waits for ranks 1, 3"));
}

TEST_CASE("where rank 0 is stopped the others wait for it, and not for ever") {
  TcpJob job(3);
  job.start_all(
      [](Transport& t) {
        t.barrier();
        if (t.rank().value == 0) {
          ::raise(SIGSTOP);
        }
        t.barrier();
      },
      {.deadlines = {.timeout = Seconds(1)}});
  for (const int rank : {1, 2}) {
    CHECK_THAT(job.end_of(rank).error, ContainsSubstring("it waits for rank 0"));
  }
}

TEST_CASE("a process that computes for long is waited for, by those whom rank 0 has to tell, too") {
  const auto begin = [](TcpJob& job, int slow) {
    job.start_all(
        [slow](Transport& t) {
          const auto start = std::chrono::steady_clock::now();
          while (t.rank().value == slow &&
                 std::chrono::steady_clock::now() - start < std::chrono::seconds(6)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            t.working();
            t.progress();
          }
          t.barrier();
        },
        {.deadlines = {.timeout = Seconds(3)}});
  };
  TcpJob one(3);
  TcpJob other(3);
  begin(one, 1);
  begin(other, 0);
  CHECK(one.errors() == nothing(3));
  CHECK(other.errors() == nothing(3));
}

TEST_CASE("without torchrun's variables the transport says what is missing") {
  const TransportBackend& tcp = transports::by_name("tcp", "test");
  if (tcp.launched_ranks() > 0) {
    SPP_SKIP("torchrun's variables are set here");
  }
  CHECK(tcp.why_not().find("WORLD_SIZE") != std::string::npos);
}
