#include "base/error.hpp"
#include "runtime/comm/endpoint.hpp"
#include "runtime/comm/transport.hpp"
#include "runtime/engine.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/comm_checks.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using runtime::Transport;
using test::message_of;

void run(int ranks, const runtime::RankBody& body) {
  runtime::transports::by_name("inproc", "test").run(ranks, body);
}

/// What a run that must not hang took.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

TEST_CASE("A transport is found by its name, and a wrong name is told the right ones") {
  CHECK(runtime::transports::by_name("inproc", "--transport").name == "inproc");
  CHECK(runtime::transports::by_name("mpi", "--transport").name == "mpi");
  const std::string message =
      message_of<InputError>([] { (void)runtime::transports::by_name("inprok", "--transport"); });
  CHECK_THAT(message, ContainsSubstring("--transport: unknown transport 'inprok'"));
  CHECK_THAT(message, ContainsSubstring("inproc"));
}

TEST_CASE("Hosts are numbered as they first appear") {
  CHECK(runtime::numbers_of({"b", "a", "b", "c", "a"}) == std::vector{0, 1, 0, 2, 1});
  CHECK(runtime::numbers_of({}).empty());
}

TEST_CASE("Ranks that have chosen other kernels than rank 0 say which, on both sides") {
  const auto kernels_on = [](std::string_view last) {
    return [last](Transport& t) {
      runtime::expect_same_kernels(t, t.rank().value == 2 ? last : "onednn");
    };
  };
  REQUIRE_NOTHROW(run(3, kernels_on("onednn")));
  CHECK_THAT(message_of<BackendError>([&] { run(3, kernels_on("reference")); }),
             StartsWith("set-up failed on rank 2: reference kernels would run here and onednn "
                        "kernels on rank 0"));
}

TEST_CASE("Threads can run everywhere and leave the number of ranks free") {
  const auto& inproc = runtime::transports::by_name("inproc", "test");
  CHECK(inproc.why_not().empty());
  CHECK(inproc.launched_ranks() == 0);
}

TEST_CASE("A transport of threads does what every transport must do") {
  const int ranks = GENERATE(1, 2, 3, 4, 5, 6, 7, 8, 9);
  for (const test::CommCheck& check : test::comm_checks()) {
    INFO(check.name << ", " << ranks << " ranks");
    REQUIRE_NOTHROW(run(ranks, check.run));
  }
}

TEST_CASE("Every rank runs once and knows its place") {
  std::vector<std::atomic<int>> ran(7);
  run(7, [&](Transport& t) {
    if (t.size() != 7) {
      throw std::runtime_error("wrong size");
    }
    ++ran[t.rank().index()];
  });
  for (const auto& times : ran) {
    CHECK(times == 1);
  }
}

TEST_CASE("A send is done only after it was received") {
  run(2, [](Transport& t) {
    std::vector<std::byte> memory(1 << 20);
    if (t.rank().value == 0) {
      const auto ticket = t.send(Rank(1), 0, memory);
      t.progress();
      if (t.done(ticket)) {
        throw std::runtime_error("done before it was received");
      }
      t.barrier();
      test::wait_for(t, ticket);
    } else {
      t.barrier();
      test::wait_for(t, t.receive(Rank(0), 0, memory));
    }
  });
  SUCCEED();
}

TEST_CASE("Sizes that differ are refused with both sizes") {
  const bool receiver_first = GENERATE(false, true);
  const std::string message = message_of<BackendError>([&] {
    run(3, [&](Transport& t) {
      std::vector<std::byte> memory(100);
      if (t.rank().value == 1) {
        if (receiver_first) {
          t.barrier();
        }
        (void)t.send(Rank(2), 9, std::span(memory).first(60));
        if (!receiver_first) {
          t.barrier();
        }
      } else if (t.rank().value == 2) {
        if (!receiver_first) {
          t.barrier();
        }
        const auto ticket = t.receive(Rank(1), 9, memory);
        if (receiver_first) {
          t.barrier();
        }
        test::wait_for(t, ticket);
      } else {
        t.barrier();
      }
      t.barrier();
    });
  });
  CHECK(message ==
        "receive failed on rank 2: 60 bytes from rank 1 with tag 9, but 100 were expected");
}

TEST_CASE("A rank that throws ends the others at once, and its exception arrives") {
  const Stopwatch watch;
  const std::string where = GENERATE("barrier", "text", "message", "idle", "copy");
  const std::string message = message_of<std::out_of_range>([&] {
    std::vector<std::vector<std::byte>> memory(5, std::vector<std::byte>(8 << 20));
    run(5, [&](Transport& t) {
      if (t.rank().value == 3) {
        throw std::out_of_range("rank 3 has a problem");
      }
      std::vector<std::byte>& mine = memory[t.rank().index()];
      for (;;) {
        if (where == "barrier") {
          t.barrier();
        } else if (where == "text") {
          (void)t.all_gather_text("x");
        } else if (where == "message") {
          test::wait_for(t, t.receive(Rank(3), 0, mine));
        } else if (where == "copy" && t.rank().value < 2) {
          const Rank other(1 - t.rank().value);
          test::wait_for(t,
                         t.rank().value == 0 ? t.send(other, 1, mine) : t.receive(other, 1, mine));
        } else {
          t.progress();
          t.idle();
        }
      }
    });
  });
  CHECK(message == "rank 3 has a problem");
  CHECK(watch.seconds() < 5);  // 1 s on a quiet machine; no wait in it is longer than a nap
}

TEST_CASE("Memory of a rank that failed inside abort_on_throw is not read any more") {
  // Under a sanitizer: the buffers die right after the exception has left abort_on_throw.
  for (int round = 0; round < 20; ++round) {
    const std::string message = message_of<std::runtime_error>([&] {
      run(4, [&](Transport& t) {
        std::vector<std::byte> out(4 << 20);
        std::vector<std::byte> in(4 << 20);
        runtime::abort_on_throw(t, [&] {
          const Rank next((t.rank().value + 1) % 4);
          const Rank previous((t.rank().value + 3) % 4);
          (void)t.send(next, 0, out);
          (void)t.receive(previous, 0, in);
          for (int i = 0;; ++i) {
            t.progress();
            if (t.rank().value == round % 4 && i == round / 4) {
              throw std::runtime_error("enough");
            }
          }
        });
      });
    });
    REQUIRE(message == "enough");
  }
}

TEST_CASE("An abort wakes a barrier, and its first text arrives") {
  const Stopwatch watch;
  std::atomic<int> woken = 0;
  const std::string message = message_of<BackendError>([&] {
    run(4, [&](Transport& t) {
      if (t.rank().value == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        t.abort("the first text");
        t.abort("the second text");
        return;
      }
      try {
        t.barrier();
      } catch (const BackendError&) {
        ++woken;
        throw;
      }
    });
  });
  CHECK(woken == 3);
  CHECK_THAT(message, ContainsSubstring("barrier failed on rank"));
  CHECK_THAT(message, ContainsSubstring("aborted by rank 2: the first text"));
  CHECK(watch.seconds() < 5);
}

TEST_CASE("After an abort every call throws") {
  int threw = 0;
  std::vector<std::byte> memory(8);
  CHECK_THROWS_AS(run(1,
                      [&](Transport& t) {
                        const auto ticket = t.receive(Rank(0), 0, memory);
                        t.abort("over");
                        const auto count = [&](auto&& call) {
                          try {
                            call();
                          } catch (const BackendError&) {
                            ++threw;
                          }
                        };
                        count([&] { (void)t.send(Rank(0), 0, memory); });
                        count([&] { (void)t.receive(Rank(0), 0, memory); });
                        count([&] { t.progress(); });
                        count([&] { (void)t.done(ticket); });
                        count([&] { t.idle(); });
                        count([&] { t.barrier(); });
                        count([&] { (void)t.all_gather_text(""); });
                        t.progress();
                      }),
                  BackendError);
  CHECK(threw == 7);
}

TEST_CASE("A rank that does not come to a meeting ends the run, and the message names it") {
  const std::string call = GENERATE("barrier", "all_gather_text");
  const std::string message = message_of<BackendError>([&] {
    runtime::transports::by_name("inproc", "test")
        .run(4,
             [&](Transport& t) {
               if (t.rank().value == 1 || t.rank().value == 2) {
                 std::this_thread::sleep_for(std::chrono::seconds(2));
                 t.progress();  // throws: the run was aborted
               }
               if (call == "barrier") {
                 t.barrier();
               } else {
                 (void)t.all_gather_text("");
               }
             },
             {.deadlines = {.timeout = Seconds(0.3)}});
  });
  INFO(message);
  CHECK_THAT(message, StartsWith(call + " failed on rank "));
  CHECK_THAT(message, ContainsSubstring("nothing happened for 0."));
  CHECK_THAT(message, EndsWith("s; it waits for ranks 1, 2"));
}

TEST_CASE("A rank that does not send ends the run of who waits for its message") {
  std::vector<std::byte> memory(8);
  const std::string message = message_of<BackendError>([&] {
    runtime::transports::by_name("inproc", "test")
        .run(2,
             [&](Transport& t) {
               if (t.rank().value == 1) {
                 std::this_thread::sleep_for(std::chrono::seconds(2));
                 t.progress();
                 return;
               }
               const auto op = runtime::exchange(
                   t, 0, {.to = Rank(), .from = Rank(1), .send = {}, .receive = {memory}});
               runtime::abort_on_throw(t, [&] { runtime::finish(t, *op, "pair"); });
             },
             {.deadlines = {.timeout = Seconds(0.3)}});
  });
  CHECK_THAT(message, StartsWith("pair failed on rank 0: nothing happened for 0."));
  CHECK_THAT(message, EndsWith("s; it waits for rank 1"));
}

TEST_CASE("A rank that says that it is at work is waited for, in meetings and for messages") {
  const auto body = [](Transport& t) {
    std::vector<std::byte> memory(8);
    const Stopwatch watch;
    while (t.rank().value == 1 && watch.seconds() < 6) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      t.working();
    }
    if (t.rank().value == 0) {
      const auto op =
          runtime::exchange(t, 0, {.to = Rank(), .from = Rank(1), .send = {}, .receive = {memory}});
      runtime::finish(t, *op, "exchange");
    } else if (t.rank().value == 1) {
      test::wait_for(t, t.send(Rank(0), 0, memory));
    }
    t.barrier();
  };
  REQUIRE_NOTHROW(runtime::transports::by_name("inproc", "test")
                      .run(3, body, {.deadlines = {.timeout = Seconds(3)}}));
}

TEST_CASE("A message is waited for from when it is wanted, whatever a device took before") {
  const auto body = [](Transport& t) {
    std::vector<std::byte> memory(8);
    const Stopwatch watch;
    while (t.rank().value == 0 && watch.seconds() < 3) {
      t.progress();
      t.idle();
    }
    while (t.rank().value == 1 && watch.seconds() < 4) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (t.rank().value == 0) {
      const auto op =
          runtime::exchange(t, 0, {.to = Rank(), .from = Rank(1), .send = {}, .receive = {memory}});
      runtime::finish(t, *op, "exchange");
    } else {
      test::wait_for(t, t.send(Rank(0), 0, memory));
    }
  };
  REQUIRE_NOTHROW(runtime::transports::by_name("inproc", "test")
                      .run(2, body, {.deadlines = {.timeout = Seconds(2.5)}}));
}

TEST_CASE("Ranks, tags and tickets that do not exist are our bugs") {
  const auto fails = [](const runtime::RankBody& body) {
    CHECK_THROWS_AS(run(2, body), InternalError);
  };
  fails([](Transport& t) { (void)t.send(Rank(2), 0, {}); });
  fails([](Transport& t) { (void)t.receive(Rank(), 0, {}); });
  fails([](Transport& t) { (void)t.send(Rank(0), 64, {}); });
  fails([](Transport& t) { (void)t.send(Rank(0), -1, {}); });
  fails([](Transport& t) { (void)t.done(17); });
  fails([](Transport& t) { (void)t.receive(Rank(0), 5, {}); });  // and the message stays open
}

TEST_CASE("MPI says why it cannot run, or refuses ranks that nobody started") {
  const auto& mpi = runtime::transports::by_name("mpi", "test");
  if (const std::string why = mpi.why_not(); !why.empty()) {
    CHECK(why == "not compiled in: MPI was not found");
    CHECK_THROWS_AS(mpi.run(1, [](Transport&) {}), InputError);
  } else if (mpi.launched_ranks() == 0) {
    const std::string message = message_of<InputError>([&] { mpi.run(8, [](Transport&) {}); });
    CHECK_THAT(message, ContainsSubstring("mpirun -np 8"));
  }
}
