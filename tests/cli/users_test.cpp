// What people ran into who tried the program for the first time: each was a dead end, or misled.
// One list of them, hence one file.
#include "base/file.hpp"
#include "base/json.hpp"
#include "tests/cli/refused.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using spp::Json;
using spp::test::check_refused;
using spp::test::Result;
using spp::test::sp_plan;
using spp::test::TempDir;

namespace {

const std::string llama = "--model llama-3.1-8b --topology dgx-h100 --budget 1 --quiet ";

Json document_of(const Result& r) {
  INFO(r.err);
  REQUIRE((r.code == 0 || r.code == 3));
  return spp::parse_json(r.out, "stdout");
}

/// The value of what was assumed about `what`; "" if nothing was.
std::string assumed(const Json& document, const std::string& what) {
  for (const Json& a : document["assumptions"]) {
    if (a["what"] == what) {
      return a["value"];
    }
  }
  return "";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// Characters of a line as it is seen, without what sets colours.
std::size_t seen_width(const std::string& line) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      i = line.find('m', i);
    } else if ((static_cast<unsigned char>(line[i]) & 0xC0U) != 0x80U && line[i] != '\r') {
      ++width;
    }
  }
  return width;
}

}  // namespace

// ---- the longest sequence, and inference
// ---------------------------------------------------------

TEST_CASE("a length of max is the longest sequence that fits, and says so") {
  const Json longest = document_of(sp_plan("plan --seq max --top 1 " + llama));
  const auto seq = longest["request"]["seq"].get<std::int64_t>();
  CHECK(longest["best"]["predicted"]["fits"] == true);
  CHECK_THAT(assumed(longest, "seq"), ContainsSubstring("the longest that fits"));
  CHECK(seq % 16 == 0);
  CHECK(sp_plan("plan --seq " + std::to_string(seq * 21 / 20) + " --top 1 " + llama).code == 3);
}

TEST_CASE("a length of max is one that fits where the search has no time to try all plans") {
  const std::string four = "--model llama-3.1-8b --topology dgx-h100 --nodes 4 --top 1 --quiet";
  const Json longest = document_of(sp_plan("plan --seq max " + four));
  CHECK(longest["best"]["simulated"] == true);
  CHECK(longest["best"]["predicted"]["fits"] == true);
  // What was found with no time at all was evaluated, too.
  const Json hasty = document_of(sp_plan("plan --seq 1M --budget 0.001 " + four));
  CHECK(hasty["best"]["simulated"] == true);
  CHECK(hasty["best"]["predicted"]["fits"] == true);
}

TEST_CASE("where no length fits, the machine that has one is named") {
  const Result r = sp_plan(
      "plan --model mixtral-8x7b --seq max --topology dgx-h100 --nodes 1 --offload none --quiet");
  CHECK(r.code == 3);
  CHECK_THAT(r.err, ContainsSubstring("what fits, with 2 nodes: sp-plan plan"));
  CHECK_THAT(r.err, ContainsSubstring("--seq max"));
}

TEST_CASE("a plan from a file costs what it did on the software that it was made for") {
  const TempDir dir;
  const std::string file = (dir.path() / "plan.json").string();
  REQUIRE(sp_plan("plan --seq 64K --framework megatron -o " + file + " " + llama).code == 0);
  const Json again = document_of(sp_plan("simulate --quiet --plan " + file));
  CHECK(again["request"]["stack"] == "megatron-te");
  CHECK(again["result"]["predicted"]["step_s"] ==
        spp::read_json(file)["best"]["predicted"]["step_s"]);
}

TEST_CASE("on 80 columns the names of plans are whole") {
  const Result r = sp_plan(
      "plan --model llama-3.1-70b --seq 128K --topology dgx-h100 --nodes 4 --global-batch 32 -q",
      {.terminal = true, .columns = 80});
  CHECK(r.code == 0);
  const std::string table = r.out.substr(0, r.out.find("Ulysses degree"));
  CHECK_THAT(table, ContainsSubstring("U8xR"));
  CHECK_THAT(table, !ContainsSubstring("…"));
}

TEST_CASE("a length of max of what never fits ends with 3, elsewhere it is refused by name") {
  const Result r = sp_plan("plan --model llama-3.1-405b --seq max --topology dgx-h100 --quiet");
  CHECK(r.code == 3);
  CHECK_THAT(r.err, ContainsSubstring("nothing fits"));
  check_refused(sp_plan("simulate --seq max --ulysses 8 --model llama-3.1-8b --topology dgx-h100"),
                2, "--seq: max: the longest that fits is searched by 'plan' alone");
  check_refused(sp_plan("plan --seq max --tp 3 " + llama), 2, "--tp: ");
}

TEST_CASE("a prompt behind cached keys is proven and planned, and is in the plan file") {
  const Json proof =
      document_of(sp_plan("verify --heads 8 --kv-heads 2 --seq 1K --cached 7K --ring 4 --strategy "
                          "pass-q-ring --phase fwd"));
  CHECK(proof["proven"] == true);
  const Json by_heads =
      document_of(sp_plan("verify --heads 8 --kv-heads 2 --seq 1K --cached 7K --ulysses 4 --ring 2 "
                          "--heads-policy replicate --phase fwd"));
  CHECK(by_heads["proven"] == true);
  const Json padded = document_of(
      sp_plan("verify --heads 8 --kv-heads 2 --seq 1K --cached 7001 --ring 4 --phase fwd"));
  CHECK(padded["proven"] == true);
  const Json layer =
      document_of(sp_plan("verify --model llama-3.1-8b --seq 1K --cached 7K --tp 2 "
                          "--ulysses 2 --ring 2 --phase prefill --scope layer"));
  CHECK(layer["proven"] == true);
  // How long the prompt may be does not depend on how long it is.
  const auto longest = [](const std::string& seq) {
    return document_of(sp_plan("simulate --model llama-3.1-8b --topology dgx-h100 --phase prefill "
                               "--cached 128K --strategy all-gather --ring 8 --layout contiguous "
                               "--seq " +
                               seq))
        .at("result")
        .at("predicted")
        .at("max_seq");
  };
  const Json most = longest("8K");
  CHECK(most > 1'500'000);
  CHECK(longest(most.dump()) == most);
  const std::string prompt = "--phase prefill --seq 2K " + llama;
  const Json alone = document_of(sp_plan("plan " + prompt));
  const Json behind = document_of(sp_plan("plan --cached 126K " + prompt));
  CHECK(behind["request"]["cached"] == 126 * 1024);
  CHECK(behind["best"]["predicted"]["step_s"] > alone["best"]["predicted"]["step_s"]);
  const auto memory = [](const Json& j) {
    return j["best"]["predicted"]["memory_bytes"]["activations"].get<double>();
  };
  CHECK(memory(behind) > memory(alone));
  // A few tokens of padding bar no plan.
  const std::string pcie =
      "plan --model gpt-oss-20b --topology 8xl20-pcie --phase prefill --seq 4K --cached ";
  const Json even = document_of(sp_plan(pcie + "1000"));
  const Json odd = document_of(sp_plan(pcie + "1001"));
  CHECK(even["best"]["name"] == odd["best"]["name"]);
  CHECK(odd["best"]["predicted"]["step_s"].get<double>() ==
        Approx(even["best"]["predicted"]["step_s"].get<double>()).epsilon(0.01));
  TempDir folder;
  spp::write_file(folder.path() / "plan.json", behind.dump());
  const Json again =
      document_of(sp_plan("simulate --plan " + (folder.path() / "plan.json").string()));
  CHECK(again["request"]["cached"] == 126 * 1024);
  CHECK(again["result"]["predicted"]["step_s"] == behind["best"]["predicted"]["step_s"]);
}

TEST_CASE("prompts pass the stages of a pipeline one behind the other") {
  const std::string work =
      "--model llama-3.1-70b --seq 8K --tp 1 --pp 8 --phase prefill --topology dgx-h100 --quiet ";
  const auto seconds = [](const Json& best) { return best["predicted"]["step_s"].get<double>(); };
  const double one = seconds(document_of(sp_plan("plan " + work))["best"]);
  const Json eight = document_of(sp_plan("plan --batch 8 " + work));
  CHECK(eight["best"]["plan"]["micro_batches"] == 8);
  CHECK(seconds(eight["best"]) > one * 14 / 8);
  CHECK(seconds(eight["best"]) < one * 17 / 8);  // 15 of 8 if stages were alike
  // The answer is simulated as it was planned.
  const TempDir folder;
  const std::string file = folder.write("plan.json", eight.dump()).string();
  const Json again = document_of(sp_plan("simulate --plan " + file));
  CHECK(again["request"]["batch"] == 8);
  CHECK(seconds(again["result"]) == Approx(seconds(eight["best"])));
  CHECK(again["result"]["predicted"]["memory_bytes"] == eight["best"]["predicted"]["memory_bytes"]);
  // Short ones fill what an engine takes at once, where one decides; else fewer may be faster.
  const std::string few =
      "plan --seq 1K --model llama-3.1-70b --pp 8 --tp 1 --phase prefill --topology dgx-h100 "
      "--quiet --batch 8 ";
  const Json filled = document_of(sp_plan(few + "--stack vllm"));
  CHECK(filled["best"]["plan"]["micro_batches"] == 1);
  const Json apart = document_of(sp_plan(few));
  CHECK(apart["best"]["plan"]["micro_batches"] > 1);
  CHECK(seconds(apart["best"]) < seconds(filled["best"]));
}

TEST_CASE("one prompt more makes no batch faster that passes stages") {
  double before = 0;
  for (const int batch : {1, 2, 3, 4, 5, 8, 9}) {
    const Json answer = document_of(
        sp_plan("plan --model llama-3.1-8b --topology dgx-h100 --gpus 4 --phase prefill --seq 4K "
                "--pp 4 --quiet --batch " +
                std::to_string(batch)));
    const double now = answer["best"]["predicted"]["step_s"].get<double>();
    CHECK(now > before);
    before = now;
  }
}

TEST_CASE(
    "a plan that needs a little more than the leanest is found where the fastest does not fit") {
  const auto best = [](const std::string& question) {
    return document_of(sp_plan("plan --quiet " + question))["best"]["predicted"]["step_s"]
        .get<double>();
  };
  for (const std::string question :
       {"--model llama-3.1-70b --seq 64512 --phase prefill --topology 8xrtx4090-pcie ",
        "--model gpt-oss-20b --seq 33000 --batch 2 --phase prefill --topology 8xrtx4090-pcie "
        "--gpus 4 --pp 2 "}) {
    CHECK(best(question) <= 1.001 * best(question + "--strategy all-gather --layout zigzag"));
  }
}

TEST_CASE("prompts pass stages that have a layer more than others") {
  const Json five = document_of(
      sp_plan("plan --model gpt-oss-120b --seq 8K --phase prefill --topology dgx-h100 --gpus 5"));
  CHECK(five["best"]["plan"]["pp"] == 5);  // of 36 layers
  // Of one prompt four stages wait while one works: the longest has 8 layers.
  const Json& predicted = five["best"]["predicted"];
  CHECK(predicted["parts_s"]["bubble"].get<double>() / predicted["step_s"].get<double>() ==
        Approx(28.0 / 36).margin(0.02));
  check_refused(sp_plan("plan --model llama-3.1-8b --seq 8K --phase prefill --topology dgx-h100 "
                        "--nodes 5 --pp 40"),
                2, "--pp: 32 layers do not divide into 40 stages (nearest: 32)");
}

TEST_CASE("servers cost as what they run") {
  const Json plan = document_of(
      sp_plan("plan --model llama-3.1-8b --seq 32K --topology dgx-a100 --framework sglang"));
  CHECK(plan["request"]["stack"] == "sglang");
  CHECK_THAT(plan["assumptions"].dump(), ContainsSubstring("FA2 varlen on a100-80g-sxm"));
}

TEST_CASE("servers cut each expert over their tensor ranks unless experts are dealt out") {
  const std::string work =
      "--model mixtral-8x7b --seq 8K --phase prefill --topology dgx-h100 --quiet --tp 8 ";
  const auto plan_of = [](const Json& document) { return document["best"]["plan"]; };
  const Json cut = document_of(sp_plan("plan --ep 1 --framework vllm --emit vllm " + work));
  CHECK(plan_of(cut)["etp"] == 8);
  CHECK_THAT(cut["export"].dump(), !ContainsSubstring("--enable-expert-parallel"));
  const Json dealt = document_of(sp_plan("plan --ep 8 --framework vllm --emit vllm " + work));
  CHECK(plan_of(dealt)["etp"] == 1);
  CHECK_THAT(dealt["export"].dump(), ContainsSubstring("--enable-expert-parallel"));
  const Json both = document_of(sp_plan("plan --ep 2 --framework sglang " + work));
  CHECK(plan_of(both)["etp"] == 4);
  // The same without a framework's rule, and as it was planned.
  const Json asked = document_of(sp_plan("plan --ep 1 --etp 8 " + work));
  CHECK(plan_of(asked)["etp"] == 8);
  const TempDir folder;
  const std::string file = folder.write("plan.json", asked.dump()).string();
  const Json again = document_of(sp_plan("simulate --plan " + file));
  CHECK(again["request"]["etp"] == 8);
  CHECK(again["result"]["predicted"]["step_s"].get<double>() ==
        Approx(asked["best"]["predicted"]["step_s"].get<double>()));
  check_refused(sp_plan("plan --model llama-3.1-8b --etp 2 --seq 8K --topology dgx-h100"), 2,
                "--etp: 2, and llama-3.1-8b has no experts");
  check_refused(sp_plan("plan --heads 8 --etp 2 --seq 8K --topology dgx-h100"), 2,
                "--etp: 2 around");
}

TEST_CASE("the optimizer's states go to the host before nothing is said to fit") {
  const Result r = sp_plan(
      "plan --model deepseek-v3 --seq 4K --topology dgx-h100 --nodes 16 --global-batch 128");
  CHECK(r.code == 3);
  CHECK_THAT(r.err,
             ContainsSubstring("what fits, with the optimizer's states in the host's memory") &&
                 ContainsSubstring("--offload optimizer"));
}

TEST_CASE("that tensor ranks stay within a node is said") {
  const std::string work = "plan --model llama-3.1-8b --seq 32K --topology dgx-h100 --nodes 2 ";
  CHECK_THAT(assumed(document_of(sp_plan(work)), "tp"), StartsWith("up to 8, the GPUs of a node"));
  CHECK(assumed(document_of(sp_plan(work + "--tp 2")), "tp").empty());
}

TEST_CASE("tokens may choose among experts unevenly") {
  const std::string step =
      "simulate --model qwen3-30b-a3b --seq 16K --topology dgx-h100 --nodes 2 --global-batch 64 "
      "--dp 16 --ep 8 --recompute full ";
  const auto predicted = [](const Json& document) {
    return document.at("result").at("predicted").at("step_s");
  };
  const Json even = document_of(sp_plan(step));
  CHECK(even["request"]["expert_imbalance"] == 1);
  CHECK_THAT(assumed(even, "expert_imbalance"), StartsWith("1: as many tokens"));
  const Json uneven = document_of(sp_plan(step + "--expert-imbalance 1.5"));
  CHECK(uneven["request"]["expert_imbalance"] == 1.5);
  CHECK(assumed(uneven, "expert_imbalance").empty());
  CHECK(predicted(uneven) > predicted(even));
  // Eight of 128 experts a token: one rank of eight, which has sixteen, may get them all.
  CHECK(predicted(document_of(sp_plan(step + "--expert-imbalance 8"))) > predicted(uneven));
  check_refused(sp_plan(step + "--expert-imbalance 8.1"), 2,
                "--expert-imbalance: 8.1 is out of range: 1, where all ranks get as many tokens, "
                "to 8");
  // As it was asked.
  const TempDir folder;
  const std::string file = folder.write("plan.json", uneven.dump()).string();
  CHECK(predicted(document_of(sp_plan("simulate --plan " + file))) == predicted(uneven));
  check_refused(sp_plan("simulate --model mixtral-8x7b --topology dgx-h100 --seq 8K --ulysses 8 "
                        "--ep 8 --zero 3 --expert-imbalance 5"),
                2, "--expert-imbalance: 5 is out of range");
  check_refused(sp_plan("simulate --model mixtral-8x7b --topology dgx-h100 --seq 8K --ulysses 8 "
                        "--ep 1 --zero 3 --expert-imbalance 2"),
                2, "--expert-imbalance: 2 with --ep 1: each rank has all experts");
  check_refused(sp_plan(step + "--expert-imbalance 0.5"), 2,
                "--expert-imbalance: 0.5 is out of range: 1");
  check_refused(sp_plan("plan --model llama-3.1-8b --seq 8K --topology dgx-h100 "
                        "--expert-imbalance 2"),
                2, "--expert-imbalance: llama-3.1-8b has no experts");
  check_refused(sp_plan("plan --heads 8 --seq 8K --topology dgx-h100 --expert-imbalance 2"), 2,
                "--expert-imbalance: of the experts of a whole step");
}

TEST_CASE("how tokens come to experts is a choice, the framework's where it has only one") {
  const std::string work =
      "--model qwen3-30b-a3b --seq 16K --phase prefill --topology dgx-h100 --quiet ";
  const auto plan_of = [](const Json& document) { return document["best"]["plan"]; };
  const Json engine =
      document_of(sp_plan("plan --tp 1 --ep 8 --framework vllm --emit vllm " + work));
  CHECK(plan_of(engine)["dispatcher"] == "all-gather");
  CHECK_THAT(engine["export"].dump(),
             ContainsSubstring("--all2all-backend allgather_reducescatter"));
  const Json asked = document_of(sp_plan("plan --tp 1 --ep 8 --dispatcher all-to-all " + work));
  CHECK(plan_of(asked)["dispatcher"] == "all-to-all");
  const Json apart = document_of(sp_plan("plan --tp 1 --ep 1 --etp 1 " + work));
  check_refused(sp_plan("plan --tp 1 --ep 1 --etp 1 --dispatcher all-to-all " + work), 2,
                "--dispatcher: all-to-all with --ep 1");
  CHECK(plan_of(apart)["dispatcher"].is_null());
  const Json none =
      document_of(sp_plan("plan --tp 1 --ep 8 --framework vllm --dispatcher all-to-all " + work));
  CHECK_THAT(none["rejected"].dump(),
             ContainsSubstring("vllm has no all-to-all dispatcher of its own"));
  // As it was planned.
  const TempDir folder;
  const std::string file = folder.write("plan.json", engine.dump()).string();
  const Json again = document_of(sp_plan("simulate --plan " + file));
  CHECK(again["request"]["dispatcher"] == "all-gather");
  CHECK(again["result"]["predicted"]["step_s"].get<double>() ==
        Approx(engine["best"]["predicted"]["step_s"].get<double>()));
  check_refused(
      sp_plan("plan --model llama-3.1-8b --dispatcher all-gather --seq 8K --topology dgx-h100"), 2,
      "--dispatcher: all-gather, and llama-3.1-8b has no experts");
  check_refused(sp_plan("plan --heads 8 --dispatcher all-gather --seq 8K --topology dgx-h100"), 2,
                "--dispatcher: of a whole step");
}

TEST_CASE("a phase of inference is what it means for a model, and is among the assumptions") {
  const Json prompt = document_of(sp_plan("plan --phase inference --seq 32K " + llama));
  CHECK(prompt["request"]["phase"] == "prefill");
  CHECK_THAT(assumed(prompt, "phase"), StartsWith("prefill: the prompt"));
  const Json bare =
      document_of(sp_plan("plan --phase inference --heads 8 --seq 8K --topology dgx-h100"));
  CHECK(bare["request"]["phase"] == "fwd");
  const std::string wan = "plan --model wan2.1-t2v-14b --seq 75600 --topology dgx-h100 --top 1 ";
  const Json step = document_of(sp_plan(wan + "--stack xdit"));
  CHECK(step["request"]["phase"] == "prefill");
  CHECK_THAT(step["assumptions"].dump(), ContainsSubstring("one denoising step"));
  CHECK_THAT(step["assumptions"].dump(), ContainsSubstring("it runs inference only"));
  CHECK_THAT(assumed(step, "left out"), ContainsSubstring("VAE"));
}

TEST_CASE("a guided denoising step has two branches, on the same GPUs or on two groups of them") {
  const std::string step = " --seq 75600 --topology dgx-h100 --phase inference ";
  const std::string wan = "plan --model wan2.1-t2v-14b" + step;
  const Json open = document_of(sp_plan(wan));
  CHECK(open["request"]["guidance"] == "yes");
  CHECK_THAT(assumed(open, "guidance"), ContainsSubstring("one after the other"));
  CHECK_THAT(open["best"]["name"].get<std::string>(), StartsWith("CFG2 "));
  CHECK(open["best"]["plan"]["cfg"] == 2);
  CHECK(open["best"]["plan"]["dp"] == 1);
  const double seconds = open["best"]["predicted"]["step_s"].get<double>();
  CHECK(open["denoising"]["steps"] == 50);
  CHECK(open["denoising"]["seconds"].get<double>() == Approx(50 * seconds));
  const Json same = document_of(sp_plan(wan + "--cfg 1"));
  CHECK(same["best"]["plan"]["micro_batches"] == 2);
  const Json once = document_of(sp_plan(wan + "--guidance no --denoising-steps 8"));
  CHECK(once["request"]["guidance"] == "no");
  CHECK(once["denoising"]["steps"] == 8);
  CHECK(once["best"]["predicted"]["step_s"].get<double>() < 0.6 * seconds);

  // A framework that has both branches on all GPUs is offered nothing else.
  const Json there = document_of(sp_plan(wan + "--framework wan"));
  CHECK_THAT(there["best"]["name"].get<std::string>(), !StartsWith("CFG2"));
  const Result xdit = sp_plan(wan + "--framework xdit --emit xdit --table");
  CHECK_THAT(xdit.out, ContainsSubstring("--use_cfg_parallel"));

  // The answer is simulated as it was planned.
  const spp::test::TempDir dir;
  const std::string file = dir.write("plan.json", open.dump()).string();
  const Json again = document_of(sp_plan("simulate --plan " + file));
  CHECK(again["result"]["predicted"]["step_s"].get<double>() == Approx(seconds));

  CHECK(document_of(sp_plan(wan + "--dp 1 --cfg 2"))["best"]["plan"]["cfg"] == 2);
  check_refused(sp_plan(wan + "--cfg 3"), 2, "--cfg: 3 is out of range (1 to 2)");
  check_refused(sp_plan(wan + "--dp 2"), 2, "--dp: beside guidance");
  check_refused(sp_plan(wan + "--guidance no --cfg 2"), 2, "--cfg: wan2.1-t2v-14b is not guided");
  check_refused(sp_plan("plan --model flux.1-dev --cfg 2" + step), 2,
                "--cfg: flux.1-dev is not guided, as far as is known: --guidance yes");
  check_refused(sp_plan("plan --seq 8K --cfg 2 " + llama), 2, "--cfg: of a denoising step");
}

// ---- a way out
// -----------------------------------------------------------------------------------

TEST_CASE("where nothing fits, the nearest command that has an answer is printed, and it has") {
  const std::string work = "plan --model llama-3.1-70b --seq 256K --topology dgx-h100 --nodes 4 ";
  for (const auto& [options, change] : std::vector<std::pair<std::string, std::string>>{
           {"--zero 1", "ZeRO 3"},
           {"--recompute selective", "full recomputation"},
           {"--zero 1 --recompute selective", "ZeRO 3 and full recomputation"}}) {
    INFO(options);
    const Result r = sp_plan(work + options + " --budget 1 --quiet");
    CHECK(r.code == 3);
    const Json document = document_of(r);
    CHECK(document["best"].is_null());
    CHECK(document["nearest"]["change"] == change);
    const auto command = document["nearest"]["command"].get<std::string>();
    CHECK_THAT(r.err, ContainsSubstring(command));
    const std::string program = "sp-plan ";
    REQUIRE(command.starts_with(program));
    CHECK(sp_plan(command.substr(program.size())).code == 0);
  }
  const Json more = document_of(
      sp_plan("plan --model llama-3.1-70b --seq 1M --topology dgx-h100 --budget 1 --quiet"));
  CHECK_THAT(more["nearest"]["command"].get<std::string>(), ContainsSubstring("--nodes "));
  CHECK(document_of(sp_plan("plan --seq 32K --top 1 " + llama))["nearest"].is_null());
}

TEST_CASE("names are found in any case, models with their organisation and ending") {
  const Json answer = document_of(
      sp_plan("plan --model meta-llama/Llama-3.1-70B-Instruct --seq 16K --topology DGX-H100 "
              "--nodes 4 --stack Megatron-TE --top 1 --budget 1 --quiet"));
  CHECK(answer["best"]["predicted"]["fits"] == true);
  CHECK(sp_plan("topology show DGX-H100").code == 0);
  check_refused(sp_plan("plan --strategy p2p --seq 8K " + llama), 2,
                "--strategy: 'p2p' is another's word for 'zigzag-ring'");
}

TEST_CASE("a prefill's plan says how many prompts pass its stages at once, and is simulated so") {
  const std::string asked = " --model qwen2.5-7b --topology dgx-h100 --seq 2K --phase prefill ";
  const Json plan = document_of(sp_plan("plan --batch 8 --pp 4" + asked));
  CHECK(plan["request"]["prompts"].is_null());
  CHECK(plan["best"]["plan"]["micro_batch"] == 1);  // not as many as fit into 8,192 tokens
  const spp::test::TempDir dir;
  const std::string file = dir.write("plan.json", plan.dump()).string();
  const Json again = document_of(sp_plan("simulate --plan " + file));
  CHECK(again["request"]["prompts"] == 1);
  CHECK(again["result"]["predicted"]["step_s"].get<double>() ==
        Approx(plan["best"]["predicted"]["step_s"].get<double>()));

  const Json two = document_of(sp_plan("plan --batch 8 --pp 4 --prompts 2" + asked));
  CHECK(two["best"]["plan"]["micro_batch"] == 2);
  check_refused(sp_plan("plan --batch 8 --prompts 3" + asked), 2,
                "--prompts: 3 at once, but they are to divide 8 (see --batch)");
  check_refused(sp_plan("plan --batch 8 --pp 1 --prompts 2" + asked), 2, "--pp is 1");
  check_refused(sp_plan("plan --model qwen2.5-7b --topology dgx-h100 --seq 2K --prompts 2"), 2,
                "--prompts: of a prefill");
}

TEST_CASE("a plan's file is read from any folder, with the files that it was asked with") {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() / "below");
  (void)dir.write("config.json",
                  R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14336, "num_hidden_layers": 32,
                "vocab_size": 128256, "max_position_embeddings": 131072})");
  REQUIRE(sp_plan("plan --model config.json --seq 16K --topology dgx-h100 --top 1 --budget 1 -o "
                  "plan.json --quiet",
                  {.folder = dir.path()})
              .code == 0);
  const Json seen = document_of(
      sp_plan("simulate --plan ../plan.json --quiet", {.folder = dir.path() / "below"}));
  CHECK_THAT(seen["request"]["model"].get<std::string>(), ContainsSubstring("config.json"));
  std::filesystem::remove(dir.path() / "config.json");
  check_refused(sp_plan("simulate --plan ../plan.json", {.folder = dir.path() / "below"}), 2,
                "../plan.json: was asked with the file 'config.json', which is neither here nor "
                "beside it");
}

TEST_CASE("fewer GPUs than nodes have are as many of each node where they divide") {
  const Json answer = document_of(sp_plan("plan --seq 8K --gpus 4 --nodes 4 --tp 1 " + llama));
  CHECK(answer["request"]["gpus"] == 4);
  CHECK(answer["request"]["nodes"] == 4);
  CHECK_THAT(assumed(answer, "placement"), StartsWith("1 of the 8 GPUs of each node"));
}

TEST_CASE("GPUs that divide among nodes fill them evenly") {
  const Json answer = document_of(sp_plan("plan --seq 8K --gpus 12 --nodes 2 " + llama));
  CHECK_THAT(assumed(answer, "placement"), StartsWith("6 of the 8 GPUs of each node"));
}

TEST_CASE("models all of whose layers see a window are planned") {
  const TempDir dir;
  const std::filesystem::path file = dir.path() / "config.json";
  spp::write_file(file.string(), R"({"model_type": "mistral", "hidden_size": 1024,
      "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
      "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 32768,
      "sliding_window": 4096, "tie_word_embeddings": false})");
  const std::string work = " --model " + file.string() + " --seq 16K --topology dgx-h100";
  const Json answer = document_of(sp_plan("plan --quiet --global-batch 8" + work));
  CHECK(answer["request"]["mask"] == "window:4096");
  // A window may reach back to cached keys.
  CHECK(sp_plan("simulate --heads 8 --seq 1K --cached 64K --phase fwd --mask window:4096 "
                "--gpus 1 --topology dgx-h100")
            .code == 0);
  check_refused(sp_plan("plan --mask window:2K" + work), 2, "--mask: window:2048: of a bare shape");
}

TEST_CASE("how many plans are shown changes neither the recommended one nor why it is") {
  const std::string work =
      "plan --model flux.1-dev --seq 4608 --phase inference --gpu h100-80g-sxm --gpus-per-node 4 ";
  const Json one = document_of(sp_plan(work + "--top 1"));
  const Json ten = document_of(sp_plan(work + "--top 10"));
  CHECK(one["best"]["name"] == ten["best"]["name"]);
  CHECK(one["best"]["why"] == ten["best"]["why"]);
  CHECK(one["ties"] == ten["ties"]);
}

TEST_CASE("what fits is near") {
  const auto nearest = [](const std::string& question) -> std::string {
    return document_of(sp_plan("plan --quiet " + question))["nearest"]["change"];
  };
  const std::string large =
      "--model llama-3.1-70b --seq 8K --topology dgx-h100 --nodes 2 --global-batch 64";
  CHECK(nearest(large) == "the optimizer's states in the host's memory");
  CHECK(nearest(large + " --offload none") == "3 nodes");
  CHECK(nearest("--model qwen3-32b --seq 256K --topology dgx-h200 --global-batch 4") ==
        "activations in the host's memory");
  CHECK(nearest("--model llama-3.1-8b --seq 64K --topology dgx-h100 --zero-group 3") ==
        "without --zero-group");
  CHECK(nearest("--heads 8 --seq 12 --ring 8 --gpus 8 --gpu h100-80g-sxm") == "16 tokens");
  CHECK(nearest("--model wan2.1-t2v-14b --seq 32760 --phase inference --gpu rtx4090-24g --gpus 1 "
                "--gpus-per-node 8") == "2 GPUs");
  CHECK(nearest("--model gpt-oss-120b --seq 8K --phase prefill --topology dgx-h100 --gpus 1") ==
        "3 GPUs");
  CHECK(nearest("--model llama-3.1-405b --seq 8K --phase prefill --topology dgx-h100") ==
        "weights in fp8");
  CHECK(nearest("--model llama-3.1-405b --seq 8K --phase prefill --topology dgx-a100") ==
        "2 nodes");  // whose GPUs multiply no fp8
  CHECK(nearest("--model llama-3.1-70b --seq 32K --topology dgx-h100 --nodes 3 --global-batch 64 "
                "--framework deepspeed") == "a global batch of 66");
}

TEST_CASE("where nothing fits, what was tried is named, no more, and --budget bounds that, too") {
  const Result alone =
      sp_plan("plan --quiet --model llama-3.1-70b --seq 64K --gpu rtx4090-24g --gpus-per-node 1");
  CHECK(alone.code == 3);
  CHECK_THAT(alone.err, ContainsSubstring("; of what saves memory and other lengths nothing was "
                                          "found that does\n"));
  const Result short_of_time = sp_plan(
      "plan --quiet --model deepseek-v3 --topology dgx-b200 --nodes 3 --seq 99999 --global-batch "
      "64 --recompute selective --budget 0.01");
  CHECK(short_of_time.code == 3);
  CHECK_THAT(short_of_time.err,
             ContainsSubstring("as far as was looked (a larger --budget looks further)"));
}

TEST_CASE("that fewer GPUs take less time is said, with the command") {
  const std::string line =
      "plan --quiet --seq 32K --model llama-3.1-8b --topology dgx-h100 --gpus ";
  const Json nine = document_of(sp_plan(line + "9"));
  const Json& fewer = nine["fewer_gpus"];
  REQUIRE(fewer.is_object());
  CHECK(fewer["change"] == "8 GPUs");
  CHECK(fewer["best"]["predicted"]["step_s"] < nine["best"]["predicted"]["step_s"]);
  CHECK_THAT(fewer["command"].get<std::string>(), ContainsSubstring("--gpus 8"));
  CHECK_THAT(sp_plan(line + "9 --table").out, ContainsSubstring("8 GPUs would take "));
  CHECK(document_of(sp_plan(line + "8"))["fewer_gpus"].is_null());
  // Six on each of two nodes of eight.
  const Json twelve = document_of(
      sp_plan("plan --quiet --heads 32 --kv-heads 8 --seq 16K --gpu a100-80g-sxm --inter "
              "ib:1x100Gb/s --gpus 12"));
  CHECK(twelve["fewer_gpus"]["change"] == "8 GPUs");
  // Nodes whose stages wait for one another.
  const Json nodes = document_of(
      sp_plan("plan --quiet --model hunyuanvideo --seq 32K --topology 8xl40-pcie --gpus 32 "
              "--phase inference"));
  CHECK(nodes["fewer_gpus"]["change"] == "8 GPUs");
}

TEST_CASE("all that can be offloaded is offloaded under one word") {
  const Result r = sp_plan("plan --offload all --global-batch 8 --seq 32K " + llama);
  REQUIRE(r.code == 0);
  CHECK(document_of(r)["request"]["offload"] == "all");
  CHECK(document_of(r)["best"]["plan"]["offload"] == "all");
}

TEST_CASE("the plan of least memory is told from others by memory") {
  const Json answer =
      document_of(sp_plan("plan --seq 32K --global-batch 16 --objective memory " + llama));
  CHECK_THAT(answer["best"]["why"].get<std::string>(),
             ContainsSubstring("less memory than") && ContainsSubstring("which needs"));
}

TEST_CASE("weights of a prefill lie in the format of its GEMMs") {
  const auto parameters = [](const std::string& format) -> double {
    const Json answer =
        document_of(sp_plan("simulate --model llama-3.1-70b --seq 8K --phase prefill --tp 8 "
                            "--topology dgx-h100 --quiet --gemm-format " +
                            format));
    return answer["result"]["predicted"]["memory_bytes"]["parameters"];
  };
  CHECK(parameters("fp8") < 0.53 * parameters("plain"));
}

TEST_CASE("one guided image is one, whichever command answers") {
  const Json answer =
      document_of(sp_plan("simulate --model cogvideox-5b --seq 17776 --phase inference "
                          "--gpu h20-96g-sxm --gpus 3 --ulysses 3 --quiet"));
  CHECK(answer["request"]["batch"] == 1);
}

TEST_CASE("what nobody asked for is not rejected") {
  const Json answer = document_of(sp_plan("plan --seq 32K " + llama));
  for (const Json& rejected : answer["rejected"]) {
    CHECK(rejected["rule"] != "strategy");
    CHECK(rejected["name"].is_string());
  }
}

TEST_CASE("a step of sp-plan's own is costed by its stack's words, as its schedule sends") {
  const std::string tied =
      "--model qwen2.5-1.5b --seq 4K --topology dgx-h100 --batch 1 --global-batch 4 --gpus 4 "
      "--dp 2 --pp 2 --zero 1 --json";
  const Json costed = document_of(sp_plan("simulate " + tied));
  const Json scheduled = document_of(sp_plan("simulate --scope step " + tied));
  CHECK(costed["result"]["predicted"]["comm_bytes_per_rank"]["all_reduce"] ==
        scheduled["phases"][0]["comm_bytes_per_rank"]["all_reduce"]);
}

TEST_CASE("stacks plan by the rules of their framework") {
  for (const char* stack : {"maxtext", "internevo", "nemo", "megatron-te"}) {
    INFO(stack);
    const Json answer =
        document_of(sp_plan(std::string("plan --seq 32K --top 3 --stack ") + stack + " " + llama));
    CHECK(answer["request"]["framework"].is_string());
    CHECK(answer["best"]["predicted"]["fits"] == true);
  }
}

TEST_CASE("compare sets attention's kernels against attention's kernels") {
  const TempDir dir;
  const std::string shape = "--heads 4 --head-dim 32 --seq 1K --dtype fp32 --ring 2 --quiet -o ";
  const std::string run = (dir.path() / "run.json").string();
  const std::string plan = (dir.path() / "plan.json").string();
  REQUIRE(sp_plan("run --iters 1 " + shape + run).code == 0);
  REQUIRE(sp_plan("simulate --gpu h100-80g-sxm --gpus-per-node 2 " + shape + plan).code == 0);
  const Json predicted = spp::read_json(plan)["result"]["predicted"];
  const Json rows = document_of(sp_plan("compare --json " + plan + " " + run))["seconds"];
  const auto row =
      std::ranges::find_if(rows, [](const Json& r) { return r["name"] == "attention"; });
  REQUIRE(row != rows.end());
  CHECK((*row)["a_s"] == predicted["parts_s"]["attention"]);
}

// ---- tables that people read
// ---------------------------------------------------------------------

TEST_CASE("candidates say what they have in common once, and how they differ from the first") {
  const Result r = sp_plan("plan --table --seq 64K " + llama);
  CHECK(r.code == 0);
  for (const char* text :
       {"All have ", "than 1", "most of that", "parts", "U Ulysses degree", "Parts: A attention"}) {
    CHECK_THAT(r.out, ContainsSubstring(text));
  }
  CHECK_THAT(r.out, !ContainsSubstring("\x1b["));
}

TEST_CASE("two rows of a table never look the same") {
  const Result r =
      sp_plan("plan --heads 32 --kv-heads 8 --seq 128K --topology dgx-h100 --nodes 2 --table");
  const std::regex row(R"(^\d+ +(.*?) +[\d.]+ ms +±)");  // up to the step's time
  std::set<std::string> seen;
  for (const std::string& line : lines_of(r.out)) {
    if (std::smatch found; std::regex_search(line, found, row)) {
      INFO(line);
      CHECK(seen.insert(found[1]).second);
    }
  }
  CHECK(seen.size() == 5);
  CHECK_THAT(r.out, ContainsSubstring("inner: the axis of neighbouring ranks"));
}

TEST_CASE("a table is as wide as its terminal, and cuts no address or caveat") {
  for (const int columns : {72, 100, 140}) {
    INFO(columns);
    const Result r =
        sp_plan("plan --seq 256K --nodes 2 " + llama, {.terminal = true, .columns = columns});
    CHECK(r.code == 0);
    std::size_t widest = 0;
    for (const std::string& line : lines_of(r.out)) {
      widest = std::max(widest, seen_width(line));
    }
    CHECK(widest <= static_cast<std::size_t>(columns));
    CHECK(widest > static_cast<std::size_t>(columns) - 25);
    CHECK_THAT(r.out, ContainsSubstring("made for"));  // 256K is beyond the model's positions
  }
}

TEST_CASE("a dumb terminal gets no colours, a locale of ASCII no other characters") {
  const std::string line = "plan --seq 32K --top 2 " + llama;
  const Result dumb = sp_plan(line, {.environment = {{"TERM", "dumb"}}, .terminal = true});
  CHECK_THAT(dumb.out, !ContainsSubstring("\x1b["));
  const Result ascii = sp_plan(line + "--table", {.environment = {{"LC_ALL", "C"}}});
  CHECK(std::ranges::all_of(ascii.out, [](char c) { return static_cast<unsigned char>(c) < 128; }));
  CHECK_THAT(sp_plan(line + "--table", {.environment = {{"LC_ALL", "C.UTF-8"}}}).out,
             ContainsSubstring("±"));
}

TEST_CASE(
    "plan --explain has all decisions, the parts of each candidate and all that is rejected") {
  const Result r = sp_plan("plan --table --explain --seq 64K --stack megatron-te " + llama);
  CHECK(r.code == 0);
  for (const char* text :
       {"Why this plan", "Where the time of a step goes", "Why the others lose",
        "Rejected by rule 'layout'", "GEMMs", "bound by", "context_parallel.py"}) {
    CHECK_THAT(r.out, ContainsSubstring(text));
  }
  const Json document = document_of(sp_plan("plan --seq 64K " + llama));
  CHECK(document["best"]["decisions"].size() > 1);
  CHECK(document["best"]["name"].is_string());
}

TEST_CASE("stack show says each source once, and what the stack runs") {
  const Result r = sp_plan("stack show xdit --table");
  CHECK(r.code == 0);
  CHECK_THAT(r.out, ContainsSubstring("attention kernels: ") &&
                        ContainsSubstring("by the rules of framework: xdit"));
  std::set<std::string> notes;
  for (const std::string& line : lines_of(r.out)) {
    if (line.starts_with("[")) {
      CHECK(notes.insert(line.substr(line.find(']'))).second);
    }
  }
  CHECK(notes.size() > 1);
}

TEST_CASE("text that is no document goes to -o, and is no JSON") {
  const TempDir dir;
  const std::string file = (dir.path() / "x.1").string();
  const Result r = sp_plan("man -o " + file);
  CHECK(r.code == 0);
  CHECK(r.out.empty());
  CHECK_THAT(spp::read_text_file(file, ""), StartsWith(".TH SP"));
  check_refused(sp_plan("completion bash --json"), 2, "--json: unknown option");
}

TEST_CASE("a result that cannot be written names no rank") {
  for (const std::string stdout_is : {"> /dev/full", ">&-"}) {
    INFO(stdout_is);
    const Result r =
        sp_plan(std::vector<std::string>{"-c", spp::test::build_path("cli/sp-plan").string() +
                                                   " model list " + stdout_is},
                {.program = "/bin/sh"});
    CHECK(r.code == 1);
    CHECK_THAT(r.err, ContainsSubstring("writing to stdout failed: "));
  }
}

TEST_CASE("listed documents that no plan takes are told so, not that they miss another length") {
  const std::string packed = "--heads 8 --head-dim 64 --seq 64K --documents 32K,32K";
  const Result r = sp_plan("plan --attention linear --topology dgx-h100 --quiet " + packed);
  CHECK(r.code == 3);
  CHECK_THAT(r.err, ContainsSubstring("no legal plan for 8 GPUs") &&
                        ContainsSubstring("a state does not tell packed documents apart"));
}

TEST_CASE("linear attention is planned with gathered states, and what is assumed is said") {
  const Result r = sp_plan(
      "plan --attention linear --heads 32 --head-dim 128 --seq 1M --topology dgx-h100 "
      "--quiet");
  const Json document = document_of(r);
  CHECK(document["best"]["plan"]["strategy"] == "lasp-2");
  CHECK(document["request"]["attention"] == "linear");
  CHECK_THAT(assumed(document, "linear attention"), ContainsSubstring("without decay"));
}
