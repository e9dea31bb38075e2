// Files, numbers and names that nobody would give, except by accident or to do harm: an answer or
// one line, soon, with little memory; never a bug.
#include "base/json.hpp"
#include "tests/cli/refused.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::Result;
using spp::test::RunOptions;
using spp::test::sp_plan;
using spp::test::TempDir;

namespace fs = std::filesystem;

namespace {

void check_one_line(const Result& r, int code, const std::string& message) {
  spp::test::check_refused(r, code, message);
  CHECK_THAT(r.err, !ContainsSubstring("memory"));
}

void check_refused(const std::string& line, const std::string& message,
                   const RunOptions& options = {}) {
  INFO("sp-plan " << line);
  check_one_line(sp_plan(line, options), 2, message);
}

fs::path fifo(const TempDir& dir, std::string_view name) {
  const fs::path path = dir.path() / name;
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  return path;
}

/// dgx-h100's file with a change.
template <class Change>
fs::path changed_machine(const TempDir& dir, Change change) {
  Json machine = spp::read_json(spp::test::source_path("topologies/machines/8xl20-pcie.json"));
  change(machine);
  return dir.write("machine.json", machine.dump());
}

Json rate(double value, std::string_view unit) {
  return {{"value", value}, {"unit", unit}, {"source", "test"}};
}

constexpr const char* work = "plan --heads 8 --seq 4K --top 1 ";
constexpr const char* composed = "plan --heads 8 --seq 4K --top 1 --gpu h100 --nodes 2 ";

std::string nccl_test(int hosts, int rows) {
  std::string text =
      "# Collective test starting: all_gather_perf\n"
      "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1024 step: 4(factor)\n";
  for (int i = 0; i < hosts; ++i) {
    text += fmt::format(
        "#  Rank {} Group  0 Pid {} on host{} device  0 [0000:19:00] NVIDIA H100 80GB HBM3\n", i, i,
        i);
  }
  text +=
      "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n";
  for (int i = 0; i < rows; ++i) {
    text += fmt::format("  {}  256  float  none  -1  {}  0.09  0.08  0  11.53  0.09  0.08  0\n",
                        1024 * (i + 1), 10 + i);
  }
  return text;
}

}  // namespace

TEST_CASE("what has no end is refused at once") {
  for (const std::string device : {"/dev/zero", "/dev/urandom"}) {
    check_refused("simulate --plan " + device, device + ": is a device, not a file");
    check_refused("verify --schedule " + device, "--schedule: '" + device + "' is a device");
    check_refused("topology check " + device, device + ": is a device, not a file");
    check_refused("model show " + device, device + ": is a device, not a file");
    check_refused("regress --gate " + device, device + ": is a device, not a file");
    check_refused(fmt::format("compare {0} {0}", device), device + ": is a device, not a file");
    check_refused(std::string(work) + "--profile " + device, device + ": is a device");
    check_refused("verify --heads 8 --seq 4K --ring 2 --documents " + device,
                  "--documents: '" + device + "' is neither");
    check_refused("calibrate --topology dgx-h100 -o /tmp/never-written.json --nccl-tests " + device,
                  "--nccl-tests: '" + device + "' is a device");
  }
}

TEST_CASE("a named pipe that nobody writes is refused instead of awaited") {
  const TempDir dir;
  const std::string pipe = fifo(dir, "pipe").string();
  check_refused("simulate --plan " + pipe, "is a named pipe, not a file");
  check_refused("verify --schedule " + pipe, "is a named pipe, not a file");
  check_refused("model show " + pipe, "is a named pipe, not a file");
  check_refused(std::string(work) + "--profile " + pipe, "is a named pipe, not a file");
  check_refused(std::string(work) + "--topology " + pipe, "is a named pipe, not a file");
}

TEST_CASE("a plan comes through a pipe that was handed over") {
  const Result r = sp_plan("simulate --plan /dev/stdin",
                           {.input = R"({"strategy": "usp", "ulysses": 2, "ring": 2})"});
  check_one_line(r, 2, "--model: missing");  // it was read, and says no more
}

TEST_CASE("a known name is meant before a file, pipe or folder of that name") {
  const TempDir pipes;
  (void)fifo(pipes, "dgx-h100");
  (void)fifo(pipes, "llama-3.1-8b");
  const TempDir folders;
  fs::create_directory(folders.path() / "dgx-h100");
  fs::create_directory(folders.path() / "llama-3.1-8b");
  const TempDir files;
  (void)files.write("dgx-h100", "not a machine");
  (void)files.write("llama-3.1-8b", "not a model");
  for (const TempDir* dir : {&pipes, &folders, &files}) {
    const Result r = sp_plan("plan --model llama-3.1-8b --topology dgx-h100 --seq 8K --top 1",
                             {.folder = dir->path()});
    INFO(r.err);
    CHECK(r.code == 0);
  }
}

TEST_CASE("a file without the name of one is found where the name is unknown") {
  const TempDir dir;
  fs::copy_file(spp::test::source_path("topologies/machines/dgx-h100.json"), dir.path() / "mine");
  fs::copy_file(spp::test::source_path("models/llama-3.1-8b.json"), dir.path() / "my-model");
  const Result r =
      sp_plan("plan --model my-model --topology mine --seq 8K --top 1", {.folder = dir.path()});
  INFO(r.err);
  CHECK(r.code == 0);
}

TEST_CASE("a JSON object of 200,000 keys is refused with the number that is allowed") {
  const TempDir dir;
  std::string text = "{\"format\": \"sp-plan/machine\"";
  for (int i = 0; i < 200'000; ++i) {
    text += fmt::format(", \"k{}\": {}", i, i);
  }
  const auto file = dir.write("keys.json", text + "}");
  check_refused("topology check " + file.string(), "more than 32768 keys in one object");
  check_refused("model show " + file.string(), "more than 32768 keys in one object");
}

TEST_CASE("a key that stands twice is refused") {
  const TempDir dir;
  const auto file = dir.write("plan.json", "{\"strategy\": \"usp\", \"ring\": 2,\n\"ring\": 4}");
  check_refused("verify --heads 8 --seq 4K --plan " + file.string(),
                "plan.json:2:6: key 'ring' stands twice in one object");
}

TEST_CASE("rates beyond all machines are refused with what is allowed") {
  for (const std::string number :
       {"1e308", "1e-308", "1e-320", "1e18", "1e-15", "0", "-1", "nan"}) {
    check_refused(composed + ("--inter ib:8x" + number + "Gb/s"), "--inter: ");
    check_refused(composed + ("--inter ib:8x400Gb/s --intra " + number + "GB/s"), "--intra: ");
  }
  const TempDir dir;
  for (const double value : {1e308, 1e-308, 1e-320, 1e18}) {
    for (const std::string_view key : {"host_bridge", "socket_link"}) {
      const auto file = changed_machine(dir, [&](Json& m) { m[key] = rate(value, "GB/s"); });
      check_refused(work + ("--topology " + file.string()), fmt::format("{}.value: ", key));
    }
  }
}

TEST_CASE("the slowest and the fastest rates that are allowed are planned with") {
  for (const std::string number : {"1e-6", "1", "1e6"}) {
    for (const std::string other : {"1e-6", "1e6"}) {
      const Result r = sp_plan(fmt::format("{}--inter ib:8x{}GB/s --intra {}GB/s --json --quiet",
                                           composed, other, number));
      INFO(number << " " << other << ": " << r.err);
      CHECK(r.code == 0);
      CHECK(r.err.empty());
    }
  }
  const TempDir dir;
  for (const double bridge : {1e-6, 1e6}) {
    const auto file = changed_machine(dir, [&](Json& m) {
      m["host_bridge"] = rate(bridge, "GB/s");
      m["socket_link"] = rate(1 / bridge, "GB/s");
    });
    const Result r = sp_plan(work + ("--topology " + file.string() + " --table"));
    INFO(r.err);
    CHECK(r.code == 0);
    for (std::size_t at = 0, end = 0; at < r.out.size(); at = end + 1) {
      end = std::min(r.out.find('\n', at), r.out.size());
      CHECK(end - at < 250);  // no numbers of hundreds of digits
    }
  }
}

TEST_CASE("output of nccl-tests has a stated length") {
  const TempDir dir;
  const auto read = [&](const std::string& text) {
    const auto file = dir.write("all_gather.txt", text);
    return sp_plan("calibrate --topology dgx-h100 -o " + (dir.path() / "links.json").string() +
                   " --nccl-tests " + file.string());
  };
  check_one_line(read(nccl_test(100'000, 3)), 2, "100000 ranks; a test has 2 to 65536");
  check_one_line(read(nccl_test(2, 300'000)), 2, "more than 500 sizes in one test");
  const Result many = read(nccl_test(60'000, 3));
  INFO(many.err);
  CHECK(many.code == 0);
  const Result longest = read(nccl_test(2, 500));
  INFO(longest.err);
  CHECK(longest.code == 0);
  const auto one = dir.write("one-all_gather.txt", nccl_test(2, 300));
  check_refused("calibrate --topology dgx-h100 -o /tmp/never-written.json --nccl-tests " +
                    one.string() + "," + one.string(),
                "with the files before, more than 500 sizes of all_gather");
}

TEST_CASE("a schedule whose sizes do not fit together is refused before it is built") {
  const TempDir dir;
  const std::string golden =
      spp::test::read_text(spp::test::source_path("tests/golden/ring_of_two.txt"));
  const auto with_ring = [&](const std::string& ring, const std::string& seq) {
    std::string text = golden;
    const auto mesh = text.find("ring=", text.find("\nmesh "));
    text.replace(mesh, text.find('\n', mesh) - mesh, "ring=" + ring);
    const auto problem = text.find("seq=", text.find("problem "));
    text.replace(problem, text.find(' ', problem) - problem, "seq=" + seq);
    return "verify --schedule " + dir.write("schedule.txt", text).string();
  };
  check_refused(with_ring("1000000", "16"), "schedule.txt: holds no program of rank 2");
  check_refused(with_ring("1000000", "2000000"), "schedule.txt: holds no program of rank 2");
  check_refused(with_ring("1000001", "16"), "out of range (1 to 1000000)");
}

TEST_CASE("a data folder that is missing, empty or unreadable is named in one line") {
  const TempDir dir;
  const auto with_data = [](const fs::path& folder) {
    return RunOptions{.environment = {{"SP_PLAN_DATA", folder.string()}}, .nobody = true};
  };
  if (sp_plan("--version", {.nobody = true}).code != 0) {
    SPP_SKIP("another user cannot start the program here");
  }
  check_refused("topology list", "SP_PLAN_DATA: ", with_data("/nonexistent"));
  check_refused("topology list", "SP_PLAN_DATA: ", with_data(dir.path()));
  REQUIRE(::chmod(dir.path().c_str(), 0755) == 0);
  fs::copy(spp::test::source_path("models"), dir.path() / "models");
  fs::copy(spp::test::source_path("topologies"), dir.path() / "topologies",
           fs::copy_options::recursive);
  for (const std::string_view folder : {"topologies/gpus", "models", "topologies"}) {
    REQUIRE(::chmod((dir.path() / folder).c_str(), 0) == 0);
  }
  check_refused("model list", "models: cannot be listed", with_data(dir.path()));
  REQUIRE(::chmod((dir.path() / "models").c_str(), 0755) == 0);
  check_refused("topology list", "is not a folder", with_data(dir.path()));
  REQUIRE(::chmod((dir.path() / "topologies").c_str(), 0755) == 0);
  check_refused("topology list", "gpus: cannot be listed", with_data(dir.path()));
  REQUIRE(::chmod((dir.path() / "topologies/gpus").c_str(), 0755) == 0);
  REQUIRE(::chmod((dir.path() / "topologies/gpus/h100-80g-sxm.json").c_str(), 0) == 0);
  check_refused("topology list", "h100-80g-sxm.json: cannot be read", with_data(dir.path()));
}

TEST_CASE("what a terminal would obey reaches it neither from files nor from options") {
  const TempDir dir;
  const std::string evil =
      "\x1b]0;owned\x07\xc2\x9b"
      "31m";
  const auto file = changed_machine(dir, [&](Json& m) {
    m["name"] = evil;
    m["host_bridge"]["source"] = evil;
  });
  const auto clean = [](const std::string& text) {
    return std::ranges::none_of(text, [](char c) { return c == '\x1b' || c == '\x07'; }) &&
           text.find("\xc2\x9b") == std::string::npos;
  };
  const Result shown = sp_plan({"topology", "check", file.string(), "--table"});
  INFO(shown.err);
  CHECK(shown.code == 0);
  CHECK_THAT(shown.out, ContainsSubstring("\\x1b]0;owned"));
  CHECK(clean(shown.out));
  const Result document = sp_plan({"topology", "check", file.string(), "--json"});
  CHECK(document.code == 0);
  CHECK(std::ranges::none_of(document.out, [](char c) { return c == '\x1b' || c == '\x07'; }));
  for (const std::string option : {"--topology", "--model", "--dtype", "--seq", "--plan"}) {
    const Result r = sp_plan({"simulate", option, evil});
    CHECK(r.code == 2);
    CHECK(clean(r.err));
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  }
  const auto broken = changed_machine(dir, [&](Json& m) { m[evil] = 1; });
  const Result r = sp_plan({"topology", "check", broken.string()});
  CHECK(r.code == 2);
  CHECK(clean(r.err));
  CHECK_THAT(r.err, ContainsSubstring("unknown key '\\x1b]0;owned"));
}

TEST_CASE("a checkpoint that cannot be written is warned about once, and measuring goes on") {
  if (sp_plan("--version", {.nobody = true}).code != 0) {
    SPP_SKIP("another user cannot start the program here");
  }
  // Its checkpoints would lie beside /dev/null, where only root can write.
  const Result r = sp_plan(
      "calibrate --comm inproc --gpus 2 --suite links,elementwise --kernels reference --dtype fp32 "
      "--heads 2 --head-dim 8 --seq 64 --budget 0.2 --quiet -o /dev/null",
      {.nobody = true});
  INFO(r.err);
  CHECK(r.code == 0);
  CHECK_THAT(r.out, !ContainsSubstring("error"));
  const std::string warning = "/dev/null.partial: cannot be written";
  const auto first = r.err.find(warning);
  REQUIRE(first != std::string::npos);
  CHECK(r.err.find(warning, first + 1) == std::string::npos);
}
