// Files that options name: what is written is never lost, and plans find what they were asked with.
#include "base/json.hpp"
#include "tests/cli/refused.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::check_refused;
using spp::test::read_text;
using spp::test::Result;
using spp::test::sp_plan;
using spp::test::TempDir;

namespace {

const std::string work = "--heads 8 --topology dgx-h100 --seq 8K --quiet ";

Json answered(const Result& r) {
  INFO(r.err);
  REQUIRE(r.code == 0);
  return spp::parse_json(r.out, "stdout");
}

std::string model_text() { return read_text(spp::test::source_path("models/llama-3.1-8b.json")); }

}  // namespace

TEST_CASE("two files that are one, or a result's and a file that is read, are refused") {
  const TempDir dir;
  REQUIRE(sp_plan("plan " + work + "-o plan.json", {.folder = dir.path()}).code == 0);
  std::filesystem::create_symlink("plan.json", dir.path() / "link.json");
  const auto refused = [&](const std::string& line, const std::string& message) {
    INFO(line);
    check_refused(sp_plan(line, {.folder = dir.path()}), 2, message);
  };
  refused("sweep " + work + "-o F --csv F", "--csv: 'F' is --output's file, too");
  refused("simulate " + work + "-o F --trace ./F", "--trace: './F' is --output's file, too");
  refused("simulate " + work + "--dump-schedule F --trace ./F",
          "--trace: './F' is --dump-schedule's file, too");
  refused("run --heads 8 --head-dim 16 --seq 64 --ring 2 -o F --trace F",
          "--trace: 'F' is --output's file, too");
  refused("simulate --plan plan.json --trace link.json",
          "--trace: 'link.json' is --plan's file, too");
  refused("report plan.json -o plan.json", "--output: 'plan.json' is a file that is read, too");
  refused("simulate --json --trace /dev/stdout " + work,
          "--trace: '/dev/stdout' is where the result is printed");
  CHECK_FALSE(std::filesystem::exists(dir.path() / "F"));
  CHECK(sp_plan("simulate -o /dev/null --trace /dev/null " + work).code == 0);
}

TEST_CASE("a file beyond the limit of its size is an error that leaves nothing behind") {
  const TempDir dir;
  const Result r =
      sp_plan(std::vector<std::string>{"-c", "ulimit -f 4; exec " +
                                                 spp::test::build_path("cli/sp-plan").string() +
                                                 " simulate --ring 8 -o result.json " + work},
              {.program = "/bin/sh", .folder = dir.path()});
  check_refused(r, 2, "result.json: cannot be written: File too large");
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("a plan finds the histogram that its documents were drawn from") {
  const TempDir dir;
  for (const char* folder : {"asked", "here"}) {
    std::filesystem::create_directory(dir.path() / folder);
  }
  (void)dir.write("asked/lengths.txt", "2K 1\n1K 0.4\n");
  const Result asked = sp_plan("plan -o plan.json --documents histogram:lengths.txt,seed=3 " + work,
                               {.folder = dir.path() / "asked"});
  REQUIRE(asked.code == 0);
  const std::string simulate = "simulate --json --plan ../asked/plan.json";
  const auto again = [&] { return sp_plan(simulate, {.folder = dir.path() / "here"}); };
  const Json plan = spp::read_json(dir.path() / "asked/plan.json");
  CHECK(answered(again())["result"]["predicted"]["step_s"] == plan["best"]["predicted"]["step_s"]);
  (void)dir.write("here/lengths.txt", "4K 1\n");  // another one of that name
  check_refused(again(), 2, "there is one here and one beside it: say which with --documents");
}

TEST_CASE("what came through a pipe travels with the plan") {
  const TempDir dir;
  const std::string plan = (dir.path() / "plan.json").string();
  const std::string on = " --topology dgx-a100 --seq 32K --quiet -o " + plan;
  REQUIRE(sp_plan("plan --model /dev/stdin" + on, {.input = model_text()}).code == 0);
  const Json asked = spp::read_json(plan);
  CHECK(asked["request"]["given"]["model"]["name"] == "llama-3.1-8b");
  const Json again = answered(sp_plan("simulate --json --plan " + plan));
  CHECK(again["result"]["predicted"]["step_s"] == asked["best"]["predicted"]["step_s"]);

  const std::string profile = read_text(spp::test::source_path("tests/support/data/cpu-2x2.json"));
  const std::string shape = "--heads 8 --head-dim 64 --dtype fp32 --seq 4K --quiet -o " + plan;
  REQUIRE(sp_plan("plan --profile /dev/stdin " + shape, {.input = profile}).code == 0);
  answered(sp_plan("simulate --json --plan " + plan));
  check_refused(sp_plan("plan --model /dev/stdin" + on, {.input = "no model"}), 2, "--model: ");
}

TEST_CASE("text of others that came through a pipe travels with the plan, too") {
  const TempDir dir;
  const std::string plan = (dir.path() / "plan.json").string();
  const std::string table = "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n";
  const Result r = sp_plan(
      "plan --topology /dev/stdin --gpu a100-80g-sxm --heads 8 --seq 8K "
      "--quiet -o " +
          plan,
      {.input = table});
  INFO(r.err);
  REQUIRE(r.code == 0);
  answered(sp_plan("simulate --json --plan " + plan));
}

TEST_CASE("a file's name may have a comma; where a line is printed for a shell, a quote") {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() / "it's");
  (void)dir.write("it's/a,b.json", model_text());
  const std::vector<std::string> on{"--seq", "8K", "--topology", "dgx-h100", "--quiet"};
  std::vector<std::string> words{"plan", "--model", "a,b.json", "-o", "plan.json"};
  words.insert(words.end(), on.begin(), on.end());
  REQUIRE(sp_plan(words, {.folder = dir.path() / "it's"}).code == 0);
  const Result again =
      sp_plan({"simulate", "--json", "--plan", "it's/plan.json"}, {.folder = dir.path()});
  answered(again);
  words = {"plan", "--model", "it's/a,b.json", "--gpus", "1"};
  words.insert(words.end(), on.begin(), on.end());
  CHECK_THAT(sp_plan(words, {.folder = dir.path()}).err,
             ContainsSubstring(R"(sp-plan plan --model 'it'\''s/a,b.json')"));
}

TEST_CASE("what is wrong in a plan's file is said of the file and its key") {
  const TempDir dir;
  REQUIRE(sp_plan("plan -o plan.json " + work, {.folder = dir.path()}).code == 0);
  Json plan = spp::read_json(dir.path() / "plan.json");
  const auto refused = [&](const std::string& message) {
    (void)dir.write("wrong.json", plan.dump());
    check_refused(sp_plan("simulate --plan wrong.json", {.folder = dir.path()}), 2, message);
  };
  plan["request"]["dtype"] = "bf61";
  refused("wrong.json: request.dtype: unknown value 'bf61'");
  plan["best"]["plan"]["layout"] = "x";
  plan["request"]["dtype"] = "bf16";
  refused("wrong.json: best.plan.layout: unknown value 'x'");
}

TEST_CASE("a plan that is none for what its request asks is refused with both") {
  const TempDir dir;
  const std::string call = "plan --heads 8 --head-dim 64 --seq 4K --batch 3 --gpus 2 --profile " +
                           spp::test::source_path("tests/support/data/cpu-2x2.json").string() +
                           " --dtype fp32 --ulysses 1 -o plan.json";
  REQUIRE(sp_plan(call, {.folder = dir.path()}).code == 0);
  const Json plan = spp::read_json(dir.path() / "plan.json");
  const auto refused = [&](const std::string& message, auto change) {
    Json wrong = plan;
    change(wrong["request"], wrong["best"]["plan"]);
    (void)dir.write("wrong.json", wrong.dump());
    check_refused(sp_plan("verify --plan wrong.json", {.folder = dir.path()}), 2,
                  "wrong.json: " + message);
  };
  refused("best.plan.micro_batch: makes a batch of 1 sequences, and its request has 3",
          [](Json&, Json& best) { best["micro_batch"] = 1; });
  refused("best.plan: has 2 ranks (ulysses x ring x tp x dp x cfg x pp), and its request has 4",
          [](Json& request, Json&) { request["gpus"] = 4; });
  refused("best.plan: has 1 ranks", [](Json&, Json& best) { best.erase("ring"); });
  refused("best.plan.ulysses: is 2, and its request has 1",
          [](Json&, Json& best) { best["ulysses"] = 2; });
  refused("best.plan.groups.ring: is not what degrees and order of its plan make: [[0,1]]",
          [](Json&, Json& best) { best["groups"]["ring"] = {{0, 5}}; });
  refused("best.plan.groups: 3 is not an object", [](Json&, Json& best) { best["groups"] = 3; });
  refused("request: unknown key 'sequence'", [](Json& request, Json&) { request["sequence"] = 1; });
  Json without = plan;
  without.erase("request");
  (void)dir.write("wrong.json", without.dump());
  check_refused(sp_plan("verify --plan wrong.json", {.folder = dir.path()}), 2,
                "wrong.json: key 'request' is missing");
}

TEST_CASE("compare says where two results are not of one question") {
  const TempDir dir;
  const auto simulated = [&](const std::string& name, const std::string& line) {
    std::string file = (dir.path() / name).string();
    REQUIRE(sp_plan("simulate " + work + "-o " + file + " " + line).code == 0);
    return file;
  };
  const std::string ring = simulated("a.json", "--ring 8");
  const std::string other = simulated("b.json", "--ulysses 8 --phase fwd");
  const Result r = sp_plan("compare " + ring + " " + other);
  CHECK(r.code == 0);
  CHECK_THAT(r.err, ContainsSubstring("are not of one question: phase \"fwd+bwd\" and \"fwd\""));
  CHECK_THAT(r.err, ContainsSubstring("the plans' ulysses"));
  CHECK(sp_plan("compare " + ring + " " + ring).err.empty());
}

TEST_CASE("compare tells other masks, batches and heads apart") {
  const TempDir dir;
  const auto simulated = [&](const std::string& name, const std::string& line) {
    std::string file = (dir.path() / name).string();
    REQUIRE(sp_plan("simulate " + work + "--ring 8 -o " + file + " " + line).code == 0);
    return file;
  };
  const std::string causal = simulated("a.json", "");
  const std::string other = simulated("b.json", "--mask full --batch 2 --dtype fp16");
  const Result r = sp_plan("compare " + causal + " " + other);
  CHECK(r.code == 0);
  for (const char* key : {"mask \"causal\" and \"full\"", "batch 1 and 2", "dtype"}) {
    CHECK_THAT(r.err, ContainsSubstring(key));
  }
}

TEST_CASE("compare takes no offence at what a search was free to choose, but at other scopes") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return (dir.path() / name).string(); };
  const std::string model = " --model llama-3.1-8b --seq 8K --topology dgx-h100 --gpus 8 ";
  REQUIRE(sp_plan("plan --quiet --global-batch 8 -o " + file("plan.json") + model).code == 0);
  REQUIRE(sp_plan("simulate --plan " + file("plan.json") + " -o " + file("one.json")).code == 0);
  CHECK(sp_plan("compare " + file("plan.json") + " " + file("one.json")).err.empty());
  for (const std::string scope : {"layer", "step"}) {
    REQUIRE(sp_plan("simulate --ulysses 8 --scope " + scope + " -o " + file(scope) + model).code ==
            0);
  }
  CHECK_THAT(sp_plan("compare " + file("layer") + " " + file("step")).err,
             ContainsSubstring("scope \"layer\" and \"step\""));
  CHECK_THAT(sp_plan("compare " + file("plan.json") + " " + file("layer")).err,
             ContainsSubstring("scope \"step\" and \"layer\""));
}

TEST_CASE("compare tells a whole step from the attention call of it that ran") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return (dir.path() / name).string(); };
  const std::string model =
      " --model tests/support/data/tiny-llama.json --seq 64 --dtype fp32 --ulysses 2 ";
  REQUIRE(sp_plan("simulate --profile tests/support/data/cpu-2x2.json --gpus 2 -o " + file("step") +
                  model)
              .code == 0);
  REQUIRE(sp_plan("run --quiet --iters 1 -o " + file("call") + model).code == 0);
  CHECK_THAT(sp_plan("compare " + file("step") + " " + file("call")).err,
             ContainsSubstring("scope \"step\" and \"attention\""));
}

TEST_CASE("a plan is proven wherever its machine's file is") {
  const TempDir dir;
  const std::string profile = read_text(spp::test::source_path("tests/support/data/cpu-2x2.json"));
  (void)dir.write("cpu.json", profile);
  REQUIRE(sp_plan("plan --quiet --profile cpu.json --heads 8 --seq 1K --dtype fp32 -o plan.json",
                  {.folder = dir.path()})
              .code == 0);
  std::filesystem::remove(dir.path() / "cpu.json");
  CHECK(sp_plan("verify --plan plan.json", {.folder = dir.path()}).code == 0);
  check_refused(sp_plan("simulate --plan plan.json", {.folder = dir.path()}), 2,
                "which is neither here nor beside it");
}

TEST_CASE("a simulated layer has a page, and is compared by phase") {
  const TempDir dir;
  const std::string layer = (dir.path() / "layer.json").string();
  REQUIRE(sp_plan("simulate --model llama-3.1-8b --seq 8K --topology dgx-h100 --gpus 8 --tp 2 "
                  "--ulysses 4 --scope layer -o " +
                  layer)
              .code == 0);
  const Json compared = answered(sp_plan("compare --json " + layer + " " + layer));
  std::set<std::string> names;
  for (const Json& row : compared.at("seconds")) {
    names.insert(row.at("name").get<std::string>());
    CHECK(row.at("a_s") == row.at("b_s"));
  }
  for (const char* name : {"step", "fwd", "bwd", "attention", "gemm", "exposed_comm"}) {
    CHECK(names.contains(name));
  }
  CHECK_THAT(sp_plan("report " + layer).out, ContainsSubstring("One layer on the rank that ends"));
}

TEST_CASE("compare refuses times that are none, and ops that are there twice") {
  const TempDir dir;
  REQUIRE(sp_plan("run --heads 2 --head-dim 8 --seq 64 --dtype fp32 --ring 2 --iters 1 --quiet "
                  "-o run.json --trace trace.json",
                  {.folder = dir.path()})
              .code == 0);
  const auto refused = [&](const std::string& file, const std::string& message, auto change) {
    Json wrong = spp::read_json(dir.path() / file);
    change(wrong);
    (void)dir.write("wrong.json", wrong.dump());
    check_refused(sp_plan("compare " + file + " wrong.json", {.folder = dir.path()}), 2,
                  "wrong.json: " + message);
  };
  refused("run.json", "measured.step_s: \"x\" is not a number",
          [](Json& run) { run["measured"]["step_s"] = "x"; });
  refused("run.json", "format_version: version '2.0' is not understood",
          [](Json& run) { run["format_version"] = "2.0"; });
  refused("run.json", "measured.step_s: -1 s is less than no time",
          [](Json& run) { run["measured"]["step_s"] = -1; });
  const auto first_op = [](Json& trace) -> Json& {
    Json& events = trace["traceEvents"];
    return *std::ranges::find_if(events, [](const Json& e) { return e["ph"] == "X"; });
  };
  refused("trace.json", "traceEvents[", [&](Json& trace) { first_op(trace)["dur"] = -1; });
  refused("trace.json", "traceEvents[", [&](Json& trace) {
    const Json again = first_op(trace);
    trace["traceEvents"].push_back(again);
  });
}

TEST_CASE("a trace ends when its document says") {
  const TempDir dir;
  const std::string trace = (dir.path() / "trace.json").string();
  const Json simulation =
      answered(sp_plan("simulate --json --ring 8 --trace " + trace + " " + work));
  const double step = simulation.at("result").at("predicted").at("step_s").get<double>();
  const Json compared = answered(sp_plan("compare --json " + trace + " " + trace));
  for (const Json& row : compared.at("seconds")) {
    if (row.at("name") == "step") {
      CHECK(row.at("a_s").get<double>() == Catch::Approx(step).epsilon(1e-6));
    }
  }
}
