// What frameworks assert of whole steps, and what servers and recipes must be told beside degrees.
#include "planner/framework_step.hpp"

#include "planner/framework.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/requests.hpp"

#include <algorithm>
#include <set>
#include <string>

using namespace spp;
using Catch::Matchers::ContainsSubstring;

namespace {

using Rules = std::set<std::string>;

/// A plan of a model on a whole cluster, as a framework takes it.
struct Asked {
  sim::Cluster cluster;
  Request request;
  const Framework* framework;

  Asked(std::string_view name, const std::string& model, std::int64_t seq, int nodes = 1)
      : cluster(test::catalog().machine("dgx-h200", "test"), nodes, 8 * nodes),
        request(test::step_request(cluster, model, seq)),
        framework(&frameworks::by_name(name, "test")) {
    request.phase = framework->trains ? StepPhase::train : StepPhase::prefill;
    request.problem.mask = request.model->mask.over(seq);
  }
  Asked(const Asked&) = delete;

  [[nodiscard]] Candidate candidate(const StepPlan& plan) const {
    Candidate c;
    c.plan = plan;
    c.strategy = &strategies::by_name(plan.attention.strategy, "test");
    c.simulated = false;
    return c;
  }
  [[nodiscard]] Rules rules(const StepPlan& plan) const {
    Rules found;
    for (const Cannot& reason : cannot(*framework, request, candidate(plan))) {
      found.insert(reason.rule);
    }
    return found;
  }
  [[nodiscard]] Snippet snippet(const StepPlan& plan) const {
    const Exported result = exported(*framework, request, candidate(plan));
    REQUIRE(result.cannot.empty());
    return result.snippet;
  }
  /// Of all blocks.
  [[nodiscard]] std::string text(const StepPlan& plan) const {
    std::string all;
    for (const Block& block : snippet(plan).blocks) {
      all += block.text;
    }
    return all;
  }
};

const SequencePlan alone{.strategy = "ulysses"};
SequencePlan ring_of(int ranks) {
  return {.strategy = "zigzag-ring", .ring = ranks, .layout = Layout::zigzag};
}
SequencePlan gathered(int ranks, Layout layout = Layout::zigzag) {
  return {.strategy = "all-gather", .ring = ranks, .layout = layout};
}

}  // namespace

TEST_CASE("servers' contexts are the model's at most, or they are told to take more") {
  const StepPlan over_heads{.attention = alone, .tensor = 8};
  const auto [name, option, kept, allows] = GENERATE(
      std::tuple{"vllm", "--max-model-len", 1, "VLLM_ALLOW_LONG_MAX_MODEL_LEN"},
      std::tuple{"sglang", "--context-length", 6, "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"});
  const auto asked_for = [&](std::int64_t tokens) {
    return ContainsSubstring(fmt::format("{} {}", option, tokens));
  };
  // Llama 3.1 is made for 131072 tokens.
  const Asked shorter(name, "llama-3.1-8b", 65536);
  CHECK_THAT(shorter.text(over_heads), asked_for(65536 + kept));
  CHECK(shorter.snippet(over_heads).environment.empty());

  const Asked full(name, "llama-3.1-8b", 131072);
  CHECK_THAT(full.text(over_heads), asked_for(131072));
  CHECK(full.snippet(over_heads).environment.empty());
  CHECK(std::ranges::any_of(full.snippet(over_heads).notes, [&](const std::string& note) {
    return note.find(fmt::format("the longest prompt has {}", 131072 - kept)) != std::string::npos;
  }));

  const Asked longer(name, "llama-3.1-8b", 262144);
  CHECK_THAT(longer.text(over_heads), asked_for(262144 + kept));
  REQUIRE(longer.snippet(over_heads).environment.size() == 1);
  CHECK(longer.snippet(over_heads).environment[0].name == allows);
}

TEST_CASE("vLLM has no replicas beside context ranks") {
  const Asked asked("vllm", "qwen3-235b-a22b", 65536, 2);
  const StepPlan plan{.attention = gathered(2),
                      .tensor = 4,
                      .data = 2,
                      .expert_tensor = 16,
                      .to_experts = Dispatcher::all_gather};
  CHECK(asked.rules(plan) == Rules{"data"});
}

TEST_CASE("Ulysses of Hugging Face models wants heads of one width") {
  const auto name = GENERATE("deepspeed", "accelerate");
  const StepPlan plan{.attention = {.strategy = "ulysses", .ulysses = 8}, .zero = 3};
  CHECK(Asked(name, "deepseek-v3", 32768).rules(plan) == Rules{"heads"});
  CHECK(Asked(name, "llama-3.1-8b", 32768).rules(plan).empty());
}

TEST_CASE("tensor ranks and stages stand beside cut weights") {
  const auto name = GENERATE("torchtitan", "accelerate", "axolotl");
  const Asked asked(name, "llama-3.1-8b", 32768);
  StepPlan plan{.attention = alone, .tensor = 8, .zero = 3};
  plan.tensor_sequence = std::string_view(name) == "torchtitan";
  CHECK(asked.rules(plan) == Rules{"zero"});
  plan.tensor = 4;
  plan.data = 2;
  CHECK(asked.rules(plan).empty());
}

TEST_CASE("copies beside sequence ranks are of shards over several data ranks") {
  const Asked asked("accelerate", "llama-3.1-8b", 65536, 2);
  StepPlan plan{.attention = ring_of(4), .data = 4, .zero = 3, .zero_group = 4};
  CHECK(asked.rules(plan) == Rules{"zero-group"});
  plan.zero_group = 8;
  CHECK(asked.rules(plan).empty());
}

TEST_CASE("SGLang splits prompts of latent attention over all ranks, with DeepEP") {
  const Asked asked("sglang", "deepseek-v3", 65536);
  StepPlan plan{.attention = gathered(8), .expert = 8, .to_experts = Dispatcher::all_to_all};
  CHECK(asked.rules(plan).empty());
  CHECK_THAT(asked.text(plan), ContainsSubstring("--moe-a2a-backend deepep") &&
                                   ContainsSubstring("--moe-dense-tp-size 1") &&
                                   ContainsSubstring("--attn-cp-size 8"));
  plan.to_experts = Dispatcher::all_gather;
  CHECK(asked.rules(plan) == Rules{"expert"});
  plan = {.attention = gathered(4), .tensor = 2, .expert = 8};
  CHECK(asked.rules(plan) == Rules{"tensor"});
  plan = {.attention = gathered(4), .data = 2, .expert = 4};
  CHECK(asked.rules(plan) == Rules{"data"});

  // Others gather tokens by themselves, and have no all-to-all.
  const Asked grouped("sglang", "qwen3-30b-a3b", 65536);
  plan = {.attention = alone, .tensor = 4, .expert = 4, .to_experts = Dispatcher::all_gather};
  CHECK(grouped.rules(plan).empty());
  plan.to_experts = Dispatcher::all_to_all;
  CHECK(grouped.rules(plan) == Rules{"dispatcher"});
}

TEST_CASE("a recipe of Megatron-Bridge has the sequence's length twice") {
  const Asked asked("megatron-bridge", "llama-3.1-8b", 32768);
  CHECK_THAT(asked.text({.attention = ring_of(2), .tensor = 4, .zero = 1}),
             ContainsSubstring("cfg.model.seq_length = 32768") &&
                 ContainsSubstring("cfg.dataset.seq_length = 32768"));
}

TEST_CASE("InternEvo is told how experts' weights are cut") {
  const StepPlan plan{.attention = {.strategy = "ulysses", .ulysses = 4}, .data = 2, .zero = 3};
  CHECK_THAT(Asked("internevo", "qwen3-30b-a3b", 32768).text(plan),
             ContainsSubstring("expert=dict(size=1, no_tp=True)") &&
                 ContainsSubstring("expert_weight=dict(size=8,"));
  CHECK_THAT(Asked("internevo", "llama-3.1-8b", 32768).text(plan), !ContainsSubstring("expert"));
}

TEST_CASE("Axolotl's rings run under FSDP2") {
  const Asked asked("axolotl", "llama-3.1-8b", 65536, 2);
  const StepPlan plan{.attention = gathered(4, Layout::contiguous),
                      .tensor = 2,
                      .tensor_sequence = false,
                      .data = 2,
                      .zero = 3};
  CHECK(asked.rules(plan).empty());
  CHECK_THAT(asked.text(plan), ContainsSubstring("fsdp_version: 2\n") &&
                                   ContainsSubstring("reshard_after_forward: true\n") &&
                                   ContainsSubstring("dp_shard_size: 2\n") &&
                                   ContainsSubstring("context_parallel_size: 4\n") &&
                                   ContainsSubstring("tensor_parallel_size: 2\n") &&
                                   !ContainsSubstring("deepspeed"));
}

TEST_CASE("MaxText's axis of experts is one of data ranks") {
  const Asked asked("maxtext", "qwen3-30b-a3b", 8192, 2);
  StepPlan plan{.attention = alone, .tensor = 2, .data = 8, .expert = 4, .expert_tensor = 2};
  plan.zero = 3;
  CHECK(asked.rules(plan).empty());
  CHECK_THAT(asked.text(plan), ContainsSubstring("ici_expert_parallelism=4") &&
                                   ContainsSubstring("ici_fsdp_parallelism=1") &&
                                   ContainsSubstring("dcn_fsdp_parallelism=2"));
  plan.zero = 1;
  CHECK(asked.rules(plan) == Rules{"expert"});
  plan.zero = 3;
  plan.expert_tensor = 1;
  CHECK(asked.rules(plan) == Rules{"expert"});
  plan = {.attention = ring_of(2), .data = 8, .expert = 4, .zero = 3};
  CHECK(asked.rules(plan) == Rules{"expert"});
}

TEST_CASE("Megatron's FSDP has no stages, its experts no fp16") {
  const auto name = GENERATE("megatron", "megatron-bridge");
  const Asked dense(name, "llama-3.1-8b", 32768);
  StepPlan plan{.attention = alone, .tensor = 2, .data = 2, .pipeline = 2, .zero = 3};
  CHECK(dense.rules(plan) == Rules{"zero"});
  plan.zero = 1;
  CHECK(dense.rules(plan).empty());
  Asked experts(name, "mixtral-8x7b", 32768);
  plan = {.attention = alone, .data = 8, .expert = 8, .zero = 1};
  CHECK(experts.rules(plan).empty());
  experts.request.problem.dtype = DType::fp16;
  CHECK(experts.rules(plan) == Rules{"dtype"});
}

TEST_CASE("servers of images and videos start on one node") {
  const auto name = GENERATE("vllm-omni", "sglang-diffusion");
  const StepPlan plan{.attention = {.strategy = "ulysses", .ulysses = 8}};
  CHECK(Asked(name, "wan2.1-t2v-14b", 75600).rules(plan).empty());
  CHECK(Asked(name, "wan2.1-t2v-14b", 75600, 2).rules(plan) == Rules{"nodes"});
}
