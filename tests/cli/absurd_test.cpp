// Absurd but well-formed: answered or refused within seconds and a gigabyte, in one line, never by
// a bug or an allocation that failed. What is large but can be done says how long it will take.
#include "base/json.hpp"
#include "tests/cli/program.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::Result;
using spp::test::sp_plan;

namespace {

#if defined(SPP_SANITIZED)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif
constexpr double most_seconds = sanitized ? 200 : 30;  // of a core; 10 where it is not shared
constexpr long most_kilobytes = 1'000'000;

void check_modest(const Result& r) {
  CHECK(r.core_seconds < most_seconds);
  if (!sanitized) {
    CHECK(r.peak_kilobytes < most_kilobytes);
  }
  CHECK_THAT(r.err, !ContainsSubstring("bug"));
}

struct Refused {
  std::string line;
  std::string message;  // stands in the line on stderr
};

const std::vector<Refused> refused{
    {"verify --heads 8 --seq 2048M --gpus 1048576 --ring 1048576",
     "the proof of zigzag-ring U1xR1048576 zigzag needs about 2"},
    {"verify --heads 4096 --seq 2048M --gpus 1048576 --ulysses 4096 --ring 256", "needs about "},
    {"verify --heads 4096 --seq 2048M --ring 65536 --strategy startrail --team 16", "needs about "},
    {"verify --heads 8 --seq 2048M --ring 262144 --strategy all-gather", "needs about "},
    {"verify --heads 8 --seq 16M --ring 16384", "a proof over fewer ranks needs less, or --force"},
    {"run --heads 8 --ring 10000 --seq 64K", "10000 threads, and a process may have 1024"},
    {"run --heads 8 --ring 1048576 --seq 2048M", "1048576 threads"},
    {"run --heads 4096 --head-dim 2048 --ulysses 2 --seq 1024M", "needs about "},
    {"run --heads 8 --ring 1000 --seq 1M --iters 1000000", "needs about "},
    {"simulate --heads 8 --seq 2048M --topology dgx-h100 --nodes 131072 --ring 1048576",
     "the simulation of zigzag-ring U1xR1048576 zigzag needs about "},
    {"simulate --heads 3000 --seq 2048M --topology dgx-h100 --nodes 131072 --ulysses 2048 "
     "--heads-policy uneven",
     "the simulation of "},
    {"simulate --heads 8 --seq 512M --topology dgx-h100 --nodes 8192 --ring 65536", "or --force"},
};

}  // namespace

TEST_CASE("what this machine cannot take is refused before it is built") {
  for (const Refused& request : refused) {
    INFO("sp-plan " << request.line);
    const Result r = sp_plan(request.line);
    CHECK(r.code == 3);
    CHECK(r.out.empty());
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
    CHECK_THAT(r.err, ContainsSubstring(request.message));
    CHECK_THAT(r.err, ContainsSubstring("--force"));
    check_modest(r);
  }
}

TEST_CASE("a limit of the address space is a limit of what may be planned") {
  if (sanitized) {
    SPP_SKIP("sanitizers map more than any limit");
  }
  const std::uint64_t little = std::uint64_t{400} << 20;
  const Result r = sp_plan("verify --heads 1024 --seq 64K --ulysses 1024",
                           {.environment = {}, .interrupt_at = "", .address_space = little});
  CHECK(r.code == 3);
  CHECK_THAT(r.err, ContainsSubstring("may be used (75 % of what this machine has left)"));
}

TEST_CASE("memory that runs out after all is no bug") {
  if (sanitized) {
    SPP_SKIP("sanitizers map more than any limit");
  }
  const std::uint64_t little = std::uint64_t{400} << 20;
  const Result r =
      sp_plan("verify --force --quiet --heads 8 --seq 2048M --gpus 1048576 --ring 1048576",
              {.environment = {}, .interrupt_at = "", .address_space = little});
  CHECK(r.code == 3);
  CHECK_THAT(r.err, ContainsSubstring("out of memory"));
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
}

TEST_CASE("plan answers for any number of GPUs and says how many plans it simulated") {
  for (const std::string machine :
       {"--topology dgx-h100 --nodes 512 --seq 1M", "--topology gb200-nvl72 --nodes 64 --seq 4M",
        "--topology dgx-h100 --nodes 131072 --seq 512M",
        "--topology gb200-nvl72 --nodes 14563 --seq 2048M"}) {
    INFO(machine);
    const Result r = sp_plan("plan --quiet --budget 2 --heads 64 --kv-heads 8 " + machine);
    CHECK(r.code == 0);
    const Json doc = spp::parse_json(r.out, "stdout");
    CHECK(doc["candidates"].size() == 5);
    CHECK(doc["simulated"] <= doc["searched"]);
    CHECK((doc["unsettled"] > 0 || doc["best"]["simulated"] == true));
    check_modest(r);
  }
}

TEST_CASE("Ctrl-C ends a search with an answer") {
  const Result r = sp_plan(
      "plan --budget 80000 --heads 64 --kv-heads 8 --seq 1M --topology gb200-nvl72 --nodes 64",
      {.environment = {}, .interrupt_at = "searching, "});
  CHECK(r.code == 0);
  const Json doc = spp::parse_json(r.out, "stdout");
  CHECK(doc["candidates"].size() == 5);
  CHECK(doc["unsettled"] > 0);
}

TEST_CASE("long work says from the beginning how long it will take") {
  for (const std::string line :
       {"verify --heads 8 --seq 256K --ring 1024",
        "simulate --heads 8 --seq 1M --topology dgx-h100 --nodes 128 --strategy double-ring "
        "--window 8 --ring 1024",
        "plan --budget 80000 --heads 64 --kv-heads 8 --seq 1M --topology gb200-nvl72 --nodes 64"}) {
    INFO(line);
    // The line after a second, or the one after ten on a slow machine.
    const Result r = sp_plan(line, {.environment = {}, .interrupt_at = " s left"});
    CHECK_THAT(r.err, ContainsSubstring(" of "));
    CHECK_THAT(r.err, ContainsSubstring(" s left"));
    CHECK_THAT(r.err, ContainsSubstring("ops"));
    CHECK_THAT(r.err, !ContainsSubstring("bug"));
  }
}
