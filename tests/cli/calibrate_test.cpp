// sp-plan calibrate: what it refuses, and that an interrupted calibration goes on.
#include "base/json.hpp"
#include "tests/cli/program.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <string>

using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::sp_plan;

namespace {

void check_refused(const std::string& options, const std::string& message) {
  INFO("sp-plan calibrate " << options);
  const auto r = sp_plan("calibrate " + options);
  CHECK(r.code == 2);
  CHECK(r.out.empty());
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  CHECK_THAT(r.err, ContainsSubstring(message));
}

constexpr const char* tiny =
    "calibrate --comm inproc --gpus 1 --suite elementwise --kernels reference --dtype fp32 "
    "--heads 2 --head-dim 8 --seq 64 --quiet -o ";

/// What an interrupted start of `tiny` leaves: one series, with a time that nothing takes.
std::string partial(int heads) {
  Json json = {{"format", "sp-plan/calibration"}, {"format_version", "1.0"}, {"tool_version", "0"}};
  json["key"] = {{"comm", "inproc"}, {"ranks", 1},       {"kernels", "reference"},
                 {"dtype", "fp32"},  {"heads", heads},   {"kv_heads", heads},
                 {"head_dim", 8},    {"mask", "causal"}, {"seq", {64}}};
  json["suites"]["elementwise"] = Json::array({{{"suite", "elementwise"},
                                                {"what", "op"},
                                                {"scope", ""},
                                                {"ranks", 1},
                                                {"active", 1},
                                                {"bytes", 0},
                                                {"seconds", {0.125, 0.125, 0.125}}}});
  return json.dump();
}

}  // namespace

TEST_CASE("calibrate refuses wrong options with one line") {
  check_refused("--gpus 2", "--output: missing");
  check_refused("-o /nonexistent/p.json", "--output: '/nonexistent/p.json' cannot be written");
  const std::string out = "-o /tmp/never-written.json ";
  check_refused(out + "--suite link", "--suite: unknown suite 'link' (links, ");
  check_refused(out + "--comm carrier-pigeon", "--comm: ");
  check_refused(out + "--kernels fast", "--kernels: ");
  check_refused(out + "--dtype fp8", "--dtype: ");
  check_refused(out + "--gpus 0", "--gpus: ");
  check_refused(out + "--budget soon", "--budget: ");
  check_refused(out + "--budget -1", "--budget: '-1' is not between");
  check_refused(out + "--kernels reference --heads 8 --kv-heads 3",
                "--kv-heads: 3 does not divide");
  check_refused(out + "--kernels reference --seq 4K,x", "--seq: ");
  check_refused(out + "--sute links", "did you mean '--suite'?");
  check_refused(out + "--topology dgx-h100", "--topology: describes a machine of GPUs");
  check_refused(out + "--ranks-per-gpu 2", "--ranks-per-gpu: is for GPUs");
  const std::string gather = "tests/support/data/nccl-tests/all_gather.txt";
  check_refused(out + "--nccl-tests " + gather, "--topology: missing");
  check_refused(out + "--topology dgx-h10 --nccl-tests " + gather, "did you mean 'dgx-h100'?");
  check_refused(out + "--topology dgx-h100 --suite links --nccl-tests " + gather,
                "--suite: given together with --nccl-tests");
  check_refused(out + "--topology dgx-h100 --nccl-tests nowhere.txt",
                "--nccl-tests: 'nowhere.txt' cannot be read");
  check_refused(out + "--topology dgx-h100 --nccl-tests README.md",
                "README.md: no line '# nThread");
  CHECK_FALSE(std::filesystem::exists("/tmp/never-written.json"));
}

TEST_CASE("a profile of nccl-tests stands in for the links of its machine") {
  const spp::test::TempDir dir;
  const std::string file = (dir.path() / "links.json").string();
  const auto r = sp_plan(
      "calibrate --nccl-tests tests/support/data/nccl-tests/node.txt --topology dgx-h100 -o " +
      file);
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(r.err.empty());
  const auto plan = sp_plan("plan --topology dgx-h100 --profile " + file +
                            " --heads 32 --kv-heads 8 --seq 64K --json");
  CHECK(plan.code == 0);
  CHECK(plan.err.empty());  // it is the very machine
}

TEST_CASE("an interrupted calibration keeps what was measured") {
  const spp::test::TempDir dir;
  const auto file = dir.path() / "profile.json";
  const auto left = dir.write("profile.json.partial", partial(2));
  const auto r = sp_plan(tiny + file.string());
  INFO(r.err);
  REQUIRE(r.code == 0);
  const Json profile = spp::read_json(file);
  CHECK(profile.at("samples").size() == 1);
  CHECK(profile.at("machine").at("gpu").at("generation").at("launch").at("value") == 125000.0);
  CHECK_FALSE(std::filesystem::exists(left));
}

TEST_CASE("samples of another calibration are not used") {
  const spp::test::TempDir dir;
  const auto file = dir.path() / "profile.json";
  (void)dir.write("profile.json.partial", partial(4));
  const auto r = sp_plan(tiny + file.string() + " --budget 0.2");
  REQUIRE(r.code == 0);
  CHECK_THAT(r.err, ContainsSubstring("is of another calibration"));
  CHECK(spp::read_json(file).at("samples").size() > 1);
}
