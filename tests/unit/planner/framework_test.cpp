// Mirrors one header, hence one file.
#include "planner/framework.hpp"

#include "base/error.hpp"
#include "machine/stack.hpp"
#include "parallel/attention/attention_mesh.hpp"
#include "sim/thinned.hpp"
#include "step/stages.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/requests.hpp"

#include <algorithm>
#include <set>
#include <string>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using spp::test::message_of;

namespace {

sim::Cluster world(const std::string& machine, int nodes) {
  const MachineSpec spec = test::catalog().machine(machine, "test");
  return {spec, nodes, nodes * static_cast<int>(spec.gpus_per_node.value)};
}

/// An attention shape that every framework of its kind takes: training under a causal mask, or
/// inference under the full one.
Request request_for(const Framework& f, const sim::Cluster& cluster, int kv_heads) {
  Request r;
  r.problem = {.seq = 65536, .q_heads = 32, .kv_heads = kv_heads, .head_dim = 128};
  r.problem.mask.kind = f.masks.has(MaskKind::causal) ? MaskKind::causal : MaskKind::full;
  r.phase = f.trains ? StepPhase::forward_backward : StepPhase::forward;
  r.cluster = &cluster;
  r.gpus = cluster.gpus();
  r.memory = Bytes(70'000'000'000);
  return r;
}

Candidate candidate_of(const SequencePlan& plan) {
  Candidate c;
  c.plan.attention = plan;
  c.strategy = &strategies::by_name(plan.strategy, "test");
  c.simulated = false;
  return c;
}

const Framework& named(std::string_view name) { return frameworks::by_name(name, "test"); }

Problem causal(std::int64_t seq, int q_heads, int kv_heads) {
  return {.seq = seq,
          .q_heads = q_heads,
          .kv_heads = kv_heads,
          .head_dim = 128,
          .mask = {.kind = MaskKind::causal}};
}

/// Rules against a plan of the framework called `name`.
std::set<std::string> rules(std::string_view name, const SequencePlan& plan,
                            const Problem& problem) {
  std::set<std::string> found;
  for (const Cannot& reason : cannot(named(name), plan, problem)) {
    found.insert(reason.rule);
  }
  return found;
}

using Rules = std::set<std::string>;

}  // namespace

TEST_CASE("names and aliases of frameworks are one each, and lead to theirs") {
  std::set<std::string_view> seen;
  for (const Framework* f : frameworks::all()) {
    CHECK(seen.insert(f->name).second);
    CHECK(&named(f->name) == f);
    for (const std::string_view alias : f->aliases) {
      CHECK(seen.insert(alias).second);
      CHECK(&named(alias) == f);
    }
  }
  CHECK(&named("Megatron-LM") == &named("megatron"));
  CHECK_THAT(message_of<InputError>([] { (void)named("megatrom"); }),
             ContainsSubstring("did you mean 'megatron'?"));
}

TEST_CASE("a framework says by which version and whose word, and its stack is one of ours") {
  const Catalog& catalog = test::catalog();
  for (const Framework* f : frameworks::all()) {
    INFO(f->name);
    CHECK_THAT(std::string(f->checked), ContainsSubstring("https://"));
    CHECK_FALSE(f->ways.empty());
    CHECK((f->trains || f->infers));
    for (const Way& way : f->ways) {
      CHECK(strategies::by_name(way.strategy, "test").name == way.strategy);
      CHECK_THAT(std::string(way.source), ContainsSubstring("https://"));
    }
    CHECK((f->heads.values.empty() || !f->heads.source.empty()));
    CHECK((f->zero.values.empty() || !f->zero.source.empty()));
    CHECK((f->recompute.values.empty() || !f->recompute.source.empty()));
    if (!f->stack.empty()) {
      CHECK(catalog.stack(std::string(f->stack), "test").name == f->stack);
    }
  }
  for (const std::string& name : catalog.stack_names()) {
    if (const StackSpec stack = catalog.stack(name, "test"); !stack.framework.empty()) {
      CHECK(named(stack.framework).stack == name);
    }
  }
}

TEST_CASE("every framework writes a legal plan, or says why it cannot run it") {
  const auto [machine, nodes] = GENERATE(std::pair<std::string, int>{"dgx-h100", 1},
                                         std::pair<std::string, int>{"dgx-h100", 2});
  const int kv_heads = GENERATE(4, 32);
  const sim::Cluster cluster = world(machine, nodes);
  for (const Framework* f : frameworks::all()) {
    const Request request = request_for(*f, cluster, kv_heads);
    int written = 0;
    for (const SequencePlan& plan : legal_plans(request, nullptr)) {
      INFO(f->name << ": " << short_name(plan));
      const std::vector<Cannot> reasons = cannot(*f, request, candidate_of(plan));
      for (const Cannot& reason : reasons) {
        CHECK_FALSE(reason.rule.empty());
        CHECK_THAT(reason.what, ContainsSubstring(std::string(f->name)));
        CHECK_THAT(reason.source, ContainsSubstring("https://"));
      }
      if (!reasons.empty()) {
        continue;
      }
      ++written;
      const Exported result = exported(*f, request, candidate_of(plan));
      REQUIRE(result.shown.has_value());
      CHECK(result.shown->plan.attention == plan);
      REQUIRE_FALSE(result.snippet.blocks.empty());
      for (const Block& block : result.snippet.blocks) {
        CHECK(block.text.ends_with('\n'));
      }
    }
    INFO(f->name);
    CHECK((written > 0 || (nodes > 1 && !f->one_node.empty())));
  }
}

TEST_CASE("a search for a framework finds what it can run, and rejects by its rules") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  for (const Framework* f : frameworks::all()) {
    INFO(f->name);
    Request request = request_for(*f, cluster, 8);
    std::vector<SequencePlan> can;
    for (const SequencePlan& plan : legal_plans(request, nullptr)) {
      if (cannot(*f, request, candidate_of(plan)).empty()) {
        can.push_back(plan);
      }
    }
    request.framework = f;
    std::vector<Rejected> rejected;
    CHECK(legal_plans(request, &rejected) == can);
    CHECK(std::ranges::any_of(rejected, [&](const Rejected& r) {
      return r.detail.starts_with(f->name) && r.detail.find("https://") != std::string::npos;
    }));
  }
}

TEST_CASE("Megatron runs zigzag with Ulysses inside, on heads that divide") {
  const Problem problem = causal(65536, 64, 8);
  const SequencePlan plan{.strategy = "usp", .ulysses = 8, .ring = 4, .layout = Layout::zigzag};
  CHECK(rules("megatron", plan, problem).empty());
  SequencePlan other = plan;
  other.layout = Layout::striped;
  CHECK(rules("megatron", other, problem) == Rules{"layout"});
  other = plan;
  other.order = {Axis::ring, Axis::team, Axis::ulysses};
  CHECK(rules("megatron", other, problem) == Rules{"order"});
  CHECK(rules("transformer-engine", other, problem).empty());  // groups are the caller's
  other = plan;
  other.ulysses = 16;
  other.heads = HeadPolicy::replicate;
  CHECK(rules("megatron", other, problem) == Rules{"heads"});
  other = {.strategy = "all-gather", .ulysses = 8, .ring = 4, .layout = Layout::zigzag};
  CHECK(rules("megatron", other, problem) == Rules{"axes"});
  other = {.strategy = "startrail",
           .ring = 16,
           .own = {{&parameters::team, 2}},
           .layout = Layout::zigzag};
  CHECK(rules("megatron", other, problem) == Rules{"framework"});
  CHECK(rules("megatron", plan, causal(65504, 64, 8)) == Rules{"sequence"});
}

TEST_CASE("Megatron cuts each packed document, in a ring alone") {
  Problem packed = causal(65536, 64, 8);
  packed.mask.document_ends = {1000, 65536};
  const SequencePlan plan{.strategy = "zigzag-ring", .ring = 8, .layout = Layout::document_zigzag};
  CHECK(rules("megatron", plan, packed).empty());
  CHECK(rules("transformer-engine", plan, packed).empty());
  CHECK(rules("ring-flash-attention", plan, packed).empty());
  CHECK(rules("torchtitan", plan, packed) == Rules{"layout"});
  SequencePlan other = plan;
  other.layout = Layout::zigzag;
  CHECK(rules("megatron", other, packed) == Rules{"layout"});
  CHECK(rules("yunchang", other, packed) == Rules{"documents"});
  CHECK(rules("ring-flash-attention", other, packed) == Rules{"layout"});
  other = {.strategy = "usp", .ulysses = 4, .ring = 2, .layout = Layout::document_zigzag};
  CHECK(rules("megatron", other, packed).contains("documents"));
}

TEST_CASE("without a mask all layouts do the same, so that none is refused") {
  Problem problem = causal(65536, 32, 8);
  problem.mask.kind = MaskKind::full;
  CHECK(rules("megatron", {.strategy = "usp", .ulysses = 4, .ring = 2}, problem).empty());
}

TEST_CASE("ms-swift's Ulysses degree is the greatest common divisor of KV heads and ranks") {
  const Problem problem = causal(65536, 28, 4);
  const SequencePlan plan{.strategy = "usp", .ulysses = 4, .ring = 2, .layout = Layout::zigzag};
  CHECK(rules("ms-swift", plan, problem).empty());
  SequencePlan other = plan;
  other.ulysses = 2;
  other.ring = 4;
  CHECK(rules("ms-swift", other, problem) == Rules{"degrees"});
}

TEST_CASE("diffusers pads heads without a ring only, and its ring gathers") {
  Problem problem = causal(65536, 30, 30);
  problem.mask.kind = MaskKind::full;
  CHECK(rules("diffusers", {.strategy = "ulysses", .ulysses = 8, .heads = HeadPolicy::pad}, problem)
            .empty());
  CHECK(rules("diffusers",
              {.strategy = "all-gather", .ulysses = 4, .ring = 2, .heads = HeadPolicy::pad},
              problem) == Rules{"heads"});
  CHECK(rules("diffusers", {.strategy = "usp", .ulysses = 2, .ring = 4}, problem) ==
        Rules{"framework"});
}

TEST_CASE("a training step keeps to the ZeRO stages and recomputation of its framework") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  const Framework& torchtitan = named("torchtitan");
  Request request = request_for(torchtitan, cluster, 8);
  request.model = ModelLibrary(test::source_path("models")).load("llama-3.1-8b", "test");
  request.phase = StepPhase::train;
  request.framework = &torchtitan;
  const PlanResult result = plan(request);
  REQUIRE_FALSE(result.candidates.empty());
  for (const Candidate& c : result.candidates) {
    CHECK(c.plan.zero >= 2);
    CHECK(c.plan.recompute.kind != Recompute::selective);
  }
  request.step.zero = 1;
  const PlanResult none = plan(request);
  CHECK(none.candidates.empty());
  REQUIRE(none.rejected.size() == 1);
  CHECK(none.rejected[0].rule == "zero");
}

TEST_CASE("a degree that is given and that a framework lacks is no plan of it") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  Request request = test::step_request(cluster, "wan2.1-t2v-1.3b", 8192);
  request.phase = StepPhase::prefill;
  request.problem.mask = request.model->mask.over(request.problem.seq);
  request.framework = &frameworks::by_name("wan", "test");
  REQUIRE_FALSE(plan(request).candidates.empty());
  const auto rule_of = [&](const StepChoices& given) {
    request.step = given;
    const PlanResult result = plan(request);
    CHECK(result.candidates.empty());
    return result.rejected.empty() ? "" : result.rejected.front().rule;
  };
  CHECK(rule_of({.tensor = 2}) == "tensor");
  CHECK(rule_of({.pipeline = 2}) == "pipeline");
  CHECK(rule_of({.data = 2, .global_batch = 2, .guidance = Guidance::apart}) == "guidance");
}

TEST_CASE("of a plan that a framework cannot run the fastest that it can is shown, with its loss") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  const Framework& deepspeed = named("deepspeed");
  const Request request = request_for(deepspeed, cluster, 8);
  const SequencePlan ring{.strategy = "striped-ring", .ring = 8, .layout = Layout::striped};
  const Exported result = exported(deepspeed, request, evaluate(request, ring).candidate);
  CHECK(result.cannot.size() == 1);
  REQUIRE(result.shown.has_value());
  CHECK(result.shown->plan.attention.strategy == "ulysses");
  REQUIRE(result.loss.has_value());
  const double step = evaluate(request, ring).candidate.predicted.step.count();
  CHECK(*result.loss == Catch::Approx(result.shown->predicted.step.count() / step - 1));
  CHECK_THAT(result.snippet.blocks.back().text, ContainsSubstring("sequence_parallel_size=8"));
}

TEST_CASE("against a plan that does not fit there is no loss") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  const Framework& deepspeed = named("deepspeed");
  const Request request = request_for(deepspeed, cluster, 8);
  Candidate wanted =
      evaluate(request, {.strategy = "striped-ring", .ring = 8, .layout = Layout::striped})
          .candidate;
  wanted.predicted.fits = false;
  const Exported result = exported(deepspeed, request, wanted);
  CHECK(result.shown.has_value());
  CHECK_FALSE(result.loss.has_value());
}

TEST_CASE("U8xR4 for Megatron") {
  const sim::Cluster cluster = world("dgx-h100", 4);
  Request request = request_for(named("megatron"), cluster, 8);
  request.model = ModelLibrary(test::source_path("models")).load("llama-3.1-70b", "test");
  request.problem.q_heads = 64;
  request.phase = StepPhase::train;
  Candidate c =
      candidate_of({.strategy = "usp", .ulysses = 8, .ring = 4, .layout = Layout::zigzag});
  c.plan.zero = 1;
  c.plan.recompute.kind = Recompute::full;
  const Exported result = exported(named("megatron"), request, c);
  REQUIRE(result.snippet.blocks.size() == 1);
  CHECK(result.snippet.blocks[0].text == R"(export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc-per-node 8 --nnodes 4 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port 29500 pretrain_gpt.py \
    --transformer-impl transformer_engine \
    --num-layers 80 \
    --hidden-size 8192 \
    --ffn-hidden-size 28672 \
    --num-attention-heads 64 \
    --kv-channels 128 \
    --group-query-attention \
    --num-query-groups 8 \
    --position-embedding-type rope \
    --normalization RMSNorm \
    --swiglu \
    --disable-bias-linear \
    --untie-embeddings-and-output-weights \
    --seq-length 65536 \
    --max-position-embeddings 65536 \
    --micro-batch-size 1 \
    --global-batch-size 1 \
    --attention-dropout 0 \
    --hidden-dropout 0 \
    --bf16 \
    --tensor-model-parallel-size 1 \
    --pipeline-model-parallel-size 1 \
    --recompute-granularity full \
    --recompute-method uniform \
    --recompute-num-layers 1 \
    --context-parallel-size 32 \
    --cp-comm-type a2a+p2p \
    --hierarchical-context-parallel-sizes 8 4 \
    --use-distributed-optimizer \
    --overlap-grad-reduce \
    "${DATA_ARGS[@]}"
)");
}

TEST_CASE("Megatron's flags say which activation an MLP has, or a note that none does") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = request_for(named("megatron"), cluster, 8);
  request.phase = StepPhase::train;
  const auto snippet = [&](std::string_view model, const auto& change) {
    request.model = ModelLibrary(test::source_path("models")).load(model, "test");
    change(*request.model);
    request.problem.q_heads = request.model->q_heads;
    request.problem.kv_heads = request.model->kv_heads;
    Candidate c = candidate_of({.strategy = "ulysses"});
    c.plan.data = 8;
    return exported(named("megatron"), request, c).snippet;
  };
  const auto same = [](Model&) {};
  const Snippet oss = snippet("gpt-oss-20b", same);
  CHECK_THAT(oss.blocks[0].text,
             ContainsSubstring("--quick-geglu \\\n    --glu-linear-offset 1.0 \\\n    "
                               "--activation-func-clamp-value 7.0"));
  CHECK_THAT(oss.blocks[0].text, !ContainsSubstring("--swiglu"));
  const Snippet gelu =
      snippet("llama-3.1-8b", [](Model& model) { model.activation = Activation::gelu; });
  CHECK_THAT(gelu.blocks[0].text, !ContainsSubstring("--swiglu"));
  CHECK(std::ranges::any_of(gelu.notes, [](const std::string& note) {
    return note.starts_with("No flag of Megatron-LM asks for the gated activation");
  }));
}

TEST_CASE("of what else a plan was to do as much is kept as can be, and the rest is said") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  const Framework& swift = named("ms-swift");
  Request request = test::step_request(cluster, "qwen2.5-7b", 65536);
  request.step = {
      .global_batch = 8, .zero = 3, .recompute = Recompute::full, .offload = Offload::optimizer};
  request.fixed = {.ring = 8};
  const StepPlan ring = default_step(request);
  const auto shown = [&] { return exported(swift, request, evaluate(request, ring).candidate); };
  const auto says = [](const Exported& e, std::string_view words) {
    return std::ranges::any_of(e.snippet.notes, [&](const std::string& note) {
      return note.find(words) != std::string::npos;
    });
  };
  const Exported kept = shown();
  REQUIRE(kept.shown.has_value());
  CHECK(kept.shown->plan.recompute.kind == Recompute::full);
  CHECK(kept.shown->plan.offload == Offload::optimizer);
  CHECK_FALSE(says(kept, "Not as asked for"));
  request.step.zero_group = 4;
  const Exported let_go = shown();
  REQUIRE(let_go.shown.has_value());
  CHECK(says(let_go, "ZeRO groups of 0 instead of 4"));
}

TEST_CASE("layers that attend in chunks are no causal ones where a sequence has several chunks") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = test::step_request(cluster, "llama-4-scout-17b-16e", 65536);
  const auto rules = [&] {
    const SequencePlan ring{.strategy = "zigzag-ring", .ring = 8, .layout = Layout::zigzag};
    return cannot(named("accelerate"), ring, request.problem, traits_of(request));
  };
  REQUIRE(rules().size() == 1);
  CHECK(rules()[0].rule == "window");
  request.problem.seq = 8192;
  CHECK(rules().empty());
}

TEST_CASE("torchtitan splits experts over whole groups that share a sequence") {
  const sim::Cluster cluster = world("dgx-h100", 2);
  const Framework& titan = named("torchtitan");
  Request request = test::step_request(cluster, "qwen3-30b-a3b", 32768);
  const StackSpec stack = test::catalog().stack("torchtitan", "test");
  request.run_by(stack);
  const auto refused = [&](int expert, int expert_tensor) {
    Candidate c;
    c.plan = {.attention = {.strategy = "zigzag-ring", .ring = 4, .layout = Layout::zigzag},
              .tensor = 2,
              .data = 2,
              .expert = expert,
              .expert_tensor = expert_tensor,
              .micro_batches = 1,
              .zero = 3};
    const std::vector<Cannot> reasons = cannot(titan, request, c);
    return std::ranges::find(reasons, "expert", &Cannot::rule) != reasons.end();
  };
  CHECK_FALSE(refused(1, 2));  // over the tensor ranks, as the rest
  CHECK(refused(1, 1));
  CHECK_FALSE(refused(4, 2));  // the ranks of a sequence
  CHECK_FALSE(refused(8, 2));
  CHECK(refused(2, 2));
  CHECK_FALSE(refused(8, 1));  // and their tensor ranks
  CHECK_FALSE(refused(16, 1));
  CHECK(refused(4, 1));
  request.framework = &titan;
  request.step.expert = 16;
  const Candidate best = plan(request).candidates.at(0);
  CHECK(best.plan.expert == 16);
  CHECK_THAT(exported(titan, request, best).snippet.blocks.at(0).text,
             ContainsSubstring("--parallelism.expert-parallel-degree 16"));
}

TEST_CASE("what attends in chunks no flag of Megatron says") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = request_for(named("megatron"), cluster, 8);
  request.phase = StepPhase::train;
  request.model = ModelLibrary(test::source_path("models")).load("llama-4-scout-17b-16e", "test");
  const std::vector<Cannot> reasons = cannot(named("megatron"), request);
  REQUIRE(reasons.size() == 1);
  CHECK_THAT(reasons[0].what, ContainsSubstring("no layers that attend in chunks"));
}

TEST_CASE("servers know of what is cached, code around one call meets nothing of it") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = request_for(named("vllm"), cluster, 8);
  request.model = ModelLibrary(test::source_path("models")).load("llama-3.1-8b", "test");
  request.phase = StepPhase::prefill;
  request.problem.seq = 8192;
  request.problem.cached = 122880;
  Candidate c = candidate_of({.strategy = "ulysses"});
  c.plan.tensor = 8;
  const auto text = [&](std::string_view name) {
    const Exported result = exported(named(name), request, c);
    REQUIRE(result.cannot.empty());
    return result.snippet.blocks.front().text;
  };
  CHECK_THAT(text("vllm"), ContainsSubstring("--max-model-len 131072") &&
                               ContainsSubstring("--max-num-batched-tokens 8192"));
  CHECK_THAT(text("sglang"), ContainsSubstring("--context-length 131072") &&
                                 ContainsSubstring("--chunked-prefill-size 8192"));
  // In one pass as planned, where servers would make several of it.
  request.problem.cached = 0;
  request.problem.seq = 32768;
  CHECK_THAT(text("vllm"), ContainsSubstring("--max-num-batched-tokens 32768"));
  CHECK_THAT(text("sglang"), ContainsSubstring("--chunked-prefill-size 32768"));
  request.problem.seq = 2048;
  CHECK_THAT(text("vllm"), !ContainsSubstring("--max-num-batched-tokens"));
  CHECK_THAT(text("sglang"), !ContainsSubstring("--chunked-prefill-size"));
  request.problem.cached = 122880;
  request.problem.seq = 512;  // fewer than the sequences that vLLM decodes at once
  CHECK_THAT(text("vllm"), ContainsSubstring("--max-num-batched-tokens 512") &&
                               ContainsSubstring("--max-num-seqs 512"));
  request.phase = StepPhase::forward;
  const std::vector<Cannot> reasons = cannot(named("yunchang"), request);
  CHECK(std::ranges::find(reasons, "cached", &Cannot::rule) != reasons.end());
}

TEST_CASE("shards that have copies are in the text, or refused") {
  const sim::Cluster cluster = world("dgx-h100", 4);
  Request request = request_for(named("torchtitan"), cluster, 8);
  request.model = ModelLibrary(test::source_path("models")).load("llama-3.1-8b", "test");
  request.phase = StepPhase::train;
  Candidate c = candidate_of({.strategy = "zigzag-ring", .ring = 4, .layout = Layout::zigzag});
  c.plan.data = 8;
  c.plan.zero = 3;
  c.plan.zero_group = 8;
  const auto text = [&](std::string_view name) {
    const Exported result = exported(named(name), request, c);
    INFO(name);
    CHECK(result.cannot.empty());
    std::string all;
    for (const Block& block : result.snippet.blocks) {
      all += block.text;
    }
    return all;
  };
  CHECK_THAT(text("torchtitan"), ContainsSubstring("data-parallel-replicate-degree 4") &&
                                     ContainsSubstring("data-parallel-shard-degree 2"));
  CHECK_THAT(text("accelerate"),
             ContainsSubstring("dp_replicate_size: 4") && ContainsSubstring("dp_shard_size: 2"));
  CHECK_THAT(text("megatron"), ContainsSubstring("--num-distributed-optimizer-instances 4"));
  CHECK_THAT(text("megatron-bridge"),
             ContainsSubstring("cfg.ddp.num_distributed_optimizer_instances = 4"));
  const auto refused = [&](std::string_view name) {
    const std::vector<Cannot> reasons = cannot(named(name), request, c);
    const auto zero = std::ranges::find(reasons, "zero-group", &Cannot::rule);
    return zero == reasons.end() ? "" : zero->what;
  };
  CHECK(refused("torchtitan") == "");
  CHECK(refused("maxtext") ==
        "the text written for maxtext cuts shards over all 32 sequence x data ranks, not over 8");
  request.model = ModelLibrary(test::source_path("models")).load("mixtral-8x7b", "test");
  CHECK_THAT(refused("megatron"), ContainsSubstring("cuts experts into as many copies"));
  request.model = ModelLibrary(test::source_path("models")).load("llama-3.1-8b", "test");
  c.plan.attention = {.strategy = "ulysses", .ulysses = 4};
  CHECK_THAT(text("verl"), ContainsSubstring("fsdp_config.fsdp_size=8"));
  CHECK_THAT(refused("accelerate"), ContainsSubstring("not over 8"));
  c.plan.zero_group = 2;
  CHECK(refused("verl") ==
        "verl cuts shards over whole data ranks, and 2 ranks are no multiple of the sequence's 4");
}

TEST_CASE("of a step's batch, types and memory the texts say what the plan says") {
  const sim::Cluster cluster = world("dgx-h100", 2);
  const auto text = [&](std::string_view name, const Candidate& c) {
    Request request = test::step_request(cluster, "llama-3.1-8b", 65536);
    request.problem.mask = request.model->mask.over(request.problem.seq);
    const Exported result = exported(named(name), request, c);
    INFO(name);
    REQUIRE(result.cannot.empty());
    std::string all;
    for (const Block& block : result.snippet.blocks) {
      all += block.text;
    }
    return all;
  };
  Candidate c = candidate_of({.strategy = "ulysses", .ulysses = 4});
  c.plan.data = 4;
  c.plan.micro_batch = 2;
  c.plan.micro_batches = 8;
  c.plan.zero = 2;
  c.plan.offload = Offload::optimizer;
  CHECK_THAT(text("ms-swift", c), ContainsSubstring("--gradient_accumulation_steps 8") &&
                                      ContainsSubstring("--deepspeed zero2_offload"));
  CHECK_THAT(text("deepspeed", c),
             ContainsSubstring("\"gradient_accumulation_steps\": 8") &&
                 ContainsSubstring("\"offload_optimizer\": {\n      \"device\": \"cpu\""));
  CHECK_THAT(text("verl", c), ContainsSubstring("ppo_mini_batch_size=64") &&
                                  ContainsSubstring("ppo_micro_batch_size_per_gpu=2"));
  c.plan.zero = 1;
  CHECK_THAT(text("megatron", c), ContainsSubstring("--global-batch-size 64") &&
                                      ContainsSubstring("--optimizer-cpu-offload"));
  c.plan.zero = 3;
  CHECK_THAT(text("internevo", c), ContainsSubstring("micro_num=8, micro_bsz=2") &&
                                       ContainsSubstring("weight=dict(size=16,"));
  c.plan.zero_group = 8;
  CHECK_THAT(text("internevo", c),
             ContainsSubstring("weight=dict(size=8,") && ContainsSubstring("zero1=dict(size=1)"));
  c.plan.zero_group = 0;
  c.plan.recompute = {.kind = Recompute::selective,
                      .modules = {RecomputeModule::core_attention, RecomputeModule::norms}};
  CHECK_THAT(text("megatron", c), ContainsSubstring("--recompute-modules core_attn layernorm"));
  CHECK_THAT(text("megatron-bridge", c),
             ContainsSubstring("recompute_modules = [\"core_attn\", \"layernorm\"]") &&
                 ContainsSubstring("cfg.mixed_precision = \"bf16_mixed\""));
  c.plan.attention = {.strategy = "zigzag-ring", .ring = 4, .layout = Layout::zigzag};
  c.plan.recompute = {.kind = Recompute::none};
  c.plan.tensor = 2;
  c.plan.data = 2;
  CHECK_THAT(text("maxtext", c), ContainsSubstring("ici_tensor_sequence_parallelism=2"));
  c.plan.recompute = {.kind = Recompute::selective,
                      .modules = {RecomputeModule::every_second_gemm}};
  CHECK_THAT(text("torchtitan", c), ContainsSubstring("selective-ac-option op"));
}

TEST_CASE("stages that a framework makes of layers dealt out evenly divide them, or are refused") {
  const sim::Cluster cluster = world("dgx-h100", 16);
  Request request = test::step_request(cluster, "llama-3.1-405b", 8192);
  request.problem.mask = request.model->mask.over(request.problem.seq);
  const auto refused = [&](std::string_view name, int stages, int chunks) {
    Candidate c = candidate_of({});
    c.plan.pipeline = stages;
    c.plan.virtual_stages = chunks;
    c.plan.order = chunks > 1 ? "interleaved" : "1f1b";
    c.plan.micro_batches = stages;
    c.plan.zero = 1;
    const std::vector<Cannot> reasons = cannot(named(name), request, c);
    return std::ranges::find(reasons, "pipeline", &Cannot::rule) != reasons.end();
  };
  CHECK_FALSE(refused("maxtext", 1, 1));  // 126 layers
  CHECK_FALSE(refused("maxtext", 2, 3));
  CHECK(refused("maxtext", 2, 4));
  CHECK(refused("maxtext", 32, 4));
  CHECK_FALSE(refused("internevo", 4, 1));  // chunks alone are alike
  CHECK_FALSE(refused("internevo", 16, 6));
  CHECK(refused("internevo", 4, 4));
  CHECK(refused("internevo", 32, 6));  // chunks of 21 layers
  CHECK_FALSE(refused("megatron", 32, 4));
  request.step.pipeline = 4;
  CHECK(cannot(named("maxtext"), request).at(0).what ==
        "maxtext deals out layers evenly, as many to every virtual stage, and llama-3.1-405b has "
        "126: not 4 stages x 1");
  request.step = {.global_batch = 256};
  request.framework = &named("maxtext");
  const PlanResult found = plan(request);
  REQUIRE_FALSE(found.candidates.empty());
  for (const Candidate& c : found.candidates) {
    CHECK(126 % (c.plan.pipeline * c.plan.virtual_stages) == 0);
  }
}

TEST_CASE("torchtitan makes the plan's stages of what is written for it") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = test::step_request(cluster, "llama-3.1-8b", 8192);
  request.problem.mask = request.model->mask.over(request.problem.seq);
  Candidate c = candidate_of({});
  c.plan.pipeline = 4;
  c.plan.data = 2;
  c.plan.micro_batches = 8;
  c.plan.zero = 2;
  for (const auto& [layers, chunks] : {std::pair(32, 1), {30, 1}, {31, 1}, {32, 2}, {32, 4}}) {
    request.model->layers = layers;
    c.plan.virtual_stages = chunks;
    c.plan.order = chunks > 1 ? "interleaved" : "1f1b";
    const Exported result = exported(named("torchtitan"), request, c);
    REQUIRE(result.cannot.empty());
    const std::string& text = result.snippet.blocks.at(0).text;
    const auto value = [&](const std::string& key) {
      const std::string option = "--parallelism.pipeline-parallel-" + key + " ";
      REQUIRE_THAT(text, ContainsSubstring(option));
      return std::stoll(text.substr(text.find(option) + option.size()));
    };
    // generate_llm_fqn_per_model_part: ends count, the first stages have what is left over.
    const std::int64_t first = value("first-stage-less-layers");
    const std::int64_t last = value("last-stage-less-layers");
    const std::int64_t all = layers + first + last;
    const std::int64_t each = value("layers-per-stage");
    const std::int64_t count = (all + each - 1) / each;
    const std::vector<Stage> stages = stages_of(*request.model, c.plan, false, 0);
    INFO(layers << " layers, " << chunks << " virtual stages");
    REQUIRE(count == std::ssize(stages));
    for (std::int64_t s = 0; s < count; ++s) {
      CHECK(all / count + (s < all % count ? 1 : 0) - (s == 0 ? first : 0) -
                (s + 1 == count ? last : 0) ==
            stages[static_cast<std::size_t>(s)].layers);
    }
  }
}

TEST_CASE("Megatron's text says how experts are split where no rank shares them, too") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  const Request request = test::step_request(cluster, "mixtral-8x7b", 32768);
  Candidate c = candidate_of({});
  c.plan.tensor = 8;
  c.plan.zero = 1;
  CHECK_THAT(exported(named("megatron"), request, c).snippet.blocks[0].text,
             ContainsSubstring("--expert-model-parallel-size 1 \\\n    "
                               "--expert-tensor-parallel-size 1"));
}

TEST_CASE("libraries of attention make a group for each sequence where several are worked on") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = test::step_request(cluster, "llama-3.1-8b", 65536);
  Candidate c = candidate_of({.strategy = "zigzag-ring", .ring = 4, .layout = Layout::zigzag});
  c.plan.data = 2;
  const auto text = [&](std::string_view name) {
    return exported(named(name), request, c).snippet.blocks[0].text;
  };
  CHECK_THAT(text("ring-flash-attention"),
             ContainsSubstring("group, _ = dist.new_subgroups(group_size=4)"));
  CHECK_THAT(text("yunchang"), ContainsSubstring("dist.get_rank() % 4, world_size=4"));
  CHECK_THAT(text("transformer-engine"),
             ContainsSubstring("cp_global_ranks=[dist.get_rank() // 4 * 4 + rank for rank in [0, "
                               "1, 2, 3]]"));
  c.plan.attention = {.strategy = "usp", .ulysses = 2, .ring = 2, .layout = Layout::zigzag};
  CHECK_THAT(text("transformer-engine"),
             ContainsSubstring("a2a_group = group_of([[0, 1], [2, 3], [4, 5], [6, 7]])"));
  c.plan.attention = {.strategy = "ulysses", .ulysses = 4};
  request.model->attention_sinks = true;
  CHECK_THAT(text("transformer-engine"), ContainsSubstring("softmax_type=\"learnable\""));
}

TEST_CASE("a ring under FSDP2 for Accelerate") {
  const sim::Cluster cluster = world("dgx-h100", 2);
  Request request = request_for(named("accelerate"), cluster, 8);
  request.phase = StepPhase::train;
  Candidate c = candidate_of({.strategy = "zigzag-ring", .ring = 16, .layout = Layout::zigzag});
  c.plan.zero = 3;
  c.plan.recompute.kind = Recompute::full;
  const Exported result = exported(named("trl"), request, c);
  REQUIRE(result.snippet.blocks.size() == 2);
  CHECK(result.snippet.blocks[1].file == "accelerate.yaml");
  CHECK(result.snippet.blocks[1].text == R"(compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_machines: 2
num_processes: 16
machine_rank: 0
mixed_precision: 'bf16'
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_reshard_after_forward: true
  fsdp_activation_checkpointing: true
parallelism_config:
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 1
  parallelism_config_tp_size: 1
  parallelism_config_cp_size: 16
  parallelism_config_cp_comm_strategy: alltoall
)");
}

TEST_CASE("under Accelerate precision is DeepSpeed's, and every node is started by hand") {
  const sim::Cluster cluster = world("dgx-h100", 2);
  Request request = request_for(named("accelerate"), cluster, 32);
  request.phase = StepPhase::train;
  Candidate c = candidate_of({.strategy = "ulysses", .ulysses = 16});
  c.plan.zero = 3;
  const Exported result = exported(named("accelerate"), request, c);
  REQUIRE(result.snippet.blocks.size() == 3);
  CHECK_THAT(result.snippet.blocks[1].text,
             ContainsSubstring("  deepspeed_config_file: ds_config.json\n"
                               "  deepspeed_multinode_launcher: standard\n") &&
                 !ContainsSubstring("mixed_precision"));
  CHECK_THAT(result.snippet.blocks[2].text, ContainsSubstring("\"bf16\""));
}

TEST_CASE("Megatron and its recipes take each number format by its own word") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  const Request request = test::step_request(cluster, "llama-3.1-8b", 8192);
  Candidate c = candidate_of({.strategy = "ulysses", .ulysses = 8});
  const auto text = [&](std::string_view name, GemmFormat format) {
    c.plan.format = format;
    return exported(named(name), request, c).snippet.blocks[0].text;
  };
  CHECK_THAT(text("megatron", GemmFormat::fp8), ContainsSubstring("--fp8-recipe tensorwise"));
  CHECK_THAT(text("megatron", GemmFormat::fp8_block), ContainsSubstring("--fp8-recipe blockwise"));
  CHECK_THAT(text("megatron", GemmFormat::mxfp8), ContainsSubstring("--fp8-recipe mxfp8"));
  CHECK_THAT(text("megatron-bridge", GemmFormat::fp8_block),
             ContainsSubstring("bf16_with_fp8_subchannel_scaling_mixed") &&
                 ContainsSubstring("cfg.model.attention_dropout = 0.0") &&
                 ContainsSubstring("cfg.model.hidden_dropout = 0.0"));
}

TEST_CASE("more tensor ranks than KV heads are refused, or what becomes of them is noted") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = test::step_request(cluster, "qwen3-30b-a3b", 8192);  // 4 KV heads
  Candidate c = candidate_of({.strategy = "ulysses"});
  c.plan.tensor = 8;
  const auto refused = [&](std::string_view name) {
    const std::vector<Cannot> reasons = cannot(named(name), request, c);
    return std::ranges::find(reasons, "heads", &Cannot::rule) != reasons.end();
  };
  for (const std::string_view name : {"mindspeed", "torchtitan", "accelerate", "maxtext"}) {
    INFO(name);
    CHECK(refused(name));
  }
  CHECK_FALSE(refused("megatron"));
  const std::vector<std::string> notes = exported(named("megatron"), request, c).snippet.notes;
  CHECK(std::ranges::any_of(notes, [](const std::string& note) {
    return note.starts_with("8 tensor ranks over 4 KV heads");
  }));
  c.plan.tensor = 4;
  CHECK_FALSE(refused("torchtitan"));
}

TEST_CASE("on one GPU diffusers is not asked for what it refuses to make") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = test::step_request(cluster, "flux.1-dev", 4608);
  request.phase = StepPhase::prefill;
  request.problem.mask = request.model->mask.over(request.problem.seq);
  const auto text = [&](int ulysses) {
    return exported(named("diffusers"), request,
                    candidate_of({.strategy = "ulysses", .ulysses = ulysses}))
        .snippet.blocks[1]
        .text;
  };
  CHECK_THAT(text(8), ContainsSubstring("config=ContextParallelConfig(ulysses_degree=8)"));
  CHECK_THAT(text(1), !ContainsSubstring("ContextParallelConfig"));
}

TEST_CASE("packed samples go through Axolotl one sequence at once") {
  Problem problem = causal(65536, 32, 8);
  const SequencePlan gathers{.strategy = "all-gather", .ring = 8};
  CHECK(rules("axolotl", gathers, problem).empty());
  problem.batch = 2;
  CHECK(rules("axolotl", gathers, problem) == Rules{"batch"});
  CHECK(rules("axolotl", {.strategy = "ring", .ring = 8}, problem).empty());
}

TEST_CASE(
    "hybrid models go to frameworks that load them, with their linear attention in one piece") {
  const sim::Cluster cluster = world("dgx-h100", 2);
  Request request = test::step_request(cluster, "qwen3.5-27b", 32768);
  request.step.global_batch = 16;
  request.framework = &named("deepspeed");
  const PlanResult result = plan(request);
  REQUIRE_FALSE(result.candidates.empty());
  for (const Candidate& c : result.candidates) {
    CHECK(c.plan.sequence() == 1);
  }
  CHECK(std::ranges::any_of(result.rejected, [](const Rejected& r) {
    return r.detail.starts_with(
        "deepspeed has no layers of linear attention between sequence ranks");
  }));
  const std::vector<Cannot> written = cannot(named("megatron"), request);
  REQUIRE_FALSE(written.empty());
  CHECK(written.front().rule == "linear");
  CHECK(cannot(named("deepspeed"), request).empty());
}

TEST_CASE(
    "a plan that splits no sequence goes to every framework, whatever it splits sequences with") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = test::step_request(cluster, "llama-3.1-70b", 32768);
  request.phase = StepPhase::prefill;
  request.step.tensor = 8;
  for (const std::string_view name : {"vllm", "sglang"}) {
    INFO(name);
    request.framework = &named(name);
    const PlanResult result = plan(request);
    REQUIRE_FALSE(result.candidates.empty());
    CHECK(result.candidates.front().plan.tensor == 8);
    CHECK(result.candidates.front().plan.sequence() == 1);
  }
}

TEST_CASE("diffusion transformers do not go to frameworks for language models, nor the reverse") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  const auto refused = [&](std::string_view framework, const std::string& model, StepPhase phase) {
    Request request = test::step_request(cluster, model, 8192);
    request.problem.mask = request.model->mask.over(request.problem.seq);
    request.phase = phase;
    for (const Cannot& reason : cannot(named(framework), request)) {
      if (reason.rule == "model") {
        return reason.what;
      }
    }
    return std::string();
  };
  for (const std::string_view name :
       {"verl", "deepspeed", "mindspeed", "torchtitan", "accelerate", "megatron", "maxtext"}) {
    INFO(name);
    CHECK_THAT(refused(name, "flux.1-dev", StepPhase::train),
               ContainsSubstring("is for language models, and flux.1-dev is a diffusion"));
    CHECK(refused(name, "llama-3.1-8b", StepPhase::train).empty());
  }
  for (const std::string_view name : {"vllm", "sglang"}) {
    CHECK_FALSE(refused(name, "flux.1-dev", StepPhase::prefill).empty());
  }
  for (const std::string_view name :
       {"xdit", "wan", "hunyuanvideo", "diffusers", "cache-dit", "vllm-omni", "sglang-diffusion"}) {
    CHECK_THAT(refused(name, "llama-3.1-8b", StepPhase::prefill),
               ContainsSubstring("is for diffusion transformers, and llama-3.1-8b is a language"));
  }
  // Recipes of Megatron-Bridge train two families of them.
  CHECK(refused("megatron-bridge", "flux.1-dev", StepPhase::train).empty());
  CHECK_THAT(refused("megatron-bridge", "z-image", StepPhase::train),
             ContainsSubstring("megatron-bridge has no z-image, but FLUX.1"));
}

TEST_CASE("a model's own program runs that model alone") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  const auto runs = [&](std::string_view framework, const std::string& model) {
    Request request = test::step_request(cluster, model, 8192);
    request.problem.mask = request.model->mask.over(request.problem.seq);
    request.phase = StepPhase::prefill;
    return cannot(named(framework), request).empty();
  };
  CHECK(runs("wan", "wan2.1-t2v-14b"));
  CHECK_FALSE(runs("wan", "flux.1-dev"));
  CHECK(runs("hunyuanvideo", "hunyuanvideo"));
  CHECK_FALSE(runs("hunyuanvideo", "wan2.1-t2v-14b"));
  CHECK(runs("xdit", "z-image"));
  CHECK(runs("xdit", "cogvideox-5b"));
  CHECK_FALSE(runs("xdit", "llama-3.1-8b"));
}

TEST_CASE("xDiT has no tensor parallelism, cuts weights by FSDP, and branches where it can") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = test::step_request(cluster, "flux.1-dev", 4608);
  request.phase = StepPhase::prefill;
  request.problem.mask = request.model->mask.over(request.problem.seq);
  request.framework = &named("xdit");
  const PlanResult result = plan(request);
  REQUIRE_FALSE(result.candidates.empty());
  for (const Candidate& c : result.candidates) {
    CHECK(c.plan.tensor == 1);
  }
  Candidate c = candidate_of({.strategy = "usp", .ulysses = 4, .ring = 2});
  c.plan.zero = 3;
  const Exported cut = exported(named("xdit"), request, c);
  REQUIRE(cut.cannot.empty());
  CHECK_THAT(cut.snippet.blocks[0].text, ContainsSubstring("--fully_shard_degree 8") &&
                                             !ContainsSubstring("tensor_parallel_degree"));
  const auto branches = [&](const std::string& model) {
    Request guided = test::step_request(cluster, model, 4608);
    guided.phase = StepPhase::prefill;
    guided.problem.mask = guided.model->mask.over(guided.problem.seq);
    Candidate two = candidate_of({.strategy = "ulysses", .ulysses = 4});
    two.plan.guided = true;
    two.plan.data = 2;
    return cannot(named("xdit"), guided, two).empty();
  };
  CHECK(branches("wan2.1-t2v-14b"));
  CHECK_FALSE(branches("qwen-image"));
  // What the runner lacks goes by a script, which cuts no weights.
  request.model = ModelLibrary(test::source_path("models")).load("cogvideox-2b", "test");
  request.problem.q_heads = request.problem.kv_heads = 30;
  c.plan.attention = {.strategy = "ulysses", .ulysses = 6};
  CHECK_THAT(cannot(named("xdit"), request, c).front().what,
             ContainsSubstring("xdit has whole weights of CogVideoX on every GPU, not ZeRO 3"));
  c.plan.zero = 0;
  CHECK_THAT(exported(named("xdit"), request, c).snippet.blocks[0].text,
             ContainsSubstring("examples/cogvideox_example.py"));
}

TEST_CASE("tensor ranks that cut tokens divide them, or the plan is not the framework's") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  Request request = test::step_request(cluster, "llama-3.1-8b", 8191);
  request.step.global_batch = 8;
  for (const std::string_view name : {"megatron", "megatron-bridge", "mindspeed"}) {
    INFO(name);
    request.framework = &named(name);
    request.step.tensor.reset();
    const PlanResult result = plan(request);
    REQUIRE_FALSE(result.candidates.empty());
    for (const Candidate& c : result.candidates) {
      CHECK(c.plan.tensor == 1);
    }
    request.step.tensor = 8;
    const PlanResult none = plan(request);
    CHECK(none.candidates.empty());
    CHECK(std::ranges::any_of(none.rejected, [](const Rejected& r) {
      return r.rule == "sequence" &&
             r.detail.find("wants sequences of a multiple of 1 x 8 tokens") != std::string::npos;
    }));
  }
  // torchtitan's two pieces a rank are there at any degree.
  request.step = {};
  CHECK_FALSE(cannot(named("torchtitan"), request, candidate_of({.strategy = "ulysses"})).empty());
}

TEST_CASE("heads of two shapes go to frameworks whose text has none") {
  const sim::Cluster cluster = world("dgx-h100", 2);
  const Request request = test::step_request(cluster, "gemma-4-26b-a4b", 32768);
  const std::vector<Cannot> written = cannot(named("megatron"), request);
  REQUIRE_FALSE(written.empty());
  CHECK(written.front().rule == "heads");
  CHECK(cannot(named("accelerate"), request).empty());
}

TEST_CASE("TransformerEngine has sinks with a2a alone, windows without a ring") {
  const Problem problem = causal(65536, 64, 8);
  const auto of = [&](std::string_view strategy, int ulysses, int ring) {
    std::set<std::string> found;
    for (const Cannot& reason : cannot(named("transformer-engine"),
                                       {.strategy = std::string(strategy),
                                        .ulysses = ulysses,
                                        .ring = ring,
                                        .layout = Layout::zigzag},
                                       problem, {.sinks = true, .windows = true})) {
      found.insert(reason.rule);
    }
    return found;
  };
  CHECK(of("ulysses", 8, 1).empty());
  CHECK(of("all-gather", 1, 8) == Rules{"sinks"});
  CHECK(of("zigzag-ring", 1, 8) == Rules{"sinks", "window"});
  CHECK(of("usp", 4, 2) == Rules{"sinks", "window"});
}

TEST_CASE("MaxText's devices x per_device_batch_size, rounded down, are the plan's sequences") {
  const auto [gpus, data, micro_batch] = GENERATE(table<int, int, std::int64_t>(
      {{512, 1, 1}, {18, 6, 1}, {48, 1, 1}, {98, 2, 1}, {8, 8, 3}, {24, 8, 5}, {64, 4, 1}}));
  int nodes = (gpus + 7) / 8;
  while (gpus % nodes != 0) {
    ++nodes;
  }
  const MachineSpec spec = test::catalog().machine("dgx-h100", "test");
  const sim::Cluster cluster(sim::evenly_filled(spec, nodes, gpus), nodes, gpus);
  Request request = test::step_request(cluster, "llama-3.1-405b", 1 << 20);
  request.problem.seq = std::int64_t{16} * 1024 * gpus;
  request.problem.mask = request.model->mask.over(request.problem.seq);
  Candidate c =
      candidate_of({.strategy = "zigzag-ring", .ring = gpus / data, .layout = Layout::zigzag});
  c.plan.data = data;
  c.plan.micro_batch = micro_batch;
  c.plan.zero = 3;
  const Exported result = exported(named("maxtext"), request, c);
  REQUIRE(result.cannot.empty());
  const std::string& text = result.snippet.blocks[0].text;
  constexpr std::string_view key = "per_device_batch_size=";
  const double value = std::stod(text.substr(text.find(key) + key.size()));
  CHECK(static_cast<std::int64_t>(gpus * value) == micro_batch * data);
  CHECK(value == Catch::Approx(static_cast<double>(micro_batch * data) / gpus));
}

TEST_CASE("MaxText's axes fill a node, and what is left of them goes over nodes") {
  const sim::Cluster cluster(test::catalog().machine("dgx-h100", "test"), 4, 32);
  Request request = test::step_request(cluster, "llama-3.1-8b", 1 << 17);
  request.problem.mask = request.model->mask.over(request.problem.seq);
  Candidate c = candidate_of({.strategy = "zigzag-ring", .ring = 4, .layout = Layout::zigzag});
  c.plan.tensor = 4;
  c.plan.data = 2;
  c.plan.zero = 3;
  const Exported result = exported(named("maxtext"), request, c);
  REQUIRE(result.cannot.empty());
  const std::string& text = result.snippet.blocks[0].text;
  for (const char* line :
       {"ici_tensor_sequence_parallelism=4", "dcn_tensor_sequence_parallelism=1",
        "ici_context_parallelism=2", "dcn_context_parallelism=2", "ici_fsdp_parallelism=1",
        "dcn_fsdp_parallelism=2", "dcn_data_parallelism=1", "hardware=gpu"}) {
    CHECK_THAT(text, ContainsSubstring(line));
  }
}

TEST_CASE("attention in fp32 between ranks is not asked of kernels of 16 bits") {
  const sim::Cluster cluster(test::catalog().machine("dgx-h100", "test"), 1, 8);
  Request request = test::step_request(cluster, "llama-3.1-8b", 1 << 16);
  request.problem.mask = request.model->mask.over(request.problem.seq);
  request.problem.dtype = DType::fp32;
  Candidate c = candidate_of({.strategy = "ulysses", .ulysses = 8});
  c.plan.zero = 3;
  for (const std::string_view name : {"deepspeed", "accelerate", "megatron", "ms-swift"}) {
    INFO(name);
    CHECK(std::ranges::count(cannot(named(name), request, c), "dtype", &Cannot::rule) == 1);
  }
}

TEST_CASE("who starts as many processes on every node is not given nodes of unlike numbers") {
  const MachineSpec spec = test::catalog().machine("dgx-h100", "test");
  const auto rules_on = [&](std::string_view name, int gpus) {
    const sim::Cluster cluster(spec, 3, gpus);
    Request request = test::step_request(cluster, "llama-3.1-8b", 65536);
    request.problem.mask = request.model->mask.over(request.problem.seq);
    request.phase = named(name).trains ? StepPhase::train : StepPhase::prefill;
    Rules found;
    for (const Cannot& reason : cannot(named(name), request)) {
      found.insert(reason.rule);
    }
    return found;
  };
  for (const std::string_view name : {"verl", "accelerate", "vllm", "sglang"}) {
    INFO(name);
    CHECK(rules_on(name, 20) == Rules{"nodes"});
    CHECK(rules_on(name, 24).empty());
  }
  CHECK(rules_on("megatron", 20).empty());  // torchrun is told on each node
}

TEST_CASE("SGLang's MLPs divide over tensor x sequence ranks") {
  const sim::Cluster cluster = world("dgx-h100", 1);
  const auto refused = [&](const std::string& model, int ring) {
    Request request = test::step_request(cluster, model, 3 * 65536);
    request.problem.mask = request.model->mask.over(request.problem.seq);
    request.phase = StepPhase::prefill;
    Candidate c = candidate_of({.strategy = "all-gather", .ring = ring, .layout = Layout::zigzag});
    c.plan.expert_tensor = request.model->experts.count > 0 ? ring : 1;
    for (const Cannot& reason : cannot(named("sglang"), request, c)) {
      if (reason.rule == "mlp") {
        return reason.what;
      }
    }
    return std::string();
  };
  CHECK(
      refused("llama-3.1-8b", 6) ==
      "sglang splits MLPs over all tensor x sequence ranks: one 14336 wide is not divisible by 6");
  CHECK(refused("llama-3.1-8b", 8).empty());
  CHECK(refused("mixtral-8x7b", 6).empty());       // experts alone, which the plan splits
  CHECK_FALSE(refused("deepseek-v3", 6).empty());  // its shared expert
}
