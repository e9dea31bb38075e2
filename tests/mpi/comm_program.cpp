// One process of a run over the `mpi` transport; tests/mpi/run.cmake starts several with mpirun.
//
//   mpi.program why_not            prints why MPI cannot be used, or nothing
//   mpi.program checks <ranks>     all of tests/support/comm_checks.hpp, in two runs of one process
//   mpi.program transfer <ranks>   sends 8 MiB from the last rank to the first, says how fast
//   mpi.program <fault> <ranks>    throw, kill, short, …: see `bodies`
//
// Rank r prints "pid <n>" at the start, so that run.cmake can look for survivors.
#include "base/error.hpp"
#include "runtime/comm/transport.hpp"
#include "tests/support/comm_checks.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using spp::Rank;
using spp::runtime::Transport;

void tell_pid() {
  std::printf("pid %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);
}

void checks(Transport& t) {
  for (const auto& check : spp::test::comm_checks()) {
    check.run(t);
    t.barrier();
    if (t.rank().value == 0) {
      std::printf("passed: %.*s\n", static_cast<int>(check.name.size()), check.name.data());
    }
  }
}

/// The clock starts before the last rank is asked to send, so that no byte travels unseen.
void transfer(Transport& t) {
  using Clock = std::chrono::steady_clock;
  const Rank first(0);
  const Rank last(t.size() - 1);
  std::vector<std::byte> request(1);
  std::vector<std::byte> memory(8 << 20);
  t.barrier();
  if (t.rank() == last) {
    spp::test::wait_for(t, t.receive(first, 1, request));
    spp::test::wait_for(t, t.send(first, 2, memory));
  } else if (t.rank() == first) {
    const auto start = Clock::now();
    spp::test::wait_for(t, t.send(last, 1, request));
    spp::test::wait_for(t, t.receive(last, 2, memory));
    const std::chrono::duration<double> seconds = Clock::now() - start;
    std::printf("bits per second: %.0f\n",
                8 * static_cast<double>(memory.size()) / seconds.count());
  }
  t.barrier();
}

/// Waits in a message that never comes, as the others do when one has failed.
[[noreturn]] void wait_for_ever(Transport& t) {
  std::vector<std::byte> memory(1 << 20);
  spp::test::wait_for(t, t.receive(Rank((t.rank().value + 1) % t.size()), 1, memory));
  throw std::runtime_error("a message came that nobody sent");
}

void throw_in_one(Transport& t) {
  t.barrier();
  if (t.rank().value == 2) {
    throw std::runtime_error("rank 2 has a problem");
  }
  wait_for_ever(t);
}

void throw_in_all(Transport& t) {
  t.barrier();
  throw std::runtime_error("all have a problem");
}

void kill_one(Transport& t) {
  t.barrier();
  if (t.rank().value == 1) {
    kill(getpid(), SIGKILL);
  }
  wait_for_ever(t);
}

/// One rank sends more or fewer bytes than the next expects; `at_cut`: a whole number of pieces.
void send_wrong_size(Transport& t, std::size_t sent, std::size_t expected) {
  std::vector<std::byte> memory(1 << 20);
  if (t.rank().value == 0) {
    spp::test::wait_for(t, t.send(Rank(1), 4, std::span(memory).first(sent)));
  } else if (t.rank().value == 1) {
    spp::test::wait_for(t, t.receive(Rank(0), 4, std::span(memory).first(expected)));
  }
  t.barrier();
  wait_for_ever(t);
}

/// Ranks 1 and 3 are stopped, as by a debugger or a machine that swaps.
void stop_two(Transport& t) {
  t.barrier();
  if (t.rank().value % 2 == 1) {
    raise(SIGSTOP);
  }
  t.barrier();
}

/// One rank computes for longer than the time-out and says so; the others wait.
void slow_one(Transport& t, int slow) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  while (t.rank().value == slow && Clock::now() - start < std::chrono::seconds(5)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    t.working();
    t.progress();
  }
  t.barrier();
}

const std::map<std::string, spp::runtime::RankBody>& bodies() {
  constexpr std::size_t piece = 63 << 10;
  static const std::map<std::string, spp::runtime::RankBody> table{
      {"checks", checks},
      {"another_request", wait_for_ever},
      {"transfer", transfer},
      {"throw", throw_in_one},
      {"throw_all", throw_in_all},
      {"kill", kill_one},
      {"stop", stop_two},
      {"slow_first", [](Transport& t) { slow_one(t, 0); }},
      {"slow_last", [](Transport& t) { slow_one(t, t.size() - 1); }},
      {"short", [](Transport& t) { send_wrong_size(t, 60, 100); }},
      {"long", [](Transport& t) { send_wrong_size(t, 100, 60); }},
      {"short_by_a_piece", [](Transport& t) { send_wrong_size(t, piece, 2 * piece); }},
      {"long_by_a_piece", [](Transport& t) { send_wrong_size(t, 2 * piece, piece); }},
  };
  return table;
}

}  // namespace

int main(int argc, char** argv) {
  const auto& mpi = spp::runtime::transports::by_name("mpi", "test");
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "why_not") {
    std::printf("%s", mpi.why_not().c_str());
    return 0;
  }
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 0;
  tell_pid();
  try {
    const bool waits = what == "stop" || what.starts_with("slow");
    const int asked = what == "another_request" ? mpi.launched_rank() : 0;
    mpi.run(ranks, bodies().at(what),
            {.deadlines = {.timeout = waits ? spp::Seconds(2) : spp::Seconds(120)},
             .request = [asked] { return fmt::format("run {}", asked); }});
    if (what == "checks") {
      mpi.run(ranks, [](Transport& t) { t.barrier(); });
    }
  } catch (const std::exception& e) {
    const std::string line = fmt::format("thrown: {}\n", e.what());
    std::fputs(line.c_str(), stderr);
    return 3;
  }
  return 0;
}
