// sp-plan run: what it warns of and refuses after all has run.
#include "base/json.hpp"
#include "tests/cli/program.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::Result;
using spp::test::sp_plan;
using spp::test::TempDir;

namespace {

const std::string tiny =
    "run --heads 4 --head-dim 16 --seq 256 --dtype fp32 --kernels reference --iters 1 --json "
    "--ulysses 2 --ring 2";

}  // namespace

TEST_CASE("kernels faster than the machine is said to be are refused after the result") {
  Json profile = spp::read_json("tests/support/data/cpu-2x2.json");
  profile["machine"]["gpu"]["matrix_rate"]["fp32"]["value"] = 1e-6;  // TFLOP/s
  profile.erase("attention");  // measured blocks would be faster than that, too
  profile.erase("pace");
  const TempDir dir;
  const std::string file = dir.write("profile.json", profile.dump()).string();
  const Result r = sp_plan(tiny + " --gpus 4 --profile " + file);
  CHECK(r.code == 4);
  CHECK_THAT(r.err, ContainsSubstring("above the 0.0 GFLOP/s that cpu-core is said to have: "
                                      "calibrate this machine"));
  CHECK(spp::parse_json(r.out, "stdout")["measured"]["step_s"] > 0);
}

TEST_CASE("a machine that is not as fast as when it was calibrated is told from its calibration") {
  Json profile = spp::read_json("tests/support/data/cpu-2x2.json");
  profile["pace"]["median_s"] = 1000;
  const auto run = [&](const std::string& kernels) {
    const TempDir dir;
    profile["pace"]["kernels"] = kernels;
    const std::string file = dir.write("profile.json", profile.dump()).string();
    const Result r = sp_plan(tiny + " --gpus 4 --profile " + file);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return spp::parse_json(r.out, "stdout");
  };
  const Json measured = run("reference");
  CHECK(measured["measured"]["pace_s"] > 0);
  CHECK(measured["predicted"]["pace_s"] == 1000);
  CHECK_THAT(measured["warnings"].dump(),
             ContainsSubstring("% faster than when it was calibrated"));

  const Json not_measured = run("others");  // kernels that do not run now
  CHECK(not_measured["measured"]["pace_s"].is_null());
  CHECK(not_measured["predicted"]["pace_s"].is_null());
  CHECK_THAT(not_measured["warnings"].dump(), !ContainsSubstring("calibrated"));
}

TEST_CASE("a profile of another CPU is warned about, and both are named") {
  Json profile = spp::read_json("tests/support/data/cpu-2x2.json");
  const auto warnings = [&] {
    const TempDir dir;
    const std::string file = dir.write("profile.json", profile.dump()).string();
    const Result r = sp_plan(tiny + " --gpus 4 --profile " + file);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return spp::parse_json(r.out, "stdout")["warnings"].dump();
  };
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string cpus(std::istreambuf_iterator<char>(cpuinfo), {});
  if (cpus.find("model name") != std::string::npos) {  // else a CPU without a name is not another
    CHECK_THAT(warnings(),
               ContainsSubstring("--profile 'cpu-2x2' was measured on an example core, not on "));
  }
  profile["environment"].erase("cpu");
  CHECK_THAT(warnings(), !ContainsSubstring("was measured"));
}

TEST_CASE("a profile of other transports or kernels is warned about") {
  Json profile = spp::read_json("tests/support/data/cpu-2x2.json");
  profile["environment"]["comm"] = "mpi";
  profile["environment"]["kernels"] = "onednn";
  const TempDir dir;
  const std::string file = dir.write("profile.json", profile.dump()).string();
  const Result r = sp_plan(tiny + " --gpus 4 --profile " + file);
  INFO(r.err);
  REQUIRE(r.code == 0);
  const std::string warnings = spp::parse_json(r.out, "stdout")["warnings"].dump();
  CHECK_THAT(warnings, ContainsSubstring("was measured over mpi, not over inproc: predictions"));
  CHECK_THAT(warnings, ContainsSubstring("with kernels of onednn, not with kernels of reference"));
}

TEST_CASE("a time far outside of the prediction's interval is told") {
  Json profile = spp::read_json("tests/support/data/cpu-2x2.json");
  profile["machine"]["gpu"]["generation"]["launch"]["value"] = 1e6;  // us: no op takes a second
  const TempDir dir;
  const std::string file = dir.write("profile.json", profile.dump()).string();
  const Result r = sp_plan(tiny + " --gpus 4 --profile " + file);
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK_THAT(spp::parse_json(r.out, "stdout")["warnings"].dump(),
             ContainsSubstring("times what is predicted ("));
}

TEST_CASE("a profile of one suite says what it lacks, and no more") {
  const TempDir dir;
  const std::string file = (dir.path() / "profile.json").string();
  const std::string shape = "--heads 2 --head-dim 8 --seq 64 --dtype fp32 ";
  const auto warnings = [&](const std::string& suite) {
    REQUIRE(sp_plan("calibrate --comm inproc --gpus 2 --kernels reference --budget 0.2 --quiet " +
                    shape + "--suite " + suite + " -o " + file)
                .code == 0);
    const Result r = sp_plan("plan --quiet " + shape + "--profile " + file);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return r.err;
  };
  const auto no_blocks = ContainsSubstring("has no attention blocks");
  const auto no_messages =
      ContainsSubstring("has no messages between ranks: times of links are assumed");
  CHECK_THAT(warnings("attention"), !no_blocks && no_messages);
  CHECK_THAT(warnings("elementwise"), no_blocks && no_messages);
  CHECK_THAT(warnings("links"), no_blocks && !no_messages);
  CHECK_THAT(warnings("collectives"), no_blocks && !no_messages);
}

TEST_CASE("a profile that measured only links, or says more than is known, tells so in a plan") {
  Json profile = spp::read_json("tests/support/data/cpu-2x2.json");
  const auto warnings = [&] {
    const TempDir dir;
    const std::string file = dir.write("profile.json", profile.dump()).string();
    const Result r =
        sp_plan("plan --heads 4 --head-dim 16 --seq 256 --dtype fp32 --json --profile " + file);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return r.out + r.err;
  };
  CHECK_THAT(warnings(), !ContainsSubstring("has no attention blocks"));
  profile["environment"]["kernels"] = "reference";
  profile.erase("attention");
  CHECK_THAT(
      warnings(),
      ContainsSubstring("has no attention blocks in fp32: times of attention kernels are assumed"));
  profile["format_version"] = "1.1";
  profile["machine"]["of_then"] = 1;
  CHECK_THAT(warnings(), ContainsSubstring("was written by a later sp-plan"));
}

TEST_CASE("tasks of srun that MPI does not join are warned about") {
  const auto warnings = [](const std::string& tasks) {
    const Result r = sp_plan(tiny, {.environment = {{"SLURM_STEP_NUM_TASKS", tasks}}});
    INFO(r.err);
    REQUIRE(r.code == 0);
    return spp::parse_json(r.out, "stdout")["warnings"].dump();
  };
  CHECK_THAT(warnings("4"), ContainsSubstring("srun started 4 tasks that nothing joins"));
  CHECK_THAT(warnings("1"), !ContainsSubstring("srun"));
}

TEST_CASE("of a step the attention of one tensor rank's group runs, and that is said") {
  const Result r = sp_plan(
      "run --model llama-3.1-8b --seq 128 --dtype fp32 --tp 8 --ring 2 --dp 2 --kernels reference "
      "--check --iters 1");
  CHECK(r.code == 0);
  CHECK_THAT(r.err, ContainsSubstring("the rest of the step is not (--scope step runs all of it)"));
  const Json doc = Json::parse(r.out);
  CHECK(doc["backend"]["ranks"] == 2);
  CHECK(doc["plan"]["tp"] == 8);
  CHECK_THAT(doc["warnings"].dump(), ContainsSubstring("(2 of 32 ranks)"));
}

TEST_CASE("steps of latent attention and of attention to chunks are right") {
  const TempDir dir;
  const std::string latent = R"({"model_type": "deepseek_v3", "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96,
    "num_hidden_layers": 2, "vocab_size": 128, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 16})";
  const std::string chunks = R"({"model_type": "llama4_text", "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 32,
    "intermediate_size_mlp": 96, "num_hidden_layers": 4, "vocab_size": 128,
    "max_position_embeddings": 1024, "num_local_experts": 4, "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2, "attention_chunk_size": 24})";
  for (const std::string& config : {latent, chunks}) {
    const std::string model = dir.write("config.json", config).string();
    const Result run =
        sp_plan("run --check --iters 1 --dtype fp32 --kernels reference --scope step --model " +
                model + " --seq 64 --tp 2 --ulysses 1 --ring 2 --ep 2 --json");
    INFO(run.err);
    CHECK(run.code == 0);
  }
}

TEST_CASE("a layer and a step with normed heads, tied embeddings and windows in turns are right") {
  const TempDir dir;
  const std::string config = dir.write("config.json", R"({"model_type": "qwen3", "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
    "num_hidden_layers": 2, "vocab_size": 128, "tie_word_embeddings": true,
    "use_sliding_window": true, "sliding_window": 12,
    "layer_types": ["full_attention", "sliding_attention"]})")
                                 .string();
  const std::string work = " --model " + config + " --seq 64 --tp 2 --ulysses 1 --ring 2";
  for (const std::string scope : {"layer", "step"}) {
    const Result proof = sp_plan("verify --scope " + scope + work + " --json");
    INFO(proof.err);
    REQUIRE(proof.code == 0);
    CHECK(spp::parse_json(proof.out, "stdout")["proven"] == true);
    const Result run = sp_plan("run --check --iters 1 --dtype fp32 --kernels reference --scope " +
                               scope + work + " --json");
    INFO(run.err);
    CHECK(run.code == 0);
  }
}

TEST_CASE("a step of gpt-oss's kind is proven, simulated and right") {
  const TempDir dir;
  const std::string config =
      dir.write("config.json", R"({"model_type": "gpt_oss", "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
    "num_hidden_layers": 2, "vocab_size": 128, "tie_word_embeddings": false, "attention_bias": true,
    "num_local_experts": 8, "num_experts_per_tok": 4, "sliding_window": 12})")
          .string();
  const std::string work = " --scope step --json --seq 64 --ulysses 2 --ep 2 --model " + config;
  for (const char* command : {"verify", "simulate --gpus 2 --gpu h100",
                              "run --check --iters 1 --dtype fp32 --kernels reference"}) {
    const Result answer = sp_plan(command + work);
    INFO(command << answer.err);
    REQUIRE(answer.code == 0);
    if (answer.out.find("\"check\"") != std::string::npos) {
      CHECK_THAT(answer.out, ContainsSubstring("param.l1.attention_sinks") &&
                                 ContainsSubstring("param.l1.experts_down_bias"));
    }
  }
}

TEST_CASE(
    "phases and their parts add up to the measured time, of an even number of iterations, too") {
  for (const std::string iterations : {"4", "3"}) {
    const Result r = sp_plan(
        "run --heads 4 --head-dim 16 --seq 256 --dtype fp32 --kernels reference --json "
        "--ulysses 2 --ring 2 --iters " +
        iterations);
    INFO(iterations << "\n" << r.err);
    REQUIRE(r.code == 0);
    const Json run = spp::parse_json(r.out, "stdout");
    const double step = run["measured"]["step_s"];
    const auto near = [](double seconds) { return Catch::Approx(seconds).epsilon(1e-9); };
    CHECK(run["phases"]["fwd"]["middle_s"].get<double>() +
              run["phases"]["bwd"]["middle_s"].get<double>() ==
          near(step));
    // An iteration's time is the slowest rank's from its start to its end; the parts' that of the
    // rank that ended last, from the first op on.
    double parts = 0;
    for (const char* part : {"attention_s", "gemm_s", "other_kernels_s", "exposed_comm_s",
                             "imbalance_s", "launch_bound_s"}) {
      parts += run["measured"][part].get<double>();
    }
    CHECK(parts <= step);
    const Json& samples = run["measured"]["samples_s"];
    std::vector<double> sorted(samples.begin(), samples.end());
    std::sort(sorted.begin(), sorted.end());
    CHECK(step == near(sorted[(sorted.size() - 1) / 2]));
  }
}

TEST_CASE("attention of queries that see a key or few is right in bf16, whose LSE is small") {
  for (const std::string work :
       {"--seq 4 --documents 1,1,1,1", "--seq 333 --mask window:1 --ulysses 2"}) {
    const Result r =
        sp_plan("run --heads 4 --head-dim 16 --dtype bf16 --check --iters 1 --json " + work);
    INFO(work << "\n" << r.err << r.out);
    CHECK(r.code == 0);
  }
}
