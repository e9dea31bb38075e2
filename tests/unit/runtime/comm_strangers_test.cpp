// Who may take part in a run over TCP: the hello, and what becomes of all others.
#include "base/version.hpp"
#include "runtime/comm/tcp_connection.hpp"
#include "runtime/comm/transport.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/runtime/tcp_job.hpp"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

using namespace spp;
using namespace spp::runtime;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using runtime::tcp::Hello;
using runtime::tcp::Kind;
using test::Ended;
using test::Environment;
using test::SilentService;
using test::Stranger;
using test::TcpJob;

namespace {

const Environment secret{{"SP_PLAN_JOB_TOKEN", "an example of a secret"}};

/// What rank 0 of a job of `ranks` with that secret wants to hear; the hash of no request is 0.
Hello right_hello(std::uint32_t ranks) {
  return {.size = ranks,
          .request = 0,
          .version = fmt::format("{} ({})", version(), commit()),
          .token = secret.at("SP_PLAN_JOB_TOKEN")};
}

RunSettings within(double seconds) { return {.deadlines = {.timeout = Seconds(seconds)}}; }
RunSettings asked(const std::string& request) {
  RunSettings settings = within(20);
  settings.request = [request] { return request; };
  return settings;
}

void meet(Transport& t) { t.barrier(); }

}  // namespace

TEST_CASE("strangers are turned away, counted, and the ranks meet all the same") {
  TcpJob job(2);
  job.start(0, meet, within(60), secret);

  Hello hello = right_hello(2);
  hello.token = "another";
  Stranger guesses(job.port());  // wants the place of rank 1
  guesses.greet(1, hello);
  CHECK(guesses.answer() == "another job token: rank 0's is from SP_PLAN_JOB_TOKEN");
  CHECK(guesses.answer() == "hung up");

  hello = right_hello(2);
  hello.token += "!";
  Stranger nearly(job.port());
  nearly.greet(1, hello);
  CHECK_THAT(nearly.answer(), StartsWith("another job token"));

  for (const int rank : {99, 2, 0, -1}) {
    Stranger other(job.port());
    other.greet(rank, right_hello(2));
    CHECK(other.answer() == "no such rank: ranks are 0 to 1");
  }

  Stranger larger(job.port());
  larger.greet(1, right_hello(8));
  CHECK(larger.answer() == "another size of the run: rank 0 has WORLD_SIZE 2");

  hello = right_hello(2);
  hello.version = "0.0.1 (an old one)";
  Stranger old(job.port());
  old.greet(1, hello);
  CHECK_THAT(old.answer(), StartsWith("another version: rank 0 is sp-plan "));

  hello = right_hello(2);
  hello.request = 42;
  Stranger other(job.port());
  other.greet(1, hello);
  CHECK(other.answer() == "another request: all ranks need the same options and files");

  Stranger browser(job.port());
  browser.say("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  CHECK(browser.answer() == "hung up");

  Stranger huge(job.port());  // a size field of 4 GiB
  huge.say(
      std::string_view("SPP\xF1\x02\x00\x00\x00"
                       "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xFF\xFF\xFF\xFF",
                       24));
  CHECK(huge.answer() == "hung up");

  Stranger rude(job.port());  // no hello at all
  rude.say({.kind = Kind::abort, .from = 1}, "enough");
  CHECK(rude.answer() == "hung up");

  Stranger gone(job.port());
  {
    const Stranger says_nothing(job.port());
  }
  job.start(1, meet, within(60), secret);
  const Ended first = job.end_of(0);
  CHECK(first.error.empty());
  CHECK(job.end_of(1).error.empty());
  REQUIRE(first.warnings.size() == 1);
  CHECK_THAT(first.warnings.front(), ContainsSubstring("strangers were turned away"));
  CHECK_THAT(first.warnings.front(), ContainsSubstring("2 with another job token"));
  CHECK_THAT(first.warnings.front(),
             ContainsSubstring("4 with a rank that this run does not have"));
  CHECK_THAT(first.warnings.front(), ContainsSubstring("1 of a run of another size"));
  CHECK_THAT(first.warnings.front(), ContainsSubstring("1 of another version"));
  CHECK_THAT(first.warnings.front(), ContainsSubstring("1 that is asked for something else"));
  CHECK_THAT(first.warnings.front(), ContainsSubstring("3 that does not speak as sp-plan does"));
}

TEST_CASE("a rank that is there keeps its place; one that has gone leaves it") {
  TcpJob job(4);
  job.start(0, meet, within(60), secret);
  {
    Stranger comes_and_goes(job.port());
    comes_and_goes.greet(1, right_hello(4));
    CHECK(comes_and_goes.answer() == "welcome");
  }
  Stranger comes_again(job.port());
  comes_again.greet(1, right_hello(4));
  CHECK(comes_again.answer() == "welcome");
  Stranger keeps_it(job.port());
  keeps_it.greet(2, right_hello(4));
  CHECK(keeps_it.answer() == "welcome");
  Stranger comes_late(job.port());
  comes_late.greet(2, right_hello(4));
  CHECK(comes_late.answer() == "a rank of that number is there already");
  job.kill(0);
}

TEST_CASE("strangers that hold the line hold up nobody") {
  TcpJob job(2);
  job.start(0, meet, within(60), secret);
  std::vector<Stranger> slow;
  for (int i = 0; i < 100; ++i) {
    slow.emplace_back(job.port());
    slow.back().say("S");  // and no more
  }
  job.start(1, meet, within(60), secret);
  const Ended first = job.end_of(0);
  CHECK(first.error.empty());
  CHECK(job.end_of(1).error.empty());
  REQUIRE(first.warnings.size() == 1);
  CHECK_THAT(first.warnings.front(), ContainsSubstring("too many at a time"));
}

TEST_CASE("a rank that is turned away says why, in one line") {
  const auto refused = [](const RunSettings& settings, const Environment& environment) {
    TcpJob job(2);
    job.start(0, meet, asked("this"), secret);
    job.start(1, meet, settings, environment);
    const std::string error = job.end_of(1).error;
    job.kill(0);
    CHECK_THAT(error, StartsWith("set-up failed on rank 1: rank 0 at 127.0.0.1:"));
    CHECK(error.find('\n') == std::string::npos);
    return error;
  };
  CHECK_THAT(refused(asked("this"), {}), EndsWith("turned this rank away: another job token: rank "
                                                  "0's is from SP_PLAN_JOB_TOKEN"));
  CHECK_THAT(refused(asked("this"), {{"SP_PLAN_JOB_TOKEN", "wrong"}}),
             ContainsSubstring("another job token"));
  CHECK_THAT(refused(asked("that"), secret), ContainsSubstring("another request"));
  Environment of_three = secret;
  of_three["WORLD_SIZE"] = "3";
  TcpJob job(2);
  job.start(0, meet, asked("this"), secret);
  job.start(1, meet, asked("this"), of_three);  // the plan has 2
  CHECK(job.end_of(1).error == "--gpus: the launcher started 3 ranks, the plan has 2");
  job.kill(0);
}

TEST_CASE("ids of launchers keep jobs apart without a secret") {
  const auto errors = [](const Environment& one, const Environment& other) {
    TcpJob job(2);
    job.start(0, meet, within(3), one);
    job.start(1, meet, within(3), other);
    return std::pair(job.end_of(0).error, job.end_of(1).error);
  };
  const Environment torch{{"TORCHELASTIC_RUN_ID", "a"}, {"TORCHELASTIC_RESTART_COUNT", "0"}};
  CHECK(errors(torch, torch) == std::pair<std::string, std::string>());
  Environment again = torch;
  again["TORCHELASTIC_RESTART_COUNT"] = "1";
  const auto [first, second] = errors(torch, again);
  CHECK_THAT(first, ContainsSubstring("1 of 2 ranks have come within 3.0 s; rank 1 is missing; 1 "
                                      "stranger was turned away"));
  CHECK_THAT(second, EndsWith("another job token: rank 0's is from TORCHELASTIC_RUN_ID"));
  const auto steps = errors({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}},
                            {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}});
  CHECK_THAT(steps.second, EndsWith("rank 0's is from SLURM_JOB_ID"));
}

TEST_CASE("ranks that do not come are named after the time-out") {
  TcpJob job(4);
  job.start(0, meet, within(1));
  job.start(2, meet, within(1));
  CHECK_THAT(job.end_of(0).error,
             ContainsSubstring("2 of 4 ranks have come within 1.0 s; ranks 1, 3 are missing"));
  CHECK_THAT(job.end_of(2).error, ContainsSubstring("ranks 1, 3 are missing"));
}

TEST_CASE("where MASTER_ADDR is not this host's, rank 0 listens on all addresses and says so") {
  TcpJob job(2, "192.0.2.1");  // of documentation, RFC 5737
  job.start(0, meet, within(60), secret);
  Environment nearby = secret;
  nearby["MASTER_ADDR"] = "127.0.0.1";  // another way to the same host
  job.start(1, meet, within(60), nearby);
  const Ended first = job.end_of(0);
  CHECK(first.error.empty());
  CHECK(job.end_of(1).error.empty());
  REQUIRE(first.warnings.size() == 1);
  CHECK_THAT(first.warnings.front(),
             StartsWith("MASTER_ADDR '192.0.2.1' is no address of this host"));
}

TEST_CASE(
    "a service that says nothing at rank 0's place is waited for no longer than the time-out") {
  const SilentService service;
  TcpJob job(2);
  const auto start = std::chrono::steady_clock::now();
  job.start(1, meet, within(1), {{"MASTER_PORT", std::to_string(service.port() - 1)}});
  const std::string error = job.end_of(1).error;
  CHECK_THAT(error, ContainsSubstring("rank 0 does not answer at 127.0.0.1:"));
  CHECK_THAT(error, EndsWith("within 1.0 s: it was connected to, but says nothing"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("where nobody listens a rank gives up after the time-out, and says where") {
  TcpJob job(2);
  job.start(1, meet, within(0.5));
  CHECK_THAT(job.end_of(1).error,
             ContainsSubstring(
                 fmt::format("rank 0 does not answer at 127.0.0.1:{} within 0.5 s", job.port())));
}

TEST_CASE("nobody is connected with itself") {
  std::string why;
  const int even = (test::free_port() + 1) / 2 * 2;  // Linux connects from even ports first
  const auto addresses = tcp::resolve("127.0.0.1", even, why);
  REQUIRE(addresses.size() == 1);
  bool connected = false;
  why.clear();
  // The system hands out ports one after the other, so that one of them is the one.
  for (int i = 0; i < 20'000 && why != "nobody listens there yet"; ++i) {
    connected = connected || tcp::connect_to(addresses.front(), Seconds(1), why).valid();
  }
  CHECK_FALSE(connected);
}

TEST_CASE("a rank speaks for itself only, to ranks that are there, in frames") {
  const auto error_after = [](const std::function<void(const Stranger&)>& act) {
    TcpJob job(3);
    job.start(0, meet, within(20), secret);
    job.start(2, meet, within(20), secret);
    Stranger rank_1(job.port());
    rank_1.greet(1, right_hello(3));
    CHECK(rank_1.answer() == "welcome");
    act(rank_1);
    const std::string error = job.end_of(0).error;
    (void)job.end_of(2);
    return error;
  };
  CHECK(error_after([](const Stranger& s) { s.say({.from = 1, .to = 77}); }) ==
        "tcp failed on rank 0: rank 1 sent a message to rank 77 of 3");
  CHECK(error_after([](const Stranger& s) { s.say({.from = 1, .to = -1}); }) ==
        "tcp failed on rank 0: rank 1 sent a message to rank -1 of 3");
  CHECK(error_after([](const Stranger& s) { s.say({.from = 2, .to = 0}); }) ==
        "tcp failed on rank 0: rank 1 sent a message from rank 2");
  CHECK(error_after([](const Stranger& s) { s.say({.from = 1, .to = 0, .tag = 64}); }) ==
        "tcp failed on rank 0: rank 1 sent a message with tag 64");
  CHECK(error_after([](const Stranger& s) { s.say({.kind = Kind::text, .from = 2}, "me"); }) ==
        "tcp failed on rank 0: rank 1 sent a frame from rank 2 to rank 0");
  CHECK(error_after([](const Stranger& s) { s.say({.kind = Kind::texts, .from = 1}, "us"); }) ==
        "tcp failed on rank 0: rank 1 sent a frame that is not its part");
  CHECK(error_after([](const Stranger& s) { s.greet(1, right_hello(3)); }) ==
        "tcp failed on rank 0: rank 1 sent a greeting after the greeting");
  CHECK(error_after([](const Stranger& s) { s.say("GET / HTTP/1.1\r\n\r\n"); }) ==
        "tcp failed on rank 0: rank 1 sent what is no frame of ours");
  CHECK(error_after([](const Stranger& s) {
          s.say({.kind = Kind::abort, .from = 1}, "aborted by rank 1: \x1b[31mred\nline");
        }) == "progress failed on rank 0: aborted by rank 1: ?[31mred?line");
}
