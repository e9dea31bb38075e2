// Plans for frameworks: export, plan --emit, plan --framework.
#include "base/file.hpp"
#include "base/json.hpp"
#include "tests/cli/program.hpp"
#include "tests/cli/refused.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <string>

using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::check_refused;
using spp::test::Result;
using spp::test::sp_plan;
using spp::test::TempDir;

namespace {

const std::string llama = " --model llama-3.1-8b --seq 64K --topology dgx-h100";

Json document_of(const Result& r) { return spp::parse_json(r.out, "stdout"); }

/// The text of the first block of an exported plan.
std::string text_of(const Json& exported) {
  return exported.at("blocks").at(0).at("text").get<std::string>();
}

bool has_rule(const Json& exported, std::string_view rule) {
  return std::ranges::any_of(exported.at("cannot"),
                             [&](const Json& reason) { return reason.at("rule") == rule; });
}

}  // namespace

TEST_CASE("plan --emit adds a snippet, behind the table or in the document") {
  const std::string line = "plan --framework megatron --emit megatron" + llama;
  const Result json = sp_plan(line);
  REQUIRE(json.code == 0);
  const Json exported = document_of(json).at("export");
  CHECK(exported.at("cannot").empty());
  CHECK(exported.at("loss").is_null());
  CHECK(exported.at("plan") == document_of(json).at("best").at("plan"));
  const std::string command = text_of(exported);
  CHECK_THAT(command, ContainsSubstring("--context-parallel-size 8"));
  const Result table = sp_plan(line + " --table");
  CHECK(table.code == 0);
  CHECK_THAT(table.out, ContainsSubstring("Recommended: "));
  CHECK_THAT(table.out, ContainsSubstring(command));
}

TEST_CASE("plan --emit writes of packed documents what export does") {
  const TempDir dir;
  const std::string file = (dir.path() / "plan.json").string();
  const std::string line =
      "plan --framework ring-flash-attention --heads 32 --kv-heads 8 "
      "--seq 64K --documents 32K,32K --topology dgx-h100 ";
  const Result emitted = sp_plan(line + "--emit ring-flash-attention -o " + file);
  REQUIRE(emitted.code == 0);
  const Json document = Json::parse(spp::read_text_file(file, ""));
  CHECK_THAT(text_of(document.at("export")), ContainsSubstring("varlen"));
  const Result exported = sp_plan("export --framework ring-flash-attention --plan " + file);
  CHECK(exported.code == 0);
  CHECK(text_of(document_of(exported).at("export")) == text_of(document.at("export")));
}

TEST_CASE("without --emit a plan's document has no export") {
  CHECK_FALSE(
      document_of(sp_plan("plan --heads 8 --seq 8K --topology dgx-h100")).contains("export"));
}

TEST_CASE("a plan from a file is exported as it is") {
  const TempDir dir;
  const std::string file = (dir.path() / "plan.json").string();
  REQUIRE(sp_plan("plan --framework deepspeed" + llama + " -o " + file).code == 0);
  const Result r = sp_plan("export --framework deepspeed --plan " + file);
  REQUIRE(r.code == 0);
  const Json doc = document_of(r);
  CHECK(doc.at("format") == "sp-plan/export");
  CHECK(doc.at("export").at("plan") == spp::read_json(file).at("best").at("plan"));
  CHECK(doc.at("export").at("blocks").at(1).at("file") == "ds_config.json");
}

TEST_CASE("a search that found nothing has no plan to export") {
  const TempDir dir;
  const std::string file = (dir.path() / "plan.json").string();
  REQUIRE(sp_plan("plan --model llama-3.1-70b --seq 1M --topology dgx-h100 -o " + file).code == 3);
  const Result r = sp_plan("export --framework megatron --plan " + file);
  CHECK(r.code == 2);
  CHECK_THAT(r.err, ContainsSubstring("no plan of that search fits"));
}

TEST_CASE("a plan that was changed by hand and no longer answers its request is refused") {
  const TempDir dir;
  const std::string file = (dir.path() / "plan.json").string();
  REQUIRE(
      sp_plan("plan --model llama-3.1-8b --seq 8K --topology dgx-h100 --global-batch 16 -o " + file)
          .code == 0);
  CHECK(sp_plan("simulate --plan " + file).code == 0);
  Json changed = spp::read_json(file);
  Json& plan = changed["best"]["plan"];
  plan["micro_batches"] = plan["micro_batches"].get<int>() + 1;
  check_refused(sp_plan("simulate --plan " + dir.write("changed.json", changed.dump()).string()), 2,
                "sequences, and its request has 16");
  // One without what it promises says so.
  changed.erase("best");
  check_refused(sp_plan("simulate --plan " + dir.write("without.json", changed.dump()).string()), 2,
                "key 'best' is missing");
}

TEST_CASE("a plan by its degrees needs no machine") {
  const Result r = sp_plan(
      "export --framework megatron --heads 64 --kv-heads 8 --seq 256K --ulysses 8 --ring 4");
  REQUIRE(r.code == 0);
  CHECK_THAT(text_of(document_of(r).at("export")),
             ContainsSubstring("--cp-comm-type a2a+p2p \\\n    "
                               "--hierarchical-context-parallel-sizes 8 4"));
}

TEST_CASE("what a framework cannot run is named, the nearest shown with its loss, and exit 3") {
  const std::string striped =
      " --heads 32 --kv-heads 8 --seq 64K --strategy usp --ulysses 4 --ring 2 --layout striped";
  const Result r = sp_plan("export --framework megatron --topology dgx-h100" + striped);
  CHECK(r.code == 3);
  CHECK_THAT(r.err, ContainsSubstring("megatron cannot run usp U4xR2 striped"));
  CHECK_THAT(r.err, ContainsSubstring("megatron deals tokens out zigzag for a2a+p2p, not striped"));
  const Json exported = document_of(r).at("export");
  CHECK(has_rule(exported, "layout"));
  CHECK(exported.at("plan").at("layout") != "striped");
  CHECK(exported.at("loss").is_number());

  const Result alone = sp_plan("export --framework megatron" + striped);  // nothing to search on
  CHECK(alone.code == 3);
  CHECK(document_of(alone).at("export").at("plan").is_null());
  CHECK_THAT(alone.err, ContainsSubstring("a --topology shows the nearest"));
}

TEST_CASE("a plan that does not fit is said to, with what would save enough, and has no loss") {
  const std::string line =
      "export --framework megatron --model llama-3.1-70b --seq 256K --topology dgx-h100 --nodes 4 "
      "--ulysses 8 --ring 4";
  const Result large = sp_plan(line);
  CHECK(large.code == 0);
  CHECK_THAT(large.err, ContainsSubstring("warning: usp U8xR4 zigzag") &&
                            ContainsSubstring("does not fit: it needs ") &&
                            ContainsSubstring("with --zero 3 --recompute full it fits"));
  CHECK_THAT(document_of(large).at("export").at("notes").dump(), ContainsSubstring("does not fit"));
  const Json other = document_of(sp_plan(line + " --layout striped")).at("export");
  CHECK(other.at("plan").is_object());
  CHECK(other.at("loss").is_null());
  const Result fits = sp_plan(line + " --zero 3 --recompute full");
  CHECK(fits.code == 0);
  CHECK(fits.err.empty());
  // Of what would save enough, what the framework can do.
  const Result selective = sp_plan(
      "export --framework accelerate --model llama-3.1-8b --seq 80K --ulysses 8 --topology "
      "dgx-h100");
  CHECK_THAT(selective.err, ContainsSubstring("with --recompute full it fits"));
}

TEST_CASE(
    "plan --emit for a framework that cannot run the best plan shows the fastest that it can") {
  const Result r = sp_plan(
      "plan --heads 32 --kv-heads 8 --seq 64K --topology dgx-h100 --strategy startrail --ring 8 "
      "--team 2 --emit torchtitan");
  REQUIRE(r.code == 0);
  const Json exported = document_of(r).at("export");
  CHECK(has_rule(exported, "framework"));
  CHECK(exported.at("wanted").at("strategy") == "startrail");
  CHECK(exported.at("plan").at("strategy") != "startrail");
  CHECK(exported.at("loss").is_number());
}

TEST_CASE("a stack recommends only what its framework can run") {
  const Json doc = document_of(
      sp_plan("plan --model llama-3.1-70b --seq 256K --topology dgx-h100 --nodes 4 --stack "
              "megatron-te --top 50"));
  CHECK(doc.at("request").at("framework") == "megatron");
  REQUIRE_FALSE(doc.at("candidates").empty());
  for (const Json& candidate : doc.at("candidates")) {
    const Json& plan = candidate.at("plan");
    CHECK(plan.at("layout") != "striped");
    CHECK(plan.at("heads") == "divide");
    CHECK((plan.at("strategy") != "all-gather" || plan.at("ulysses") == 1));
  }
  CHECK(std::ranges::any_of(doc.at("rejected"), [](const Json& r) {
    return r.at("rule") == "order" &&
           r.at("detail").get<std::string>().find("https://") != std::string::npos;
  }));
}

TEST_CASE("an inference engine plans inference under the full mask, and says that it was assumed") {
  const Json doc = document_of(
      sp_plan("plan --framework xdit --heads 24 --seq 32K --topology dgx-h100 --gpus 6"));
  CHECK(doc.at("request").at("phase") == "fwd");
  CHECK(doc.at("request").at("mask") == "full");
  CHECK(doc.at("request").at("stack") == "xdit");
  for (const Json& candidate : doc.at("candidates")) {
    CHECK(candidate.at("plan").at("heads") == "divide");
  }
  const Result train = sp_plan(
      "plan --framework xdit --model flux.1-dev --seq 4608 --topology dgx-h100 --phase train");
  CHECK(train.code == 3);
  CHECK_THAT(train.err, ContainsSubstring("xdit runs inference only"));
}

TEST_CASE("export --list names every framework, with its ways and sources") {
  const Result r = sp_plan("export --list");
  REQUIRE(r.code == 0);
  const Json doc = document_of(r);
  CHECK(doc.at("frameworks").at(0).at("name") == "megatron");
  CHECK(doc.at("frameworks").size() >= 20);
  CHECK_THAT(sp_plan("export --list --table").out, ContainsSubstring("ring-flash-attention"));
}

TEST_CASE("Megatron's flags say what a model's experts, latents, windows and sinks are") {
  const auto command = [](const std::string& line) {
    return text_of(
        document_of(sp_plan("export --framework megatron --phase train --dtype bf16 " + line))
            .at("export"));
  };
  const std::string mixtral = command("--model mixtral-8x7b --seq 32K --ulysses 8 --ep 8");
  CHECK_THAT(mixtral, ContainsSubstring("--num-experts 8") &&
                          ContainsSubstring("--moe-router-topk 2") &&
                          ContainsSubstring("--moe-ffn-hidden-size 14336") &&
                          ContainsSubstring("--expert-model-parallel-size 8"));
  CHECK_THAT(command("--model deepseek-v3 --seq 4K --pp 16 --virtual-stages 2 --dp 8 --ep 8 "
                     "--global-batch 256"),
             ContainsSubstring("--pipeline-model-parallel-layout \"Ettt|tt|") &&
                 ContainsSubstring("|m|L\"") && !ContainsSubstring("--num-virtual-stages"));
  const std::string deepseek = command("--model deepseek-v3 --seq 32K --tp 8 --dp 2 --ep 16");
  CHECK_THAT(deepseek, ContainsSubstring("--multi-latent-attention") &&
                           ContainsSubstring("--mtp-num-layers 1") &&
                           ContainsSubstring("--q-lora-rank 1536") &&
                           ContainsSubstring("--qk-layernorm") &&
                           ContainsSubstring("--qk-pos-emb-head-dim 64") &&
                           ContainsSubstring("--moe-layer-freq \"([0]*3+[1]*58)\"") &&
                           !ContainsSubstring("--kv-channels"));
  const std::string oss = command("--model gpt-oss-20b --seq 32K --ulysses 8");
  CHECK_THAT(oss, ContainsSubstring("--softmax-type learnable") &&
                      ContainsSubstring("--window-size 127,0") &&
                      ContainsSubstring("--window-attn-skip-freq \"([1,0]*12)\""));
}

TEST_CASE("what a text leaves to the user is one line, and what contradicts the plan is refused") {
  const std::string llama8 = " --phase train --model llama-3.1-8b --seq 32K";
  const Result rest = sp_plan(
      "export --framework yunchang --ulysses 4 --dp 2 --global-batch 16 "
      "--zero 1 --recompute full --dtype fp16" +
      llama8);
  REQUIRE(rest.code == 0);
  CHECK(document_of(rest).at("export").at("notes").back() ==
        "Not in this text, and yours to see to: sequences of 32768 tokens, 8 micro-batches a step, "
        "tensors in fp16, ZeRO 1, full recomputation.");
  const auto refusal = [](const std::string& line) {
    return sp_plan("export --framework " + line).err;
  };
  CHECK_THAT(refusal("megatron --pp 4 --global-batch 16 --pipeline gpipe" + llama8),
             ContainsSubstring("megatron has no gpipe pipeline, but 1f1b, interleaved"));
  CHECK_THAT(refusal("accelerate --tp 2 --ulysses 4 --zero 3" + llama8),
             ContainsSubstring("accelerate has no tensor parallelism beside sp_size: 2"));
  CHECK_THAT(refusal("internevo --tp 2 --ulysses 4 --zero 1" + llama8),
             ContainsSubstring("plans of internevo have no tensor parallelism here: 2"));
  CHECK_THAT(refusal("vllm --tp 8 --etp 1 --phase prefill --model mixtral-8x7b --seq 32K"),
             ContainsSubstring("vllm splits experts over tensor x sequence x data ranks, 8 here, "
                               "not over 1"));
  const Result server = sp_plan(
      "export --framework vllm --tp 8 --phase prefill --model mixtral-8x7b --seq 32K "
      "--topology dgx-h100");
  CHECK(server.code == 0);  // each expert is split over all of them, as nobody said otherwise
  CHECK(document_of(server).at("request").at("etp") == 8);
  CHECK_THAT(refusal("vllm --tp 8 --zero 3 --phase prefill --model llama-3.1-8b --seq 32K"),
             ContainsSubstring("vllm has whole weights on every GPU, not ZeRO 3"));
}

TEST_CASE("Megatron counts embedding and head as layers where stages need it") {
  const Result r = sp_plan(
      "export --framework megatron --phase train --model llama-3.1-405b --seq 8K --tp 8 --pp 16 "
      "--global-batch 64");
  const std::string command = text_of(document_of(r).at("export"));
  CHECK_THAT(command, ContainsSubstring("--account-for-embedding-in-pipeline-split") &&
                          ContainsSubstring("--account-for-loss-in-pipeline-split"));
  const Result bridge = sp_plan(
      "export --framework megatron-bridge --phase train --model llama-3.1-405b --seq 8K --tp 8 "
      "--pp 16 --global-batch 64");
  CHECK_THAT(text_of(document_of(bridge).at("export")),
             ContainsSubstring("cfg.model.account_for_loss_in_pipeline_split = True"));
}

TEST_CASE("sinks and windows go only the ways that the framework has for them") {
  const std::string oss =
      "export --framework megatron --phase train --model gpt-oss-20b --seq 32K ";
  const Result ring = sp_plan(oss + "--ring 4 --layout zigzag");
  CHECK(ring.code == 3);
  CHECK_THAT(ring.err, ContainsSubstring("megatron has no attention sinks for p2p"));
  CHECK(has_rule(document_of(ring).at("export"), "window"));
  CHECK(sp_plan(oss + "--ulysses 8").code == 0);
}

TEST_CASE("packed documents that are cut each are THD for those who have it") {
  const std::string line =
      " --heads 32 --kv-heads 8 --seq 64K --documents 32K,16K,16000,384 --topology dgx-h100 "
      "--ring 8 --layout document-zigzag --json";
  const auto text = [&](const std::string& framework) {
    const Result r = sp_plan("export --framework " + framework + line);
    REQUIRE(r.code == 0);
    return text_of(document_of(r).at("export"));
  };
  CHECK_THAT(text("transformer-engine"), ContainsSubstring("attn_mask_type=\"padding_causal\"") &&
                                             ContainsSubstring("qkv_format=\"thd\"") &&
                                             !ContainsSubstring("two chunks of"));
  CHECK_THAT(text("ring-flash-attention"),
             ContainsSubstring("zigzag_ring_flash_attn_varlen_func("));
  CHECK_THAT(sp_plan("export --framework megatron" + line).out,
             ContainsSubstring("padded to a multiple of 2 x 8 tokens, 0 more in all, and of its "
                               "16 pieces rank r of the ring has pieces r and 15 - r"));
  CHECK(sp_plan("export --framework torchtitan" + line).code == 3);
}
