// sp-plan run and calibrate as processes that a launcher started: over TCP, on this machine.
#include "base/host_name.hpp"
#include "base/json.hpp"
#include "tests/cli/program.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using spp::test::Result;
using spp::test::Running;
using spp::test::sp_plan;
using spp::test::words_of;

namespace {

using Environment = std::map<std::string, std::string>;

const std::string tiny_run =
    "run --comm tcp --heads 4 --head-dim 16 --seq 256 --dtype fp32 --kernels reference "
    "--json --quiet --ring 2 ";
const std::string tiny_calibrate =
    "calibrate --comm tcp --gpus 2 --kernels reference --dtype fp32 --heads 2 --head-dim 8 --seq "
    "64 --quiet ";

/// A port such that nobody listens on the next one just now.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  ::close(socket);
  return ntohs(address.sin_port) - 1;
}

Environment rank_of_two(int rank, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", "2"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"SP_PLAN_JOB_TOKEN", "launch_test"}};
}

/// Until the process has computed for a while, or had the time to.
void wait_for_work(int pid) {
  constexpr int ticks = 20;  // of 10 ms: sp-plan alone starts in a few
  for (int tries = 0; tries < 800; ++tries) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string word;
    for (int i = 0; i < 13; ++i) {
      in >> word;
    }
    int user = 0;
    int system = 0;
    if (in >> user >> system && user + system >= ticks) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

TEST_CASE("processes that torchrun started run a plan together, and rank 0 tells") {
  const int port = free_port();
  Running first(words_of(tiny_run + "--check"), {.environment = rank_of_two(0, port)});
  Running second(words_of(tiny_run + "--check"), {.environment = rank_of_two(1, port)});
  const Result r = first.end();
  INFO(r.err);
  CHECK(r.code == 0);
  CHECK(spp::parse_json(r.out, "stdout")["passed"] == true);
  const Result other = second.end();
  CHECK(other.code == 0);
  CHECK(other.out.empty());
  CHECK(other.err.empty());
}

TEST_CASE("processes that torchrun started meet without being told how, alone or not at all") {
  const std::string run =
      "run --heads 4 --head-dim 16 --seq 256 --dtype fp32 --kernels reference --json --quiet "
      "--iters 1 --ring 2 ";
  const int port = free_port();
  Running first(words_of(run), {.environment = rank_of_two(0, port)});
  Running second(words_of(run), {.environment = rank_of_two(1, port)});
  const Result r = first.end();
  INFO(r.err);
  CHECK(r.code == 0);
  CHECK(spp::parse_json(r.out, "stdout")["backend"]["comm"] == "tcp");
  CHECK(second.end().out.empty());
  // Each would run all ranks by itself.
  const Result threads = sp_plan(run + "--comm inproc", {.environment = rank_of_two(0, port)});
  CHECK(threads.code == 2);
  CHECK_THAT(threads.err, ContainsSubstring("--comm: inproc has all ranks in one process, and a "
                                            "launcher (WORLD_SIZE) started 2 processes"));
  const Result by_mpi =
      sp_plan(run + "--comm inproc", {.environment = {{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}});
  CHECK(by_mpi.code == 2);
  CHECK_THAT(by_mpi.err, ContainsSubstring("mpirun or srun started 2 processes"));
  // One process has all of them as threads.
  Environment one = rank_of_two(0, port);
  one["WORLD_SIZE"] = "1";
  const Result alone = sp_plan(run, {.environment = one});
  CHECK(alone.code == 0);
  CHECK(spp::parse_json(alone.out, "stdout")["backend"]["comm"] == "inproc");
}

TEST_CASE("a process that was asked for another run is turned away, in one line on both sides") {
  const int port = free_port();
  const std::string timeout = "--timeout 4 ";
  Running first(words_of(tiny_run + timeout), {.environment = rank_of_two(0, port)});
  Running second(words_of(tiny_run + timeout + "--seed 2"), {.environment = rank_of_two(1, port)});
  const Result other = second.end();
  CHECK(other.code == 1);
  CHECK_THAT(other.err, ContainsSubstring("turned this rank away: another request"));
  CHECK(std::count(other.err.begin(), other.err.end(), '\n') == 1);
  const Result r = first.end();
  CHECK(r.code == 1);
  CHECK_THAT(r.err, ContainsSubstring("1 of 2 ranks have come within 4.0 s; rank 1 is missing; 1 "
                                      "stranger was turned away"));
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
}

TEST_CASE("what holds on one rank's host alone, this rank says, with its number and host") {
  const Result r = sp_plan("run --comm tcp --quiet --plan /nowhere/plan.json",
                           {.environment = rank_of_two(1, free_port())});
  CHECK(r.code == 2);
  CHECK_THAT(r.err, StartsWith(fmt::format("sp-plan: rank 1 on {}: ", spp::host_name())));
  CHECK_THAT(r.err, ContainsSubstring("/nowhere/plan.json"));
}

TEST_CASE("where nothing can be written, ranks that write nothing run all the same") {
  const spp::test::TempDir dir;
  const std::string file = (dir.path() / "run.json").string();
  const int port = free_port();
  Running first(words_of(tiny_run + "-o " + file), {.environment = rank_of_two(0, port)});
  Running second(words_of(tiny_run + "-o /nowhere/run.json"),
                 {.environment = rank_of_two(1, port)});
  const Result r = first.end();
  INFO(r.err);
  CHECK(r.code == 0);
  CHECK(spp::read_json(file)["format"] == "sp-plan/run");
  CHECK(second.end().code == 0);
}

TEST_CASE("a stopped process ends a calibration and a run within the time-out") {
  const spp::test::TempDir dir;
  const std::string file = (dir.path() / "profile.json").string();
  for (const std::string& line :
       {fmt::format("{}--budget 120 --timeout 2 -o {}", tiny_calibrate, file),
        tiny_run + "--iters 1000000 --timeout 2"}) {
    const int port = free_port();
    Running first(words_of(line), {.environment = rank_of_two(0, port)});
    Running second(words_of(line), {.environment = rank_of_two(1, port)});
    wait_for_work(second.pid());
    REQUIRE(::kill(second.pid(), SIGSTOP) == 0);
    const auto start = std::chrono::steady_clock::now();
    const Result r = first.end();
    INFO(line << ": " << r.err);
    CHECK(r.code == 1);
    // A slow machine may stop it before the ranks have met.
    if (r.err.find("rank 1 is missing") == std::string::npos) {
      CHECK_THAT(r.err, ContainsSubstring("nothing happened for 2"));
      CHECK_THAT(r.err, ContainsSubstring("waits for rank 1"));
    }
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
  }
}

TEST_CASE("a launcher's wrong variables are told in one line where its transport is used") {
  const spp::test::TempDir dir;
  const std::string file = (dir.path() / "profile.json").string();
  const auto refused = [&](const std::string& name, const std::string& value,
                           const std::string& message) {
    for (const std::string& line : {tiny_run, fmt::format("{}-o {}", tiny_calibrate, file)}) {
      Environment environment = rank_of_two(0, 29500);
      environment[name] = value;
      const Result r = sp_plan(line, {.environment = environment});
      INFO(line << ": " << r.err);
      CHECK(r.code == 2);
      CHECK(r.out.empty());
      CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
      CHECK_THAT(r.err, ContainsSubstring(message));
    }
  };
  refused("MASTER_PORT", "abc", "MASTER_PORT is 'abc', not a whole number from 1 to 65534");
  refused("MASTER_PORT", "65535", "MASTER_PORT is '65535', not");
  refused("MASTER_PORT", "99999999999", "MASTER_PORT is '99999999999', not");
  refused("RANK", "-1", "RANK is '-1', not a whole number from 0 to 1");
  refused("RANK", "5", "RANK is '5', not a whole number from 0 to 1 (WORLD_SIZE is 2)");
}

TEST_CASE("a launcher's wrong variables do not matter where nobody uses it") {
  Environment environment = rank_of_two(0, 29500);
  environment["RANK"] = "garbage";
  environment["PMI_SIZE"] = "garbage";
  CHECK(sp_plan("plan --heads 8 --seq 64K --topology dgx-h100 --json", {.environment = environment})
            .code == 0);
  const Result r = sp_plan(
      "run --comm inproc --heads 4 --head-dim 16 --seq 256 --dtype fp32 --kernels reference "
      "--iters 1 --json --ring 2",
      {.environment = environment});
  INFO(r.err);
  CHECK(r.code == 0);
}

TEST_CASE("calibrate takes --timeout as run does") {
  const auto refused = [](const std::string& line) {
    const Result r = sp_plan(line);
    CHECK(r.code == 2);
    CHECK_THAT(r.err, ContainsSubstring("--timeout: "));
  };
  refused("calibrate -o /tmp/never-written.json --timeout soon");
  refused("calibrate -o /tmp/never-written.json --timeout 0");
  refused(
      "calibrate -o /tmp/never-written.json --topology dgx-h100 --timeout 5 --nccl-tests "
      "tests/support/data/nccl-tests/all_gather.txt");
}
