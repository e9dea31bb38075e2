// The decision map and pages, with the real program.
#include "base/json.hpp"
#include "tests/cli/refused.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::read_text;
using spp::test::Result;
using spp::test::sp_plan;
using spp::test::TempDir;

namespace {

const std::string small_map =
    "sweep --heads 8 --kv-heads 4 --seq 4K,32K --topology dgx-h100 --gpus 4,8 ";

Json swept(const std::string& line, int code = 0) {
  const Result r = sp_plan(line);
  INFO(r.err);
  REQUIRE(r.code == code);
  return spp::parse_json(r.out, "stdout");
}

/// What does not depend on how long it took.
std::string lasting(Json document) {
  document.erase("elapsed_s");
  return document.dump();
}

}  // namespace

TEST_CASE("a sweep has a cell for each combination, by machine and by length") {
  const Json map = swept(small_map);
  CHECK(map["format"] == "sp-plan/sweep");
  REQUIRE(map["cells"].size() == 4);
  CHECK(map["lengths"] == Json::array({4096, 32768}));
  CHECK(map["lines"][0]["gpus"] == 4);
  CHECK(map["lines"][1]["gpus"] == 8);
  for (const Json& cell : map["cells"]) {
    CHECK(cell["verdict"] == "plan");
  }
}

TEST_CASE("a cell of a sweep is plan's answer") {
  const Json map = swept(small_map + "--no-boundaries");
  const Json answer = swept("plan --heads 8 --kv-heads 4 --seq 32K --topology dgx-h100 --gpus 8");
  CHECK(map["cells"][3]["best"]["predicted"]["step_s"] == answer["best"]["predicted"]["step_s"]);
  CHECK(map["cells"][3]["best"]["plan"]["strategy"] == answer["best"]["plan"]["strategy"]);
  CHECK(map["cells"][3]["best"]["why"] == answer["best"]["why"]);
}

TEST_CASE("a sweep says the same with any number of threads") {
  const std::string one = lasting(swept(small_map + "--threads 1"));
  CHECK(lasting(swept(small_map + "--threads 3")) == one);
}

TEST_CASE("a cell without a plan says why and does not end the sweep") {
  // 5 divides no node of 8 into whole groups of --tp 4
  const Json map = swept(
      "sweep --model llama-3.1-8b --seq 8K --topology dgx-h100 --gpus 4,5 --tp 4 --no-boundaries");
  REQUIRE(map["cells"].size() == 2);
  CHECK(map["cells"][0]["verdict"] == "plan");
  CHECK(map["cells"][1]["verdict"] == "refused");
  CHECK_THAT(map["cells"][1]["reason"].get<std::string>(), ContainsSubstring("--tp"));
}

TEST_CASE("what is no number of GPUs or nodes is wrong, whatever stands beside it in the list") {
  const std::string line =
      "sweep --model llama-3.1-8b --seq 8K --topology dgx-h100 --no-boundaries ";
  spp::test::check_refused(sp_plan(line + "--gpus 0,8"), 2, "--gpus: 0 is out of range");
  spp::test::check_refused(sp_plan(line + "--gpus 8,-1"), 2, "--gpus: -1 is out of range");
  spp::test::check_refused(sp_plan(line + "--gpus 8,abc"), 2, "--gpus: 'abc'");
  spp::test::check_refused(sp_plan(line + "--nodes 1,0"), 2, "--nodes: 0 is out of range");
}

TEST_CASE("where no cell has a plan, the map is printed and the exit code is 3") {
  const Result r = sp_plan(
      "sweep --model llama-3.1-70b --seq 1M,2M --topology dgx-h100 --gpus 8 --no-boundaries");
  CHECK(r.code == 3);
  const Json map = spp::parse_json(r.out, "stdout");
  CHECK(map["cells"][0]["verdict"] == "nothing fits");
  CHECK_THAT(r.err, ContainsSubstring("no cell has a plan"));
}

TEST_CASE("a sweep's table says what changes between lengths; its CSV has a row for each cell") {
  const TempDir dir;
  const std::string csv = (dir.path() / "map.csv").string();
  const Result r = sp_plan(
      "sweep --heads 32 --kv-heads 8 --seq 2K,256K --topology dgx-h100 --nodes 2 --table --csv " +
      csv);
  INFO(r.err);
  CHECK(r.code == 0);
  CHECK_THAT(r.out, ContainsSubstring("between "));
  CHECK_THAT(r.out, ContainsSubstring(" -> "));
  const std::string rows = read_text(csv);
  CHECK(std::count(rows.begin(), rows.end(), '\n') == 3);
  CHECK(rows.starts_with("model,topology,nodes,gpus,seq,verdict,reason,name,strategy,"));
}

TEST_CASE("a sweep of more than can be awaited is refused before it begins") {
  std::string lengths = "1K";
  for (int i = 2; i < 500; ++i) {
    lengths += "," + std::to_string(i) + "K";
  }
  const Result r = sp_plan("sweep --heads 8 --seq " + lengths +
                           " --topology dgx-h100 --gpus 1,2,4,8 --budget 3600");
  spp::test::check_refused(r, 3, "a sweep of 1996 cells takes about");
}

TEST_CASE("Ctrl-C ends a sweep with what it has") {
  const Result r = sp_plan(
      "sweep --model llama-3.1-70b --seq 64K,128K,256K,512K --topology dgx-h100 --nodes 4,8,16 "
      "--global-batch 256 --threads 1",
      {.interrupt_at = "sweeping,"});
  INFO(r.err);
  CHECK((r.code == 0 || r.code == 3));
  const Json map = spp::parse_json(r.out, "stdout");
  CHECK(std::ranges::any_of(map["cells"],
                            [](const Json& c) { return c["verdict"] == "unsearched"; }));
}

TEST_CASE("a page is made of what commands wrote, whole, and says nothing on stdout") {
  const TempDir dir;
  const std::string plan = (dir.path() / "plan.json").string();
  const std::string map = (dir.path() / "map.json").string();
  const std::string page = (dir.path() / "page.html").string();
  REQUIRE(sp_plan("plan --heads 8 --seq 8K --topology dgx-h100 -o " + plan).code == 0);
  REQUIRE(sp_plan(small_map + "-o " + map).code == 0);
  const Result r = sp_plan("report " + plan + " " + map + " -o " + page);
  CHECK(r.code == 0);
  CHECK(r.out.empty());
  CHECK_THAT(r.err, ContainsSubstring("wrote "));
  const std::string html = read_text(page);
  CHECK(html.starts_with("<!DOCTYPE html>"));
  CHECK_THAT(html, ContainsSubstring("Decision map"));
  CHECK(sp_plan("report " + plan + " " + map).out == html);
}

TEST_CASE("a page that cannot be made leaves the file that is there as it is") {
  const TempDir dir;
  const std::string page = (dir.path() / "page.html").string();
  (void)dir.write("page.html", "before");
  const Result r = sp_plan("report topologies/gpus/h100-80g-sxm.json -o " + page);
  spp::test::check_refused(r, 2, "h100-80g-sxm.json: format");
  CHECK(read_text(page) == "before");
}

TEST_CASE("an imported model is read back as the same, and shows what the config's own shows") {
  const TempDir dir;
  for (const std::string name : {"qwen2.5-7b", "mixtral-8x7b", "wan2.1-t2v-1.3b"}) {
    INFO(name);
    const Json ours = spp::read_json(spp::test::source_path("models/" + name + ".json"));
    const std::filesystem::path folder = dir.path() / name;
    std::filesystem::create_directory(folder);
    (void)dir.write(name + "/config.json", ours["config"].dump());
    const std::string file = (folder / "mine.json").string();
    Json imported = swept("model import " + folder.string() + " -o " + file + " --json");
    Json shown = swept("model show " + file);
    CHECK(imported["format"] == "sp-plan/model-card");
    for (Json* card : {&imported, &shown}) {
      card->erase("file");
      card->erase("name");
    }
    CHECK(imported == shown);
    std::int64_t weights = 0;
    for (const Json& part : imported["weights"]) {
      weights += part.get<std::int64_t>();
    }
    CHECK(weights == imported["parameters"]);
  }
}

TEST_CASE("a sweep says which cells' searches did not come to their end") {
  const TempDir dir;
  const std::string csv = (dir.path() / "map.csv").string();
  const std::string map = (dir.path() / "map.json").string();
  const Result r = sp_plan(
      "sweep --model deepseek-v3 --topology dgx-h100 --seq 128K --gpus 1024 --global-batch 2048 "
      "--budget 0.01 --no-boundaries --csv " +
      csv + " -o " + map);
  INFO(r.err);
  REQUIRE(r.code == 0);
  const std::int64_t unsettled = spp::read_json(map)["cells"][0]["unsettled"].get<std::int64_t>();
  REQUIRE(unsettled > 0);
  CHECK_THAT(r.out, ContainsSubstring("were not simulated at 128K ("));
  CHECK(read_text(csv).ends_with("," + std::to_string(unsettled) + "\r\n"));
  CHECK_THAT(sp_plan("report " + map).out,
             ContainsSubstring(std::to_string(unsettled) + " left unsettled, in 1 of 1 cells"));
}

TEST_CASE("a sweep lists what was assumed at each length, and titles its line for all") {
  const Json map = swept(
      "sweep --heads 8 --topology dgx-h100 --gpus 8 --seq 8K,64K --no-boundaries --documents "
      "lognormal:median=2K,sigma=1.2,max=8K,seed=1");
  std::string drawn;
  for (const Json& assumption : map["assumptions"]) {
    drawn += assumption["what"] == "documents" ? assumption["value"].get<std::string>() : "";
  }
  CHECK_THAT(drawn, ContainsSubstring("sequences of 8K tokens"));
  CHECK_THAT(drawn, ContainsSubstring("sequences of 64K tokens"));
  CHECK_THAT(map["lines"][0]["title"].get<std::string>(), ContainsSubstring(", packed documents,"));
}
