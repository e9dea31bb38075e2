// sp-plan calibrate: what it refuses, and that an interrupted calibration goes on.
#include "base/json.hpp"
#include "tests/cli/refused.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::sp_plan;

namespace {

void check_refused(const std::string& options, const std::string& message) {
  INFO("sp-plan calibrate " << options);
  spp::test::check_refused(sp_plan("calibrate " + options), 2, message);
}

const std::string one_rank =
    "calibrate --comm inproc --gpus 1 --kernels reference --dtype fp32 --heads 2 --head-dim 8 "
    "--seq 64 ";
const std::string one_suite = one_rank + "--suite elementwise --quiet -o ";

/// What an interrupted start of `one_suite` leaves beside `file`, but of its samples one series
/// with a time that nothing takes.
Json interrupt(const std::filesystem::path& file) {
  const std::string partial = file.string() + ".partial";
  const std::string command = fmt::format(
      "{} {} -o {} --suite attention,elementwise --budget 30 & pid=$!; "
      "while test ! -s {} && kill -0 $pid; do sleep 0.02; done 2>&-; kill -9 $pid; wait $pid",
      spp::test::build_path("cli/sp-plan").string(), one_rank, file.string(), partial);
  (void)std::system(fmt::format("({}) >/dev/null 2>&1", command).c_str());
  REQUIRE(std::filesystem::exists(partial));
  Json json = spp::read_json(partial);
  json["suites"] = Json::object();
  json["suites"]["elementwise"] = {
      {"budget_s", 30},
      {"samples", Json::array({{{"suite", "elementwise"},
                                {"what", "op"},
                                {"scope", ""},
                                {"ranks", 1},
                                {"active", 1},
                                {"bytes", 0},
                                {"seconds", {0.125, 0.125, 0.125}}}})}};
  return json;
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
  check_refused(out + "--budget -1", "--budget: '-1' is not above 0");
  check_refused(out + "--kernels reference --heads 8 --kv-heads 3",
                "--kv-heads: 3 does not divide");
  check_refused(out + "--kernels reference --seq 4K,x", "--seq: ");
  check_refused(out + "--kernels reference --seq 4096,8192,16384,32768 --gpus 0", "--gpus: ");
  check_refused(out + "--kernels reference --seq 64 --mask window:100",
                "--mask: window:100 is longer than the sequence of 64 tokens");
  check_refused(out + "--kernels reference --gpus 1 --suite collectives,links",
                "--suite: links,collectives: one rank sends nothing");
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
                            " --heads 32 --kv-heads 8 --seq 64K --json --quiet");
  CHECK(plan.code == 0);
  CHECK(plan.err.empty());  // it is the very machine
}

TEST_CASE("an interrupted calibration keeps what was measured, and says so") {
  const spp::test::TempDir dir;
  const auto file = dir.path() / "profile.json";
  const auto left = dir.write("profile.json.partial", interrupt(file).dump());
  const auto r = sp_plan(one_suite + file.string() + " --budget 30");
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK_THAT(r.err,
             ContainsSubstring("goes on from " + left.string() + ", measured here until 20"));
  CHECK_THAT(r.err, ContainsSubstring(": elementwise\n"));
  const Json profile = spp::read_json(file);
  CHECK(profile.at("samples").size() == 1);
  CHECK(profile.at("machine").at("gpu").at("generation").at("launch").at("value") == 125000.0);
  CHECK_FALSE(std::filesystem::exists(left));
}

TEST_CASE("what an interrupted calibration left and cannot be read says what to do") {
  const spp::test::TempDir dir;
  (void)dir.write("profile.json.partial", "{");
  const auto r = sp_plan(one_suite + (dir.path() / "profile.json").string() + " --budget 30");
  CHECK(r.code == 2);
  CHECK_THAT(r.err,
             ContainsSubstring("profile.json.partial:") &&
                 ContainsSubstring("; it is what an interrupted calibration left: delete it, "
                                   "or name another -o"));
}

TEST_CASE("a calibration times a layer's kernels, and a layer and a step are predicted with them") {
  const spp::test::TempDir dir;
  const std::string file = (dir.path() / "profile.json").string();
  const auto r = sp_plan(one_rank + "--suite layer,elementwise --budget 0.5 --quiet -o " + file);
  INFO(r.err);
  REQUIRE(r.code == 0);
  const Json profile = spp::read_json(file);
  std::set<std::string> gemms;
  std::set<std::string> rows;
  for (const Json& series : profile.at("samples")) {
    CHECK(series.at("seconds").size() >= 7);
    CHECK((series.at("what") == "op" || series.at("pace").size() == series.at("seconds").size()));
    if (series.contains("gemm")) {
      gemms.insert(series.at("gemm").at("kind").get<std::string>());
    } else if (series.at("suite") == "layer") {
      rows.insert(series.at("what").get<std::string>());
    }
  }
  CHECK(gemms == std::set<std::string>{"forward", "input_gradient", "weight_gradient"});
  CHECK(rows.size() == 23);
  CHECK(profile.at("samples").size() < 3 * (rows.size() + gemms.size()));  // the budget is small
  const Json& layer = profile.at("machine").at("gpu").at("generation").at("layer");
  CHECK(layer.at("gemm").size() == gemms.size());
  CHECK(layer.at("rows").size() == rows.size());
  CHECK(layer.at("rows").contains("adam"));
  CHECK_FALSE(profile.contains("note"));  // nothing of a step is derived

  const std::string model = "tests/support/data/tiny-llama.json";
  const std::string work =
      fmt::format(" --model {} --seq 64 --dtype fp32 --profile {} --json", model, file);
  const auto simulated = sp_plan("simulate --scope layer" + work);
  INFO(simulated.err);
  REQUIRE(simulated.code == 0);
  CHECK_THAT(simulated.err,
             !ContainsSubstring("has no GEMMs") && !ContainsSubstring("has no kernels"));
  const Json answer = spp::parse_json(simulated.out, "stdout");
  CHECK(answer.at("predicted").at("parts_s").at("gemm_s").get<double>() > 0);
  CHECK(answer.at("predicted").at("parts_s").at("small_kernels_s").get<double>() > 0);
  // What was timed is what is predicted with.
  Json slower = profile;
  Json& kernels = slower["machine"]["gpu"]["generation"]["layer"];
  for (Json* list : {&kernels["gemm"], &kernels["rows"]}) {
    for (Json& kernel : *list) {
      kernel["startup"]["value"] = 1e5;  // us
    }
  }
  const std::string slow_file = dir.write("slower.json", slower.dump()).string();
  const auto slow = sp_plan(
      fmt::format("simulate --scope layer --model {} --seq 64 --dtype fp32 --profile {} --json",
                  model, slow_file));
  INFO(slow.err);
  REQUIRE(slow.code == 0);
  const Json parts = spp::parse_json(slow.out, "stdout").at("predicted").at("parts_s");
  CHECK(parts.at("gemm_s").get<double>() > 12 * 0.1);  // four matrices, three products of each
  CHECK(parts.at("small_kernels_s").get<double>() > 12 * 0.1);
  // As earlier versions left it, which timed layers alone.
  kernels["rows"].erase("word_sums");
  const std::string layers_alone = dir.write("layers.json", slower.dump()).string();
  const auto warned = sp_plan(
      fmt::format("simulate --scope step --model {} --seq 64 --dtype fp32 --profile {} --json",
                  model, layers_alone));
  CHECK(warned.code == 0);
  CHECK_THAT(warned.err, ContainsSubstring("layers.json: has no kernels of embedding, loss head, "
                                           "optimizer and experts: their times are not measured"));
  const auto planned = sp_plan("plan" + work);
  INFO(planned.err);
  CHECK(planned.code == 0);
}

TEST_CASE("a profile without a layer's kernels says what is assumed and how to measure it") {
  const spp::test::TempDir dir;
  const std::string file = (dir.path() / "profile.json").string();
  const auto r = sp_plan(one_suite + file + " --budget 0.2");
  INFO(r.err);
  REQUIRE(r.code == 0);
  const std::string model = "tests/support/data/tiny-llama.json";
  const auto simulated = sp_plan(fmt::format(
      "simulate --scope layer --model {} --seq 64 --dtype fp32 --profile {}", model, file));
  INFO(simulated.err);
  REQUIRE(simulated.code == 0);
  CHECK_THAT(simulated.err,
             ContainsSubstring("profile.json: has no GEMMs and row-wise kernels of layers: their "
                               "times are not measured but assumed ('sp-plan calibrate' measures "
                               "them)\n"));
}

TEST_CASE("a layer of tensor ranks is predicted on CPU ranks, which a step is not") {
  const std::string work =
      " --model tests/support/data/tiny-llama.json --seq 64 --dtype fp32 --tp 2 --ulysses 2 "
      "--profile tests/support/data/cpu-2x2.json --json";
  const auto layer = sp_plan("simulate --scope layer" + work);
  INFO(layer.err);
  REQUIRE(layer.code == 0);
  const Json answer = spp::parse_json(layer.out, "stdout");
  CHECK(answer.at("ranks") == 4);
  CHECK(answer.at("predicted").at("parts_s").at("gemm_s").get<double>() > 0);
  CHECK_THAT(sp_plan("simulate" + work).err,
             ContainsSubstring("nobody knows what a step with tensor parallelism"));
  // Op by op it is: nothing of it is the host's of a framework for GPUs.
  const auto step = sp_plan("simulate --scope step" + work);
  INFO(step.err);
  REQUIRE(step.code == 0);
  const Json parts = spp::parse_json(step.out, "stdout").at("predicted").at("parts_s");
  CHECK(parts.at("launch_s").get<double>() < 0.1 * parts.at("gemm_s").get<double>());
}

TEST_CASE("a step over CPU ranks has neither a framework's host nor a GPU's context") {
  const auto r = sp_plan(
      "simulate --model tests/support/data/tiny-llama.json --seq 64 --dtype fp32 --ulysses 2 "
      "--profile tests/support/data/cpu-2x2.json --gpus 2 --json");
  INFO(r.err);
  REQUIRE(r.code == 0);
  const Json answer = spp::parse_json(r.out, "stdout").at("result").at("predicted");
  CHECK(answer.at("parts_s").at("launch") == 0);
  CHECK(answer.at("memory_bytes").at("process") == 0);
}

TEST_CASE("a profile says what head dimension it was not measured for") {
  const std::string profile = " --profile tests/support/data/cpu-2x2.json --heads 8 --seq 4K ";
  CHECK_THAT(sp_plan("plan --json --head-dim 96 --dtype fp32" + profile).out,
             ContainsSubstring(" and not 96"));
}

TEST_CASE("an interrupted calibration keeps a layer's series") {
  const spp::test::TempDir dir;
  const auto file = dir.path() / "profile.json";
  Json left = interrupt(file);
  const Json gemm = {
      {"suite", "layer"},
      {"what", "gemm"},
      {"scope", ""},
      {"ranks", 1},
      {"active", 1},
      {"bytes", 768},
      {"seconds", {1e-4, 1e-4, 1e-4}},
      {"gemm", {{"kind", "forward"}, {"dtype", "fp32"}, {"m", 8}, {"n", 8}, {"k", 8}}}};
  left["suites"]["layer"] = {{"budget_s", 30}, {"samples", Json::array({gemm})}};
  (void)dir.write("profile.json.partial", left.dump());
  const auto r =
      sp_plan(one_rank + "--suite elementwise,layer --quiet --budget 30 -o " + file.string());
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK_THAT(r.err, ContainsSubstring(": elementwise, layer\n"));
  const Json profile = spp::read_json(file);
  REQUIRE(profile.at("samples").size() == 2);
  CHECK(profile.at("samples").at(1) == gemm);
}

TEST_CASE("a calibration that Ctrl-C ends says where it goes on, or that nothing is kept") {
  const spp::test::TempDir dir;
  const auto file = dir.path() / "profile.json";
  const auto interrupted = [&] {
    return sp_plan(one_rank + "--suite attention,elementwise --budget 30 -o " + file.string(),
                   {.environment = {}, .interrupt_at = "measuring "});
  };
  const auto at_once = interrupted();
  CHECK(at_once.code == 130);
  CHECK(at_once.out.empty());
  CHECK_THAT(at_once.err,
             ContainsSubstring("sp-plan: interrupted before a suite was done; nothing is kept\n"));
  CHECK_FALSE(std::filesystem::exists(file.string() + ".partial"));
  (void)dir.write("profile.json.partial", interrupt(file).dump());
  const auto resumed = interrupted();
  CHECK(resumed.code == 130);
  CHECK_THAT(resumed.err,
             ContainsSubstring("sp-plan: interrupted; suites that were done are kept in " +
                               file.string() + ".partial, and the same command goes on\n"));
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("a calibration of one suite leaves what another one has left") {
  const spp::test::TempDir dir;
  const auto file = dir.path() / "profile.json";
  Json before = interrupt(file);
  const Json attention = {{"budget_s", 30.0}, {"samples", Json::array()}};
  before["suites"]["attention"] = attention;
  const auto left = dir.write("profile.json.partial", before.dump());
  const auto r = sp_plan(one_suite + file.string() + " --budget 30");
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(spp::read_json(file).at("samples").size() == 1);
  CHECK(spp::read_json(left).at("suites") == Json{{"attention", attention}});
  const auto end = sp_plan(one_rank + "--suite attention --quiet --budget 30 -o " + file.string());
  CHECK(end.code == 0);
  CHECK_FALSE(std::filesystem::exists(left));
}

TEST_CASE("a profile of collectives alone is read, and says what is assumed") {
  const spp::test::TempDir dir;
  const std::string file = (dir.path() / "profile.json").string();
  const std::string shape = "--heads 2 --head-dim 8 --mask full --seq 64 --dtype fp32 ";
  const auto r = sp_plan("calibrate --comm inproc --gpus 2 --kernels reference " + shape +
                         "--suite collectives --budget 0.2 --quiet --table -o " + file);
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK_THAT(r.out, ContainsSubstring("--head-dim 8 --mask full --seq 64"));
  const Json links = spp::read_json(file).at("machine").at("intra");
  const Json& latency = links.at("transport").at("p2p").at(0).at("latency");
  CHECK(latency.at("assumed") == true);
  CHECK_THAT(latency.at("source").get<std::string>(),
             ContainsSubstring("as all_to_all, send_recv was not measured"));
  CHECK_FALSE(std::filesystem::exists(file + ".partial"));
  const auto planned = sp_plan("plan " + shape + "--json --profile " + file);
  INFO(planned.err);
  CHECK(planned.code == 0);
}

TEST_CASE("samples of another shape, host, CPU, placement, program or library are not used") {
  const spp::test::TempDir dir;
  const auto file = dir.path() / "profile.json";
  const Json ours = interrupt(file);
  const std::string place = ours.at("key").at("places").at(0).get<std::string>();
  CHECK_THAT(place, ContainsSubstring(", cores "));
  const auto with = [&](const std::string& key, const Json& value) {
    Json other = ours;
    other["key"][key] = value;
    return std::pair(key, other);
  };
  for (const auto& [key, other] :
       {with("heads", 4), with("places", {"other-host" + place.substr(place.find(','))}),
        with("places", {place + ",1023"}), with("program", "0.1.0 (000000000000)"),
        with("libraries", Json::object()), with("one_more", 1)}) {
    INFO(other.at("key").dump());
    (void)dir.write("profile.json.partial", other.dump());
    const bool to_the_end = key == "heads";  // once is enough: it takes seconds
    const std::string told = fmt::format("is of another calibration ({} differ)", key);
    const auto r =
        sp_plan(one_suite + file.string() + (to_the_end ? " --budget 0.2" : " --budget 30"),
                {.environment = {}, .interrupt_at = to_the_end ? "" : told});
    CHECK_THAT(r.err, ContainsSubstring(told));
    if (to_the_end) {
      REQUIRE(r.code == 0);
      CHECK(spp::read_json(file).at("samples").size() > 1);
    }
  }
}

TEST_CASE("samples of a suite that had less time are measured again, those that had more are not") {
  const spp::test::TempDir dir;
  const auto file = dir.path() / "profile.json";
  const Json left = interrupt(file);  // 30 s of elementwise
  const auto left_out = dir.write("profile.json.partial", left.dump());
  const auto again = sp_plan(one_suite + file.string() + " --budget 31",
                             {.environment = {}, .interrupt_at = "it is measured again"});
  CHECK_THAT(again.err, ContainsSubstring("elementwise had 30 s and has 31 s now"));
  (void)dir.write("profile.json.partial", left.dump());
  // Of 80 s the suite has a fifth beside attention, which is not measured again either.
  Json both = left;
  both["suites"]["attention"] = {{"budget_s", 64}, {"samples", Json::array()}};
  (void)dir.write("profile.json.partial", both.dump());
  const auto less =
      sp_plan(one_rank + "--suite attention,elementwise --quiet --budget 80 -o " + file.string());
  CHECK(less.code == 0);
  CHECK_THAT(less.err,
             ContainsSubstring("goes on from") && ContainsSubstring(": attention, elementwise\n"));
  CHECK_FALSE(std::filesystem::exists(left_out));
}

TEST_CASE("a stderr that cannot be written costs its text and nothing else") {
  const spp::test::TempDir dir;
  const auto file = dir.path() / "profile.json";
  const std::string line =
      one_rank + "--suite elementwise --budget 3 -o " + file.string();  // long enough for progress
  for (const std::string err : {"/dev/full", "closed"}) {
    INFO(err);
    const auto measured = sp_plan(line, {.environment = {}, .err_file = err});
    CHECK(measured.code == 0);
    CHECK(spp::read_json(file).at("format") == "sp-plan/profile");
    const auto wrong = sp_plan("plan --heads 0", {.environment = {}, .err_file = err});
    CHECK(wrong.code == 2);
  }
}
