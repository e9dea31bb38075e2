// The command line on GPUs, without one: sp-plan linked with CUDA's runtime on the host
// (host_cuda.cpp). What calibrate writes can be planned with, and stands beside a run.
#include "base/json.hpp"
#include "tests/cli/program.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <fstream>
#include <string>

using Catch::Matchers::ContainsSubstring;
using spp::Json;

namespace {

spp::test::Result sp_plan(const std::string& line, const std::string& gpus = "1") {
  return spp::test::sp_plan(line, {.program = "tests/sp-plan-on-host-cuda",
                                   .environment = {{"SPP_HOST_CUDA_DEVICES", gpus}}});
}

constexpr const char* shape = " --heads 2 --head-dim 32 --seq 256 --dtype fp32 --kernels reference";

/// Calibrates, and reads the profile back with a plan and with a run.
Json calibrated(const std::string& options, const std::string& gpus) {
  const spp::test::TempDir dir;
  const std::string file = (dir.path() / "profile.json").string();
  const auto r =
      sp_plan("calibrate --device cuda --budget 2 --quiet -o " + file + shape + options, gpus);
  INFO(r.err);
  REQUIRE(r.code == 0);
  Json profile = spp::read_json(file);
  CHECK(profile.at("environment").at("gpu") == "threads of the host");
  CHECK_FALSE(profile.at("attention").empty());

  const std::string work = " --heads 2 --head-dim 32 --seq 256 --dtype fp32 --profile ";
  const auto plan = sp_plan("plan --json" + work + file);
  INFO(plan.err);
  REQUIRE(plan.code == 0);
  CHECK_FALSE(Json::parse(plan.out).at("candidates").empty());

  // Other tests may have slowed the calibration down but not the run, which would then be refused
  // as faster than this machine can be.
  Json generous = profile;
  generous["machine"]["gpu"]["matrix_rate"]["fp32"]["value"] = 1000;
  const std::string generous_file = (dir.path() / "generous.json").string();
  std::ofstream(generous_file) << generous;
  const auto run = sp_plan(
      "run --device cuda --comm inproc --kernels reference --check --json "
      "--iters 2 --ulysses 2 --gpus 2" +
          work + generous_file,
      gpus);
  INFO(run.err);
  REQUIRE(run.code == 0);
  const Json document = Json::parse(run.out);
  CHECK(document.at("passed") == true);
  CHECK(document.at("predicted").is_object());
  return profile;
}

}  // namespace

TEST_CASE("run works on a GPU that ranks share, and checks its numbers") {
  const auto r = sp_plan("run --device cuda --ulysses 2 --ring 2 --check --iters 2 --json" +
                         std::string(shape));
  INFO(r.err);
  REQUIRE(r.code == 0);
  const Json document = Json::parse(r.out);
  CHECK(document.at("passed") == true);
  CHECK(document.at("backend").at("gpu").at("name") == "threads of the host");
  CHECK(document.at("backend").at("gpu").at("ranks_per_gpu") == 4);
}

TEST_CASE("a calibration of ranks that share a GPU can be planned with") {
  const Json machine = calibrated(" --gpus 2", "1").at("machine");
  CHECK(machine.at("intra").at("medium") == "device");
  CHECK(machine.at("device").at("ranks").at("value") == 2);
}

TEST_CASE("a calibration of emulated nodes has a network") {
  const Json profile =
      calibrated(" --gpus 4 --suite links,attention --emulate-link 5us:100GB/s,20us:10GB/s,2", "1");
  CHECK(profile.at("nodes").at("value") == 2);
  CHECK(profile.at("machine").at("gpus_per_node").at("value") == 2);
  CHECK(profile.at("machine").at("inter").is_object());
  CHECK(profile.at("environment").at("emulated_links") == "5us:100GB/s,20us:10GB/s,2");
}

TEST_CASE("a calibration of a GPU for every rank is a machine of as many") {
  const Json machine = calibrated(" --suite links,attention", "2").at("machine");
  CHECK(machine.at("gpus_per_node").at("value") == 2);
  CHECK(machine.at("intra").at("medium") == "nvlink");
  CHECK_FALSE(machine.contains("device"));
}

TEST_CASE("calibrate refuses what GPUs here cannot do with one line") {
  const auto refused = [](const std::string& options, const std::string& message) {
    const auto r = sp_plan("calibrate --device cuda -o /tmp/never-written.json" +
                           std::string(shape) + options);
    CHECK(r.code == 2);
    CHECK_THAT(r.err, ContainsSubstring(message));
  };
  refused(" --comm mpi", "--comm: mpi moves memory of the host");
  refused(" --topology dgx-h100", "--topology: 'dgx-h100' has a GPU for every rank");
  refused(" --gpus 3 --emulate-link 5us:100GB/s,20us:10GB/s,2", "--emulate-link: 2 ranks a node");
}
