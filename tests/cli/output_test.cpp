// Where results go, and what they look like.
#include "base/json.hpp"
#include "tests/cli/program.hpp"
#include "tests/cli/refused.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::read_text;
using spp::test::Result;
using spp::test::sp_plan;
using spp::test::TempDir;

namespace {

const std::string small = "--heads 8 --kv-heads 4 --seq 8K --topology dgx-h100";

Json json_of(const Result& r) {
  INFO(r.err);
  REQUIRE(r.code == 0);
  return spp::parse_json(r.out, "stdout");
}

}  // namespace

TEST_CASE("stdout is one JSON document when it is not a terminal, and stderr is silent") {
  const Result r = sp_plan("plan " + small);
  const Json doc = json_of(r);
  CHECK(doc["format"] == "sp-plan/plan");
  CHECK(doc["format_version"] == "1.0");
  CHECK((r.err.empty() || r.err.starts_with("sp-plan: searching, ")));  // longer than a second
}

TEST_CASE("stdout is a table on a terminal, JSON with --json") {
  const Result table = sp_plan("plan " + small, {.environment = {}, .terminal = true});
  CHECK(table.code == 0);
  CHECK_THAT(table.out, ContainsSubstring("Recommended: "));
  CHECK_THAT(table.out, ContainsSubstring("\x1b[1m"));
  const Result json = sp_plan("plan --json " + small, {.environment = {}, .terminal = true});
  CHECK(json.out.starts_with("{"));
  CHECK_THAT(json.out, !ContainsSubstring("\x1b"));
}

TEST_CASE("a profile is a machine: plan, simulate and verify work on it") {
  const std::string work =
      " --profile tests/support/data/cpu-2x2.json --heads 8 --kv-heads 8 --head-dim 64 --seq 4K "
      "--dtype fp32 --gpus 4";
  const Json planned = json_of(sp_plan("plan" + work));
  CHECK(planned["request"]["profile"] == "tests/support/data/cpu-2x2.json");
  CHECK(planned["request"]["nodes"] == 2);
  CHECK(planned["best"]["predicted"]["step_s"] > 0);
  bool listed = false;
  for (const Json& assumption : planned["assumptions"]) {
    listed = listed || (assumption["what"] == "profile" &&
                        assumption["source"] == "tests/support/data/cpu-2x2.json" &&
                        assumption["value"] == "cpu-2x2 of 2025-01-31, measured on cpu-2x2");
  }
  CHECK(listed);
  const Json simulated = json_of(sp_plan("simulate --ulysses 2 --ring 2" + work));
  CHECK(simulated["result"]["predicted"]["step_s"] >= planned["best"]["predicted"]["step_s"]);
  CHECK(json_of(sp_plan("verify --ulysses 2 --ring 2" + work))["proven"] == true);
  // Without --gpus: as many nodes as were measured. A plan's document brings its profile along.
  const TempDir dir;
  const std::string file = dir.write("plan.json", planned.dump()).string();
  CHECK(json_of(sp_plan("simulate --plan " + file))["request"]["profile"] ==
        "tests/support/data/cpu-2x2.json");
}

TEST_CASE("a profile calibrates a machine of the same GPU, and says whose it is") {
  const auto part = [](const std::string& file) { return spp::read_json("topologies/" + file); };
  Json machine = part("machines/dgx-h100.json");
  machine["name"] = "my-dgx";
  machine["gpu"] = part("gpus/h100-80g-sxm.json");
  machine["gpu"]["generation"] = part("generations/hopper.json");
  machine["intra"]["transport"] = part("transports/nvlink4.json");
  machine["inter"]["transport"] = part("transports/ib.json");
  Json profile = spp::read_json("tests/support/data/cpu-2x2.json");
  profile["machine"] = machine;
  profile.erase("attention");
  const TempDir dir;
  const std::string measured = dir.write("profile.json", profile.dump()).string();
  const Result r = sp_plan("plan " + small + " --profile " + measured);
  // The constants are the same ones, so the answer is.
  CHECK(json_of(r)["best"] == json_of(sp_plan("plan " + small))["best"]);
  CHECK_THAT(r.err, Catch::Matchers::StartsWith(
                        "sp-plan: warning: --profile 'cpu-2x2' was measured on my-dgx, not on "
                        "dgx-h100\n"));  // on a slow machine progress follows
}

TEST_CASE("NO_COLOR takes the colours away, when it is not empty") {
  const auto colours = [](const std::string& value) {
    const Result r =
        sp_plan("topology list", {.environment = {{"NO_COLOR", value}}, .terminal = true});
    return r.out.find('\x1b') != std::string::npos;
  };
  CHECK_FALSE(colours("1"));
  CHECK(colours(""));
}

TEST_CASE("a table has at most 100 characters a line and is the same with --table in a pipe") {
  const Result r = sp_plan("plan --table " + small);
  CHECK(r.code == 0);
  CHECK_THAT(r.out, ContainsSubstring("Assumed"));
  std::size_t begin = 0;
  while (begin < r.out.size()) {
    const std::size_t end = r.out.find('\n', begin);
    const std::string line = r.out.substr(begin, end - begin);
    const auto characters = std::count_if(line.begin(), line.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    });
    INFO(line);
    CHECK(characters <= 100);
    begin = end + 1;
  }
}

TEST_CASE(
    "with -o a command writes the document, leaves no temporary file, and stdout still has the "
    "table") {
  const TempDir dir;
  const auto file = dir.write("plan.json", "old");
  const Result r = sp_plan("plan -o " + file.string() + " " + small);
  CHECK(r.code == 0);
  CHECK_THAT(r.out, ContainsSubstring("Recommended: "));
  CHECK(spp::read_json(file)["format"] == "sp-plan/plan");
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("with -o a command that fails leaves the old file") {
  const TempDir dir;
  const auto file = dir.write("plan.json", "old");
  CHECK(sp_plan("plan --seq 1 -o " + file.string()).code == 2);
  CHECK(read_text(file) == "old");
}

TEST_CASE("with -o into what is not a regular file writes in place") {
  const Result r = sp_plan("plan -o /dev/null " + small);
  CHECK(r.code == 0);
  CHECK_FALSE(std::filesystem::is_regular_file("/dev/null"));
}

TEST_CASE("help and version go to stdout") {
  for (const std::string line :
       {"--help", "help", "help plan", "plan --help", "simulate -h", "verify --help",
        "topology --help", "model --help", "completion --help", "man --help"}) {
    INFO(line);
    const Result r = sp_plan(line);
    CHECK(r.code == 0);
    CHECK(r.err.empty());
    CHECK_THAT(r.out, ContainsSubstring("sp-plan"));
  }
  const Result version = sp_plan("--version");
  CHECK(version.code == 0);
  CHECK_THAT(version.out, ContainsSubstring("commit"));
  CHECK_THAT(version.out, ContainsSubstring("back ends"));
}

TEST_CASE("every command's help has examples, and man page and completions know every option") {
  const std::string help =
      sp_plan("plan --help").out + sp_plan("simulate --help").out + sp_plan("verify --help").out;
  CHECK_THAT(help, ContainsSubstring("Examples"));
  const std::string man = sp_plan("man").out;
  const std::string bash = sp_plan("completion bash").out;
  const std::string zsh = sp_plan("completion zsh").out;
  const std::string fish = sp_plan("completion fish").out;
  int options = 0;
  for (std::size_t at = help.find("  --"); at != std::string::npos;
       at = help.find("  --", at + 1)) {
    const std::size_t begin = at + 4;
    const std::string name = help.substr(begin, help.find_first_of(" \n", begin) - begin);
    INFO(name);
    ++options;
    CHECK_THAT(bash, ContainsSubstring("--" + name));
    CHECK_THAT(zsh, ContainsSubstring("--" + name + "["));
    CHECK_THAT(fish, ContainsSubstring("-l " + name + " "));
    std::string roff = name;
    for (std::size_t dash = 0; (dash = roff.find('-', dash)) != std::string::npos; dash += 2) {
      roff.insert(dash, "\\");
    }
    CHECK_THAT(man, ContainsSubstring("\\-\\-" + roff));
  }
  CHECK(options > 80);
}

TEST_CASE("plan recommends the first of its candidates and names what was assumed") {
  const Json doc = json_of(sp_plan("plan --top 3 " + small));
  CHECK(doc["best"] == doc["candidates"][0]);
  CHECK(doc["candidates"].size() == 3);
  const auto assumed = [&](const std::string& what) {
    return std::any_of(doc["assumptions"].begin(), doc["assumptions"].end(),
                       [&](const Json& a) { return a["what"] == what; });
  };
  for (const char* what : {"batch", "dtype", "mask", "head_dim", "phase", "gpus", "memory",
                           "memory.usable", "stack"}) {
    INFO(what);
    CHECK(assumed(what));
  }
  CHECK_FALSE(assumed("kv_heads"));
}

TEST_CASE("what a plan sends along its axes adds up to what it sends by kind") {
  for (const std::string& line :
       {std::string("plan --model mixtral-8x7b --seq 32K --topology dgx-h100 --nodes 2 --top 1"),
        "simulate --ulysses 4 --ring 2 " + small}) {
    INFO(line);
    const Json doc = json_of(sp_plan(line));
    const Json& c = doc.contains("result") ? doc["result"] : doc["best"];
    Json sums = Json::object();
    for (const Json& axis : doc["traffic"]["axes"]) {
      for (const auto& [kind, bytes] : axis["bytes_per_rank"].items()) {
        sums[kind] = sums.value(kind, std::int64_t{0}) + bytes.get<std::int64_t>();
      }
    }
    CHECK(sums == c["predicted"]["comm_bytes_per_rank"]);
    CHECK(doc["machine"]["name"] == "dgx-h100");
    CHECK(doc["traffic"]["links"][0]["busy_s"].get<double>() > 0);
  }
}

TEST_CASE("a plan of 1,024 GPUs is a document that can be read") {
  const std::string gpus = " --topology dgx-h100 --nodes 128 --budget 1";
  const Result r = sp_plan("plan --model llama-3.1-405b --seq 128K" + gpus);
  const Json doc = json_of(r);
  CHECK(r.out.size() < 100'000);
  REQUIRE(doc["candidates"].size() == 5);
  CHECK(doc["candidates"][0]["predicted"] == doc["best"]["predicted"]);
  const auto ranks = [](const Json& plan) {
    std::size_t count = 0;
    for (const Json& group : plan["groups"]["ulysses"]) {
      count += group.size();
    }
    return count;
  };
  CHECK(ranks(doc["best"]["plan"]) == 1024);
  CHECK(ranks(doc["candidates"][0]["plan"]) == 0);
  CHECK(ranks(doc["candidates"][1]["plan"]) == 0);
  // Of hundreds of rejected plans some of each rule, and how many more there are.
  const Result experts =
      sp_plan("plan --model deepseek-v3 --seq 32K --global-batch 256 --framework megatron" + gpus);
  const Json many = json_of(experts);
  CHECK(experts.out.size() < 100'000);
  CHECK(many["rejected_more"].size() > 0);
  CHECK(many["rejected"].size() <= 128);
  // Of fewer GPUs every candidate has its groups.
  const Json few = json_of(sp_plan("plan --top 2 " + small));
  CHECK(ranks(few["candidates"][1]["plan"]) == 8);
}

TEST_CASE("a training step's trace has its stages and micro-batches, and can be drawn") {
  const TempDir dir;
  const std::string file = (dir.path() / "trace.json").string();
  const Json doc = json_of(sp_plan(
      "simulate --model llama-3.1-8b --seq 8K --topology dgx-h100 --tp 2 --pp 4 --global-batch 8 "
      "--recompute full --trace " +
      file));
  const Json trace = spp::read_json(file);
  double end = 0;
  std::set<int> stages;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
      stages.insert(event["pid"].get<int>());
    }
  }
  CHECK(end * 1e-6 == Approx(doc["result"]["predicted"]["step_s"].get<double>()).epsilon(1e-6));
  CHECK(stages.size() == 4);
  const std::string page = (dir.path() / "page.html").string();
  CHECK(sp_plan("report " + file + " -o " + page).code == 0);
  CHECK_THAT(read_text(page), ContainsSubstring("Three lanes a stage of the pipeline"));
  check_refused(sp_plan("compare " + file + " " + file), 2,
                "'forward 0' is no op of an attention call");
  check_refused(sp_plan("simulate --model llama-3.1-8b --seq 8K --topology dgx-h100 --pp 8 "
                        "--global-batch 65536 --trace " +
                        file),
                2, "--trace: 65,536 micro-batches in 8 virtual stages are too many");
}

TEST_CASE("what is given is fixed") {
  const Json doc = json_of(sp_plan("plan --ulysses 4 --layout striped " + small));
  for (const Json& c : doc["candidates"]) {
    CHECK(c["plan"]["ulysses"] == 4);
    CHECK(c["plan"]["ring"] == 2);
    CHECK(c["plan"]["layout"] == "striped");
  }
}

TEST_CASE("a number of GPUs takes as many nodes as it needs, and says so") {
  const Json doc = json_of(sp_plan("plan --gpus 16 --strategy zigzag-ring " + small));
  CHECK(doc["request"]["nodes"] == 2);
  CHECK(doc["best"]["plan"]["ring"] == 16);
}

TEST_CASE("a plan's document is enough for simulate and verify") {
  const TempDir dir;
  const std::string file = (dir.path() / "plan.json").string();
  CHECK(sp_plan("plan " + small + " -o " + file).code == 0);
  const Json plan = spp::read_json(file);
  const Json simulated = json_of(sp_plan("simulate --plan " + file));
  CHECK(simulated["result"]["plan"] == plan["best"]["plan"]);
  CHECK(simulated["result"]["predicted"]["step_s"] == plan["best"]["predicted"]["step_s"]);
  CHECK(json_of(sp_plan("verify --plan " + file))["proven"] == true);
}

TEST_CASE("a step's plan comes back from its document as it was, and its parts add up") {
  const TempDir dir;
  const std::string file = (dir.path() / "step.json").string();
  CHECK(sp_plan("plan --model llama-3.1-8b --seq 32K --topology dgx-h100 --nodes 2 --tp 2 --pp 2 "
                "--global-batch 8 -o " +
                file)
            .code == 0);
  const Json plan = spp::read_json(file);
  const Json& best = plan["best"];
  CHECK(best["plan"]["tp"] == 2);
  CHECK(best["plan"]["pp"] == 2);
  CHECK(best["plan"]["groups"]["tp"].size() == 8);
  CHECK(best["plan"]["micro_batch"].get<int>() * best["plan"]["micro_batches"].get<int>() *
            best["plan"]["dp"].get<int>() ==
        8);
  CHECK(best["predicted"]["memory_by_stage"].size() == 2);
  double sum = 0;
  for (const auto& part : best["predicted"]["parts_s"]) {
    sum += part.get<double>();
  }
  CHECK(sum == Catch::Approx(best["predicted"]["step_s"].get<double>()));
  const Json simulated = json_of(sp_plan("simulate --plan " + file));
  CHECK(simulated["result"]["plan"] == best["plan"]);
  CHECK(simulated["result"]["predicted"] == best["predicted"]);
  CHECK(json_of(sp_plan("verify --plan " + file))["proven"] == true);
}

TEST_CASE("a dumped schedule is proven again, and a spoiled one is refuted with 4") {
  const TempDir dir;
  const std::string file = (dir.path() / "schedule.txt").string();
  const std::string work = "--heads 4 --seq 64 --topology dgx-h100 --gpus 4 --ulysses 2 --ring 2";
  CHECK(sp_plan("simulate " + work + " --dump-schedule " + file).code == 0);
  const Json proof = json_of(sp_plan("verify --schedule " + file));
  CHECK(proof["proven"] == true);
  REQUIRE(proof["schedules"].size() == 2);
  CHECK(proof["schedules"][1]["phase"] == "bwd");

  std::string text = read_text(file);
  const std::size_t line = text.find("    compute: merge ");
  REQUIRE(line != std::string::npos);
  text.erase(line, text.find('\n', line) + 1 - line);
  const auto spoiled = dir.write("spoiled.txt", text);
  const Result r = sp_plan("verify --schedule " + spoiled.string());
  CHECK(r.code == 4);
  CHECK_THAT(r.out, ContainsSubstring("\"proven\": false"));
  CHECK_THAT(r.err, ContainsSubstring("is refuted: "));
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
}

TEST_CASE("a schedule whose rows do not fit its buffers is refuted with 4") {
  const TempDir dir;
  std::string text = read_text(spp::test::source_path("tests/golden/ring_of_two.txt"));
  constexpr std::string_view part = "buffer part out scratch bf16 tokens=8 heads=";
  text[text.find(part) + part.size()] = '5';
  const Result r = sp_plan("verify --schedule " + dir.write("wide.txt", text).string());
  CHECK(r.code == 4);
  CHECK_THAT(r.err, ContainsSubstring("'part' has 5 heads a row, not the 4 that it gets"));
}

TEST_CASE("a trace has an event for each op of each rank") {
  const TempDir dir;
  const std::string file = (dir.path() / "trace.json").string();
  CHECK(sp_plan("simulate " + small + " --ring 8 --trace " + file).code == 0);
  const Json trace = spp::read_json(file);
  const auto ops = std::count_if(trace["traceEvents"].begin(), trace["traceEvents"].end(),
                                 [](const Json& e) { return e["ph"] == "X"; });
  CHECK(ops > 64);  // eight or more on each of eight ranks
}

TEST_CASE("verify prints what it proved") {
  const Result r = sp_plan("verify --heads 4 --kv-heads 2 --seq 64 --ulysses 2 --ring 2 --table");
  CHECK(r.code == 0);
  CHECK(r.out == read_text(spp::test::source_path("tests/cli/golden/verify_usp.txt")));
}

TEST_CASE("an imported model is a model") {
  const TempDir dir;
  const auto config = dir.write(
      "config.json", R"({"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 1000})");
  const std::string file = (dir.path() / "tiny.json").string();
  CHECK(sp_plan("model import " + config.string() + " -o " + file).code == 0);
  const Json card = json_of(sp_plan("model show " + file));
  CHECK(card["q_heads"] == 4);
  CHECK(card["parameters"] == json_of(sp_plan("model show " + config.string()))["parameters"]);
}

TEST_CASE("a hybrid model is imported with weights, kinds and assumptions") {
  const TempDir dir;
  const auto config = dir.write("config.json", R"({"model_type": "qwen3_5", "text_config": {
    "model_type": "qwen3_5_text", "hidden_size": 256, "num_attention_heads": 4, "head_dim": 64,
    "num_key_value_heads": 2, "intermediate_size": 512, "num_hidden_layers": 8, "vocab_size": 1000,
    "full_attention_interval": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 32, "linear_value_head_dim": 32}, "tie_word_embeddings": false})");
  const std::string file = (dir.path() / "hybrid.json").string();
  const Result imported = sp_plan("model import " + config.string() + " --table -o " + file);
  CHECK(imported.code == 0);
  CHECK_THAT(imported.out, ContainsSubstring("\n  6 linear attention  dense MLP, "));
  CHECK_THAT(imported.out, ContainsSubstring("\n  2 full attention    GQA, causal, dense MLP, "));
  CHECK_THAT(imported.out,
             ContainsSubstring("assumed: linear_conv_kernel_dim 4 (not in the config; default of "
                               "transformers' Qwen3_5TextConfig)"));
  // Linear: 256*(2*64 + 2*128) + 256*2*4 + 256*4 + 2*4 + 32 + 128*256 = 134,184; full: q with its
  // gate 256*2*256, K and V 2 * 256*128, o 256*256, norms 2*64: 262,272; MLP 3*256*512, norms 512.
  // 6 * 134,184 + 2 * 262,272 + 8 * 393,728 + 2 * 1000*256 + 256.
  const Json card = json_of(sp_plan("model show " + file));
  CHECK(card["parameters"] == 4'991'728);
  CHECK(card["available"] == true);
  const std::string work = " --model " + file + " --seq 4K --topology dgx-h100";
  const Json plan = json_of(sp_plan("plan --json" + work));
  CHECK(plan["candidates"].size() > 1);
  const Result layer = sp_plan("simulate --scope layer --ulysses 2 --gpus 2" + work);
  check_refused(layer, 2, "");
  CHECK_THAT(layer.err, ContainsSubstring("short convolution") || ContainsSubstring("linear"));
  const Result documents = sp_plan("plan --documents 2K,2K" + work);
  check_refused(documents, 2, "linear attention");
  const Result exported = sp_plan("plan --framework megatron" + work);
  CHECK(exported.code == 3);
  CHECK_THAT(exported.out + exported.err, ContainsSubstring("has no layers of linear attention"));
}

TEST_CASE("sparse attention is planned over ranks that gather keys, and not executed") {
  const std::string work = " --model deepseek-v3.2 --seq 32K --topology dgx-h200 --nodes 4";
  const Json plan = json_of(sp_plan("plan --phase prefill --tp 1 --json" + work));
  CHECK(plan["best"]["plan"]["strategy"] == "all-gather");
  CHECK(plan["best"]["plan"]["ulysses"] == 1);
  CHECK(plan["best"]["predicted"]["mfu"] < 1);
  check_refused(sp_plan("simulate --strategy ring" + work), 2,
                "--strategy: sparse attention picks among all keys, which its sequence ranks "
                "gather; ring hands them on in parts");
  const std::string why =
      "--model: attention of deepseek-v3.2 meets keys that an indexer picks, which no schedule "
      "holds";
  check_refused(sp_plan("verify" + work), 2, why);
  check_refused(sp_plan("run --model deepseek-v3.2 --seq 1K --gpus 2"), 2, why);
  check_refused(sp_plan("simulate --phase prefill --dump-schedule out.txt" + work), 2, why);
  check_refused(sp_plan("plan --phase fwd" + work), 2, "--phase: fwd of attention to keys");
  check_refused(sp_plan("plan --mask full" + work), 2, "--mask: full: deepseek-v3.2's indexer");
}

TEST_CASE("compressed attention on several residual streams is planned and not executed") {
  const std::string model = " --model deepseek-v4-flash --topology dgx-h200 --nodes 8";
  const Json train = json_of(sp_plan("plan --seq 32K --tp 1 --global-batch 32 --json" + model));
  CHECK(train["best"]["plan"]["strategy"] == "all-gather");
  CHECK(train["best"]["predicted"]["mfu"] < 1);
  CHECK_THAT(train["assumptions"].dump(),
             ContainsSubstring("in front") && ContainsSubstring("4 between layers"));
  const Json prefill = json_of(sp_plan("plan --seq 1M --phase prefill --tp 1 --json" + model));
  CHECK(prefill["best"]["predicted"]["fits"] == true);
  CHECK(prefill["best"]["predicted"]["parts_s"]["attention"] > 0);
  check_refused(
      sp_plan("verify --seq 32K" + model), 2,
      "--model: attention of deepseek-v4-flash meets keys that an indexer picks, which no "
      "schedule holds");
  const Result exported = sp_plan("plan --seq 32K --framework megatron" + model);
  CHECK(exported.code == 3);
  CHECK_THAT(exported.out + exported.err, ContainsSubstring("has no layers of sparse attention"));
}

TEST_CASE("GEMMs in eight bits are faster where the GPU has them, and refused where it has not") {
  const std::string work =
      "simulate --model llama-3.1-8b --seq 8K --dp 8 --recompute full --json --topology ";
  const auto seconds = [&](const std::string& machine) {
    const auto r = sp_plan(work + machine);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return spp::parse_json(r.out, "stdout")["result"]["predicted"]["step_s"].get<double>();
  };
  CHECK(seconds("dgx-h100 --gemm-format fp8") < 0.95 * seconds("dgx-h100"));
  const auto refused = sp_plan(work + "dgx-a100 --gemm-format fp8");
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("--gemm-format: a100-80g-sxm has no matrix units"));
  CHECK_THAT(sp_plan(work + "dgx-h100 --dtype fp32 --gemm-format fp8").err,
             ContainsSubstring("--gemm-format: fp8 of activations in fp32"));
  CHECK_THAT(sp_plan(work + "dgx-h100 --gemm-format mxfp8").err,
             ContainsSubstring("has no matrix units for mxfp8, but fp8, fp8-block"));
  CHECK(seconds("dgx-h100 --gemm-format fp8-block") < 0.95 * seconds("dgx-h100"));
}

TEST_CASE("a title says how far a window of a bare shape reaches") {
  CHECK_THAT(sp_plan("plan --heads 8 --seq 8K --mask window:1024 --topology dgx-h100 --table").out,
             ContainsSubstring("batch 1, window:1024, bf16"));
}
