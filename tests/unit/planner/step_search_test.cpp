// The search over whole steps against asking for every plan; the rules it keeps; its answers'
// reasons. Mirrors one class, hence one file.
#include "machine/machine.hpp"
#include "planner/decisions.hpp"
#include "planner/step.hpp"
#include "planner/step_space.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/requests.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using spp::test::message_of;
using spp::test::step_request;

namespace {

sim::Cluster h100_nodes(int nodes) {
  const MachineSpec spec = test::catalog().machine("dgx-h100", "test");
  return {spec, nodes, 8 * nodes};
}

std::vector<std::pair<int, SequencePlan>> pairs_of(const std::vector<int>& zeros,
                                                   const std::vector<SequencePlan>& plans) {
  std::vector<std::pair<int, SequencePlan>> pairs;
  for (const int zero : zeros) {
    for (const SequencePlan& plan : plans) {
      pairs.emplace_back(zero, plan);
    }
  }
  return pairs;
}

/// No bound lies above its plans, and what the search finds is nearly the fastest of all.
void check_search(const Request& request) {
  const PlanResult result = plan(request);
  REQUIRE_FALSE(result.candidates.empty());
  Seconds found = result.candidates[0].predicted.step;
  for (const Candidate& c : result.candidates) {
    found = std::min(found, c.predicted.step);
  }
  StepEvaluator evaluator(request);
  double fastest = 1e9;
  std::map<std::tuple<int, int, std::int64_t>, PlanResult> attentions;
  for (const StepPoint& point : step_space(request, evaluator).points) {
    const auto [at, fresh] =
        attentions.try_emplace({point.tensor, point.sequence, point.micro_batch});
    if (fresh) {
      AttentionQuestion question = attention_of(request, point);
      question.request.top = 1;
      at->second = plan(question.request);
    }
    const PlanResult& attention = at->second;
    if (attention.candidates.empty() || !attention.any_fits) {
      continue;
    }
    std::vector<SequencePlan> placed{attention.candidates[0].plan.attention};
    if (leaves_rank_order_open(request, point.sequence)) {
      placed.push_back(placed[0]);
      placed[1].rank_order =
          placed[0].rank_order == RankOrder::block ? RankOrder::cyclic : RankOrder::block;
    }
    for (const auto& [zero, sequence] : pairs_of(zero_stages(request, point), placed)) {
      const StepPlan p = plan_of(request, point, sequence, zero);
      const StepEvaluation e = evaluator.evaluate(p);
      INFO(short_name(p) << " mb " << p.micro_batch << " recompute " << to_string(p.recompute)
                         << " zero " << zero);
      CHECK(point.bound() <= e.step().count() * (1 + 1e-9));
      CHECK(point.memory.as_double() <= fullest(e.memory).tensors().as_double() * 1.0001);
      const StepPlan around = plan_around_attention(request, point, zero);
      CHECK(fullest(evaluator.memory_around_attention(around)).tensors() <=
            fullest(e.memory).tensors());
      fastest = e.fits ? std::min(fastest, e.step().count()) : fastest;
    }
  }
  CHECK(found.count() <= fastest * 1.005);  // less decides nothing
}

}  // namespace

TEST_CASE("the fastest plan is, to half a per cent, the fastest of all that the space has") {
  const sim::Cluster cluster = h100_nodes(1);
  Request request = step_request(cluster, "llama-3.1-8b", 32768);
  request.step.global_batch = 8;
  check_search(request);
}

TEST_CASE("the fastest plan of a hybrid model is that of all, too") {
  const sim::Cluster cluster = h100_nodes(1);
  Request request = step_request(cluster, "qwen3.5-27b", 32768);
  request.model->layers = 16;
  request.model->blocks.resize(16);
  request.step.global_batch = 8;
  check_search(request);
}

TEST_CASE("the fastest plan of layers with two shapes of heads is that of all, too") {
  const sim::Cluster cluster = h100_nodes(1);
  Request request = step_request(cluster, "gemma-4-26b-a4b", 32768);
  request.model->layers = 6;
  request.model->narrow_layers.resize(6);
  request.step.global_batch = 8;
  check_search(request);
}

TEST_CASE("of two ways to experts the search finds what is the faster of both asked by itself") {
  const sim::Cluster cluster = h100_nodes(2);
  Request request = step_request(cluster, "qwen3-30b-a3b", 16384);
  request.step.global_batch = 32;
  const auto fastest = [&](std::optional<Dispatcher> way) {
    request.step.to_experts = way;
    const PlanResult result = plan(request);
    REQUIRE_FALSE(result.candidates.empty());
    return std::ranges::min(result.candidates, {},
                            [](const Candidate& c) { return c.predicted.step.count(); });
  };
  const Candidate sent = fastest(Dispatcher::all_to_all);
  const Candidate gathered = fastest(Dispatcher::all_gather);
  const Candidate any = fastest(std::nullopt);
  CHECK(sent.plan.to_experts == Dispatcher::all_to_all);
  CHECK(gathered.plan.to_experts == Dispatcher::all_gather);
  CHECK(any.predicted.step.count() ==
        Catch::Approx(std::min(sent.predicted.step.count(), gathered.predicted.step.count()))
            .epsilon(0.005));
}

TEST_CASE("a way to experts that is the better one where ranks are dealt out to nodes stays open") {
  const sim::Cluster cluster = h100_nodes(2);
  Request request = step_request(cluster, "deepseek-v3.2", 65536);
  request.phase = StepPhase::prefill;
  request.memory = Bytes(141'000'000'000);
  request.step.tensor = request.step.pipeline = 1;
  check_search(request);
  const auto fastest_of_8 = [&] {
    double fastest = std::numeric_limits<double>::infinity();
    for (const Candidate& c : plan(request).candidates) {
      fastest = c.plan.expert == 8 ? std::min(fastest, c.predicted.step.count()) : fastest;
    }
    return fastest;
  };
  const double open = fastest_of_8();
  request.step.expert = 8;
  CHECK(open <= 1.005 * fastest_of_8());
}

TEST_CASE("what the host takes for messages to experts decides between two ways, too") {
  const sim::Cluster cluster = h100_nodes(2);
  Request request = step_request(cluster, "qwen3-30b-a3b", 1024);
  request.step.global_batch = 16;
  request.step.expert = 8;
  const auto fastest = [&](std::optional<Dispatcher> way) {
    request.step.to_experts = way;
    return plan(request).candidates.at(0).predicted.step.count();
  };
  CHECK(fastest(std::nullopt) <=
        1.005 * std::min(fastest(Dispatcher::all_to_all), fastest(Dispatcher::all_gather)));
}

TEST_CASE("no bound lies above its plans, whatever the stack, the format and the kinds of layers") {
  struct Asked {
    std::string machine, stack, model;
    std::int64_t seq = 8192;
    GemmFormat format = GemmFormat::plain;
    std::int64_t global_batch = 16;
  };
  const Catalog& catalog = test::catalog();
  for (const Asked& asked :
       {Asked{.machine = "dgx-h100",
              .stack = "megatron-te",
              .model = "llama-3.1-8b",
              .format = GemmFormat::fp8},
        Asked{.machine = "dgx-h100", .stack = "nemo", .model = "qwen3-30b-a3b"},
        Asked{.machine = "dgx-b200", .stack = "maxtext", .model = "llama-3.1-8b", .seq = 131072},
        Asked{.machine = "dgx-h100", .stack = "torchtitan", .model = "qwen2.5-3b"},
        Asked{.machine = "dgx-h100", .stack = "", .model = "nemotron-3-nano-30b-a3b"},
        Asked{.machine = "dgx-h100", .stack = "", .model = "deepseek-v3"},
        Asked{.machine = "a100-16x-ethernet", .stack = "", .model = "gemma-4-26b-a4b"},
        Asked{.machine = "8xl40-pcie", .stack = "internevo", .model = "llama-3.1-8b"},
        Asked{.machine = "dgx-h100", .stack = "megatron-te", .model = "gpt-oss-20b"}}) {
    const MachineSpec machine = catalog.machine(asked.machine, "test");
    const sim::Cluster cluster(machine, 2, 16);
    Request request = step_request(cluster, asked.model, asked.seq);
    const StackSpec stack = asked.stack.empty() ? StackSpec{} : catalog.stack(asked.stack, "test");
    if (!asked.stack.empty()) {
      request.run_by(stack);
    }
    request.step.format = asked.format;
    request.step.global_batch = asked.global_batch;
    StepEvaluator evaluator(request);
    const std::vector<StepPoint> points = step_space(request, evaluator).points;
    REQUIRE(points.size() > 100);
    for (std::size_t i = 0; i < points.size(); i += points.size() / 100) {
      const StepPoint& point = points[i];
      AttentionQuestion question = attention_of(request, point);
      question.request.top = 1;
      question.request.finds_ties = false;
      const PlanResult attention = plan(question.request);
      if (attention.candidates.empty() || !attention.any_fits) {
        continue;
      }
      for (const int zero : zero_stages(request, point)) {
        const StepPlan p = plan_of(request, point, attention.candidates[0].plan.attention, zero);
        const StepEvaluation e = evaluator.evaluate(p);
        INFO(asked.machine << " " << asked.stack << " " << asked.model << " " << short_name(p)
                           << " micro-batch " << p.micro_batch << " recompute "
                           << to_string(p.recompute) << " zero " << zero);
        CHECK(point.bound() <= e.step().count() * (1 + 1e-9));
        CHECK(point.memory.as_double() <= fullest(e.memory).tensors().as_double() * 1.0001);
      }
    }
  }
}

TEST_CASE("a pipeline's bound is that of its slowest stage, which has the head") {
  const sim::Cluster cluster = h100_nodes(3);
  Request request = step_request(cluster, "gpt-oss-20b", 32768);  // a vocabulary of 201,088
  request.step.global_batch = 256;
  request.step.pipeline = 24;
  StepEvaluator evaluator(request);
  const std::vector<StepPoint> points = step_space(request, evaluator).points;
  REQUIRE_FALSE(points.empty());
  for (const StepPoint& point : points) {
    CHECK(point.bound() > 2 * point.mean.around);
  }
}

TEST_CASE("attention of layers with heads of their own is asked with these") {
  const sim::Cluster cluster = h100_nodes(1);
  const Request request = step_request(cluster, "gemma-4-26b-a4b", 32768);
  const std::vector<LayerRun> runs = layer_runs(*request.model);
  const StepPlan plan{.tensor = 4};
  const Problem narrow = attention_problem(request, plan, problem_of(runs[0], request));
  CHECK(narrow.mask == Mask{.kind = MaskKind::window, .window = 1024});
  CHECK(narrow.q_heads == 4);
  CHECK(narrow.kv_heads == 2);
  CHECK(narrow.head_dim == 256);
  const Problem wide = attention_problem(request, plan, problem_of(runs[1], request));
  CHECK(wide.mask.kind == MaskKind::causal);
  CHECK(wide.q_heads == 4);
  CHECK(wide.kv_heads == 1);
  CHECK(wide.head_dim == 512);
  StepPlan whole{.data = 8, .micro_batches = 1, .zero = 3};
  whole.attention.strategy = "ulysses";
  StepEvaluator evaluator(request);
  const double both = evaluator.evaluate(whole).step().count();
  Request alike = request;
  alike.model->narrow_heads.reset();  // of 512, all of them
  StepEvaluator wider(alike);
  CHECK(wider.evaluate(whole).step().count() > both);
}

TEST_CASE("a prompt goes through stages where more ranks would only talk more") {
  const Catalog& catalog = test::catalog();
  const sim::Cluster cluster(catalog.machine("dgx-a100", "test"), 4, 32);
  Request request = step_request(cluster, "llama-3.1-405b", 4096);
  request.phase = StepPhase::prefill;
  request.memory = Bytes(79'000'000'000);
  check_search(request);
  const Candidate best = plan(request).candidates.front();
  CHECK(best.plan.pipeline > 1);
  request.step.pipeline = 1;
  CHECK(plan(request).candidates.front().predicted.step > best.predicted.step);
}

TEST_CASE("a hybrid model's layout is searched with what its linear layers take") {
  const Catalog& catalog = test::catalog();
  const sim::Cluster cluster(catalog.machine("8xl20-pcie", "test"), 1, 2);
  Request request = step_request(cluster, "nemotron-3-nano-30b-a3b", 65536);
  request.phase = StepPhase::prefill;
  request.memory = Bytes(44'000'000'000);
  request.step.expert = 2;
  const Seconds found = plan(request).candidates.front().predicted.step;
  request.fixed.layout = Layout::contiguous;  // states are handed on, where heads cross PCIe twice
  CHECK(found <= plan(request).candidates.front().predicted.step);
}

TEST_CASE("experts that tensor ranks have copies of are cut by ZeRO, and gathered for each layer") {
  const Catalog& catalog = test::catalog();
  const sim::Cluster cluster(catalog.machine("dgx-h200", "test"), 1, 4);
  Request request = step_request(cluster, "gpt-oss-20b", 2048);
  request.memory = Bytes(130'000'000'000);
  request.step.global_batch = 8;
  request.step.tensor = 4;
  request.step.expert = 1;
  const PlanResult free = plan(request);
  REQUIRE(free.any_fits);
  REQUIRE_FALSE(free.candidates.empty());
  CHECK(free.candidates.front().plan.zero == 3);  // what Adam has of all experts is 300 GB
  StepPlan lean = free.candidates.front().plan;
  StepEvaluator evaluator(request);
  const StepEvaluation cut = evaluator.evaluate(lean);
  lean.zero = 1;
  const StepEvaluation kept = evaluator.evaluate(lean);
  const auto gathered = [&](const StepEvaluation& e) {
    return evaluator.candidate(e)
        .predicted.sent.along(StepAxis::expert_weights)
        .at(static_cast<std::size_t>(CommKind::all_gather))
        .as_double();
  };
  const auto micro_batches = static_cast<double>(lean.micro_batches);
  CHECK(gathered(cut) == Catch::Approx(2 * micro_batches * gathered(kept)).epsilon(1e-6));
  CHECK(fullest(cut.memory).communication > fullest(kept.memory).communication);
}

TEST_CASE("a hybrid model's plans follow its linear attention's heads and order of tokens") {
  const sim::Cluster cluster = h100_nodes(4);
  Request request = step_request(cluster, "qwen3.5-27b", 131072);
  request.step.global_batch = 16;
  const PlanResult result = plan(request);
  REQUIRE(result.any_fits);
  REQUIRE_FALSE(result.candidates.empty());
  for (const Candidate& c : result.candidates) {
    CHECK(why_not(*request.model, c.plan).legal());
    if (c.plan.sequence() > 1 && c.simulated) {
      const bool said = std::ranges::any_of(c.lowering, [](const std::string& word) {
        return word == "linear attention: heads" || word == "linear attention: states";
      });
      CHECK(said);
    }
  }
  CHECK(std::ranges::any_of(result.rejected, [](const Rejected& r) { return r.rule == "linear"; }));
  // 16 key heads over 32 ranks: states, which zigzag tokens cannot hand on.
  request.step.tensor = 1;
  request.step.data = 1;
  request.step.pipeline = 1;
  request.fixed.layout = Layout::zigzag;
  const PlanResult zigzag = plan(request);
  CHECK(zigzag.candidates.empty());
  REQUIRE_FALSE(zigzag.rejected.empty());
  CHECK(zigzag.rejected.front().rule == "linear");
}

TEST_CASE("a GPU of which nobody says how it runs linear attention is refused by name") {
  const MachineSpec spec = test::catalog().machine("dgx-2-v100", "test");
  const sim::Cluster cluster(spec, 1, 16);
  Request request = step_request(cluster, "qwen3.5-27b", 8192);
  request.problem.dtype = DType::fp16;
  CHECK_THAT(message_of<InputError>([&] { (void)plan(request); }),
             ContainsSubstring("does not say how linear attention runs (key 'linear')"));
}

TEST_CASE("degrees multiply up to the GPUs, micro-batches to the global batch") {
  const sim::Cluster cluster = h100_nodes(4);
  Request request = step_request(cluster, "llama-3.1-70b", 65536);
  request.step.global_batch = 16;
  const PlanResult result = plan(request);
  REQUIRE(result.any_fits);
  REQUIRE_FALSE(result.candidates.empty());
  for (const Candidate& c : result.candidates) {
    CHECK(c.plan.world() == 32);
    CHECK(c.plan.global_batch() == 16);
    CHECK(c.plan.tensor <= 8);
    CHECK((c.plan.pipeline == 1 || c.plan.micro_batches > 1));
    CHECK(c.predicted.by_stage.size() == static_cast<std::size_t>(c.plan.pipeline));
  }
  CHECK_THAT(result.candidates[0].why, ContainsSubstring(" rather than "));
}

TEST_CASE("the same question has the same answer, and what is given is kept") {
  const sim::Cluster cluster = h100_nodes(2);
  Request request = step_request(cluster, "llama-3.1-8b", 65536);
  request.step = {.tensor = 2, .global_batch = 8, .zero = 1, .recompute = Recompute::full};
  request.fixed.ulysses = 2;
  const PlanResult first = plan(request);
  const PlanResult second = plan(request);
  REQUIRE_FALSE(first.candidates.empty());
  REQUIRE(first.candidates.size() == second.candidates.size());
  for (std::size_t i = 0; i < first.candidates.size(); ++i) {
    const StepPlan& p = first.candidates[i].plan;
    CHECK(short_name(p) == short_name(second.candidates[i].plan));
    CHECK(first.candidates[i].predicted.step == second.candidates[i].predicted.step);
    CHECK(p.tensor == 2);
    CHECK(p.attention.ulysses == 2);
    CHECK(p.zero == 1);
    CHECK(p.recompute.kind == Recompute::full);
  }
}

TEST_CASE("without a global batch there is one replica of one micro-batch, in stages, too") {
  const sim::Cluster cluster = h100_nodes(1);
  const Request request = step_request(cluster, "llama-3.1-8b", 65536);
  StepEvaluator evaluator(request);
  int stages = 1;
  for (const StepPoint& p : step_space(request, evaluator).points) {
    CHECK(p.data == 1);
    CHECK(p.micro_batches == 1);
    stages = std::max(stages, p.pipeline);
  }
  CHECK(stages == 8);
}

TEST_CASE(
    "replicas of a training without a global batch are searched where tokens a second count") {
  const sim::Cluster cluster = h100_nodes(1);
  Request request = step_request(cluster, "llama-3.1-8b", 8192);
  request.objective = Objective::tokens_per_s;
  const PlanResult result = plan(request);
  REQUIRE_FALSE(result.candidates.empty());
  const Candidate& best = result.candidates.front();
  CHECK(best.plan.data == 8);
  for (const Candidate& c : result.candidates) {
    CHECK(c.predicted.tokens_per_s <= best.predicted.tokens_per_s);
  }
  request.step.global_batch = 8;  // as fast as the step
  request.top = 1;
  CHECK(plan(request).candidates.front().plan.global_batch() == 8);
}

TEST_CASE("keys that an indexer picks are gathered from long rings, too") {
  const sim::Cluster cluster = h100_nodes(16);
  Request request = step_request(cluster, "deepseek-v3.2", std::int64_t{4} << 20);
  request.phase = StepPhase::prefill;
  const PlanResult result = plan(request);
  REQUIRE(result.any_fits);
  const StepPlan ring{
      .attention = {.strategy = "all-gather", .ring = 128, .layout = Layout::zigzag},
      .expert = 64,
      .zero = 3};
  CHECK(result.candidates.front().predicted.step <=
        evaluate(request, ring).candidate.predicted.step);
  CHECK(result.unsettled == 0);
}

TEST_CASE("gradients lie with an offloaded optimizer on one GPU, too") {
  const MachineSpec spec = test::catalog().machine("dgx-a100-40g", "test");
  const sim::Cluster cluster(spec, 1, 1);
  Request request = step_request(cluster, "llama-3.1-8b", 4096);
  request.step.global_batch = 4;
  request.step.offload = Offload::all;
  request.memory = Bytes(38'000'000'000);
  const PlanResult result = plan(request);
  CHECK(result.any_fits);
  CHECK(result.candidates.front().plan.zero == 2);
}

TEST_CASE(
    "scores that attention writes are kept for the backward, or by one layer that runs again") {
  const sim::Cluster cluster = cluster_of("dgx-a100", 1);
  const StackSpec unfused = test::catalog().stack("megatron-2022", "test");
  Request request = step_request(cluster, "llama-3.1-8b", 4096);
  StepPlan plan;
  plan.attention.strategy = "ulysses";
  plan.tensor = 8;
  const auto memory = [&](Recompute recompute, const StackSpec& stack) {
    request.run_by(stack);
    plan.recompute = {.kind = recompute, .modules = {RecomputeModule::core_attention}};
    return evaluate(request, plan).candidate.predicted.memory;
  };
  StackSpec fused = unfused;
  fused.attention.clear();
  constexpr double scores = 5.0 * 4 * 4096 * 4096;  // bytes of one layer's four heads of a rank
  const auto more = [&](Recompute recompute) {
    return (memory(recompute, unfused).tensors() - memory(recompute, fused).tensors()).as_double();
  };
  CHECK(more(Recompute::none) == Catch::Approx(32 * scores).epsilon(0.01));
  CHECK(more(Recompute::selective) == Catch::Approx(scores).epsilon(0.01));
  CHECK(more(Recompute::full) == Catch::Approx(scores).epsilon(0.01));
}

TEST_CASE("a denoising step is cut into stages where ranks between nodes talk less for it") {
  const MachineSpec spec = test::catalog().machine("a100-16x-ethernet", "test");
  const sim::Cluster cluster(spec, 4, 64);
  Request request = step_request(cluster, "cogvideox-5b", 65536);
  request.phase = StepPhase::prefill;
  request.problem.mask = request.model->mask.over(request.problem.seq);
  CHECK(plan(request).candidates.front().plan.pipeline > 1);
}

TEST_CASE(
    "attention whose search ended early leaves its plans unsettled; with more it is settled") {
  const sim::Cluster cluster = h100_nodes(16);
  Request request = step_request(cluster, "llama-3.1-8b", 1 << 20);
  request.step.tensor = request.step.pipeline = 1;
  request.most.ops = 3e5;
  const PlanResult little = plan(request);
  request.most.ops = std::numeric_limits<double>::infinity();
  const PlanResult all = plan(request);
  CHECK(little.unsettled > 0);
  CHECK(all.unsettled == 0);
  CHECK(all.candidates.front().predicted.step <= little.candidates.front().predicted.step);
}

TEST_CASE("a search of steps that may take nothing answers with the leanest plan, and bounds") {
  const sim::Cluster cluster = h100_nodes(2);
  Request request = step_request(cluster, "llama-3.1-8b", 65536);
  request.step.global_batch = 8;
  request.most.ops = 0;
  const PlanResult result = plan(request);
  CHECK(result.simulated == 1);
  CHECK(result.unsettled > 0);
  REQUIRE(result.candidates.size() == 5);
  CHECK(result.candidates[0].simulated);
  CHECK(result.candidates[0].predicted.fits);
  CHECK_FALSE(result.candidates[1].simulated);
}

TEST_CASE("bounds of steps know that shards have copies") {
  const sim::Cluster cluster = test::cluster_of("cloud-a100-ethernet", 2);
  Request request = step_request(cluster, "llama-3.1-8b", 2048);
  request.memory = Bytes(200'000'000'000);
  request.step = {.pipeline = 1, .global_batch = 16, .zero_group = 8};
  // All plans reduce the same gradients inside nodes, and a part of them over the slow network:
  // none of them is much slower. Bounds of reductions over all ranks would leave most out.
  const PlanResult result = plan(request);
  REQUIRE(result.candidates.size() == 5);
  for (const Candidate& c : result.candidates) {
    CHECK(c.predicted.step < 1.05 * result.candidates.front().predicted.step);
  }
}

TEST_CASE("where no step fits, the leanest is named") {
  const sim::Cluster cluster = h100_nodes(1);
  Request request = step_request(cluster, "llama-3.1-70b", 65536);
  request.memory = Bytes(30'000'000'000);
  const PlanResult result = plan(request);
  CHECK_FALSE(result.any_fits);
  REQUIRE(result.candidates.size() == 1);
  CHECK(result.candidates[0].predicted.memory.total() > request.memory);
  CHECK(std::ranges::any_of(result.rejected, [](const Rejected& r) { return r.rule == "memory"; }));
}

TEST_CASE("with an order of micro-batches there are stages to order") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  Request request = test::step_request(cluster, "llama-3.1-8b", 65536);
  request.step.global_batch = 8;
  request.step.order = "zero-bubble";
  const PlanResult result = plan(request);
  REQUIRE_FALSE(result.candidates.empty());
  for (const Candidate& c : result.candidates) {
    CHECK(c.plan.pipeline > 1);
    CHECK(c.plan.order == "zero-bubble");
  }
  CHECK(std::ranges::any_of(result.rejected, [](const Rejected& r) {
    return r.rule == "pipeline" && r.plan.pipeline == 1 &&
           r.detail == "zero-bubble orders the stages of a pipeline, and one stage is none";
  }));
}

TEST_CASE("degrees that do not multiply up are refused") {
  const sim::Cluster cluster = h100_nodes(1);
  Request request = step_request(cluster, "llama-3.1-8b", 65536);
  request.step.tensor = 3;
  CHECK_THAT(message_of<InputError>([&] { (void)default_step(request); }),
             ContainsSubstring("8 GPUs are not a multiple of tp 3"));
  request.step.tensor = 2;
  request.step.data = 4;
  request.step.global_batch = 6;
  CHECK_THAT(message_of<InputError>([&] { (void)default_step(request); }),
             ContainsSubstring("6 sequences are not a multiple of dp 4"));
}

TEST_CASE("groups of a step cover its ranks once, axis by axis") {
  const StepPlan p{.attention = {.strategy = "usp", .ulysses = 2, .ring = 2},
                   .tensor = 2,
                   .data = 2,
                   .expert = 4,
                   .pipeline = 2};
  for (const std::string_view axis : {"tp", "dp", "pp", "ep"}) {
    std::set<int> ranks;
    for (const std::vector<int>& group : groups_of(p, axis)) {
      ranks.insert(group.begin(), group.end());
    }
    INFO(axis);
    CHECK(ranks.size() == 32);
  }
  CHECK(groups_of(p, "tp").front() == std::vector<int>{0, 1});
  CHECK(groups_of(p, Axis::ulysses).front() == std::vector<int>{0, 2});
  CHECK(groups_of(p, Axis::ring).front() == std::vector<int>{0, 4});
  CHECK(groups_of(p, "dp").front() == std::vector<int>{0, 8});
  CHECK(groups_of(p, "pp").front() == std::vector<int>{0, 16});
  CHECK(groups_of(p, "ep").front() == std::vector<int>{0, 1, 2, 3});
  CHECK(groups_of(p, "cfg").empty());
  StepPlan guided = p;
  guided.guided = true;
  CHECK(groups_of(guided, "cfg") == groups_of(p, "dp"));
  CHECK(groups_of(guided, "dp").empty());
}

TEST_CASE(
    "a small budget at 1,024 GPUs goes to plans that may fit, not to long rings of those that "
    "cannot") {
  const sim::Cluster cluster = h100_nodes(128);
  Request request = step_request(cluster, "llama-3.1-405b", 131072);
  request.step.global_batch = 512;
  request.most.ops = 1e6;
  const PlanResult result = plan(request);
  REQUIRE(result.any_fits);
  REQUIRE_FALSE(result.candidates.empty());
  CHECK(result.candidates[0].predicted.mfu > 0.3);
  CHECK(result.spent < 2 * request.most.ops);
}

TEST_CASE("a decision against a degree is one against the best plan that has it") {
  const Catalog& catalog = test::catalog();
  const sim::Cluster cluster(catalog.machine("dgx-b200", "test"), 1, 6);
  Request request = step_request(cluster, "qwen3-30b-a3b", 4096);
  request.memory = Bytes(170'000'000'000);
  request.step.global_batch = 32;
  const PlanResult free = plan(request);
  REQUIRE_FALSE(free.candidates.empty());
  const Candidate& best = free.candidates.front();
  const std::string words = "pipeline 1 rather than 2, which is ";
  const auto said = std::ranges::find_if(
      best.decisions, [&](const std::string& text) { return text.starts_with(words); });
  REQUIRE(said != best.decisions.end());
  request.step.pipeline = 2;
  const PlanResult given = plan(request);
  REQUIRE_FALSE(given.candidates.empty());
  Seconds fastest = given.candidates.front().predicted.step;
  for (const Candidate& c : given.candidates) {
    fastest = std::min(fastest, c.predicted.step);
  }
  CHECK(
      std::stod(said->substr(words.size())) ==
      Catch::Approx(100 * (fastest / best.predicted.step - 1)).margin(0.6));  // 0.5 decides nothing
}

TEST_CASE("a degree that memory alone forbids says by how much, and what that costs") {
  const Prediction winner{.step = Seconds(10)};
  Alternative a{.chosen = "pipeline 1", .other = "2"};
  a.beyond = Bytes(20'500'000);
  a.bound = Seconds(0.25);
  CHECK(to_string(a, winner) ==
        "pipeline 1 rather than 2, which is 21 MB over memory (else up to 40 times as fast)");
  a.beyond = Bytes(12'100'000'000);
  a.bound = Seconds(11);
  CHECK(to_string(a, winner) == "pipeline 1 rather than 2, which is 12.1 GB over memory");
  a.at_least = true;
  CHECK(to_string(a, winner) == "pipeline 1 rather than 2, which is at least 12.1 GB over memory");
}

TEST_CASE("a degree that ties says so, and none is slower by 0.0 %") {
  const auto taking = [](double seconds) {
    Prediction p{.step = Seconds(seconds), .tokens_per_s = 1000 / seconds};
    p.parts_s[StepPart::gemm] = seconds;
    return p;
  };
  Alternative a{.chosen = "TP 1", .other = "2", .best = taking(10.2), .tie = true};
  CHECK(to_string(a, taking(10)) ==
        "TP 1 rather than 2, which is 2.0 % slower, within the model's error (GEMMs 10.2 s against "
        "10.0 s)");
  a.best = taking(10.004);
  CHECK(to_string(a, taking(10)) == "TP 1 rather than 2, which is as fast");
  a.best = taking(9.6);  // the simpler plan is recommended
  CHECK(to_string(a, taking(10)) ==
        "TP 1 rather than 2, which is 4.0 % faster, within the model's error");
}

TEST_CASE("what replicas take is compared for as many prompts") {
  Prediction winner{.step = Seconds(8), .tokens_per_s = 1000};  // 8 prompts of 1000 tokens
  winner.parts_s[StepPart::gemm] = 8;
  Prediction other{.step = Seconds(4), .tokens_per_s = 500};  // 2 prompts
  other.parts_s[StepPart::gemm] = 3;
  other.parts_s[StepPart::cp] = 1;
  const Alternative a{.chosen = "sequence 1", .other = "4", .best = other};
  CHECK(to_string(a, winner) ==
        "sequence 1 rather than 4, which is 100.0 % slower (GEMMs 12.0 s against 8.00 s)");
}

TEST_CASE("a loss that better plans may lessen is one at most") {
  const auto taking = [](double seconds) {
    return Prediction{.step = Seconds(seconds), .tokens_per_s = 1000 / seconds};
  };
  Alternative a{.chosen = "TP 1", .other = "2", .best = taking(12)};
  a.best->memory.activations = Bytes(3'000'000'000);
  a.at_most = true;
  CHECK_THAT(to_string(a, taking(10)), ContainsSubstring("which is at most 20.0 % slower"));
  a.by_memory = true;
  CHECK_THAT(to_string(a, taking(10)), ContainsSubstring("which needs at most 3.00 GB more"));
}

TEST_CASE("what a decision says of another value is what a search with that value finds") {
  const sim::Cluster cluster = h100_nodes(1);
  Request open = step_request(cluster, "qwen3-30b-a3b", 8192);
  open.step.global_batch = 16;
  open.step.expert = 4;
  const Candidate best = plan(open).candidates.at(0);
  const std::map<std::string, void (*)(StepChoices&, const std::string&)> axes{
      {"TP", [](StepChoices& step, const std::string& v) { step.tensor = std::stoi(v); }},
      {"pipeline", [](StepChoices& step, const std::string& v) { step.pipeline = std::stoi(v); }},
      {"dispatcher", [](StepChoices& step,
                        const std::string& v) { step.to_experts = parse_dispatcher(v, "test"); }},
      {"recomputation", [](StepChoices& step, const std::string& v) {
         step.recompute = parse_recompute(v, "test");
       }}};
  int compared = 0;
  for (const std::string& text : best.decisions) {
    const auto axis = axes.find(text.substr(0, text.find(' ')));
    if (axis == axes.end() || text.find("% slower") == std::string::npos) {
      continue;
    }
    const auto behind = [&](const std::string& words) {
      return text.substr(text.find(words) + words.size());
    };
    const std::string value = behind(" rather than ");
    Request given = open;
    axis->second(given.step, value.substr(0, value.find_first_of(" ,")));
    double fastest = std::numeric_limits<double>::infinity();
    for (const Candidate& c : plan(given).candidates) {
      fastest = std::min(fastest, c.predicted.step.count());
    }
    const double loss = 100 * (fastest / best.predicted.step.count() - 1);
    INFO(text);
    if (const std::string most = "at most "; text.find(most) != std::string::npos) {
      CHECK(loss < std::stod(behind(most)) + 0.6);
    } else {
      CHECK(std::stod(behind("which is ")) == Catch::Approx(loss).margin(0.6));
    }
    ++compared;
  }
  CHECK(compared >= 3);
}

TEST_CASE("ways to experts are compared where tokens are sent to them") {
  const sim::Cluster cluster = h100_nodes(1);
  Request request = step_request(cluster, "qwen3-30b-a3b", 8192);
  request.step.global_batch = 16;
  const auto decided = [&] {
    const Candidate best = plan(request).candidates.at(0);
    return std::ranges::any_of(
        best.decisions, [](const std::string& text) { return text.starts_with("dispatcher "); });
  };
  request.step.expert = 1;
  CHECK_FALSE(decided());
  request.step.expert = 4;
  CHECK(decided());
}

TEST_CASE("layers that see a chunk are costed by their chunks") {
  const sim::Cluster cluster = h100_nodes(1);
  const auto attention = [&](std::int64_t seq) {
    Request request = step_request(cluster, "llama-4-scout-17b-16e", seq);
    request.phase = StepPhase::prefill;
    StepEvaluator evaluator(request);
    const StepPlan plan{.attention = {.strategy = "ulysses", .ulysses = 8}};
    return evaluator.evaluate(plan).cost.parts[StepPart::attention];
  };
  // 12 of 48 layers grow with the square, the others with the length: less than half of 16 times.
  CHECK(attention(131072) / attention(32768) < 12);
  CHECK(attention(131072) / attention(32768) > 6);
}

TEST_CASE("attention is chosen by all kinds of layers") {
  const sim::Cluster cluster = h100_nodes(4);
  Request request = step_request(cluster, "gemma-4-26b-a4b", 131072);
  request.phase = StepPhase::prefill;
  request.step.tensor = 1;
  request.step.pipeline = 1;
  const Seconds free = plan(request).candidates.at(0).predicted.step;
  request.fixed.strategy = "all-gather";
  CHECK(free <= plan(request).candidates.at(0).predicted.step * 1.02);
}

TEST_CASE("tensor ranks divide the part of a node that is used") {
  const MachineSpec spec = test::catalog().machine("dgx-h100", "test");
  const sim::Cluster cluster(spec, 1, 6);
  Request request = step_request(cluster, "qwen-image", 4608);
  request.phase = StepPhase::prefill;
  StepEvaluator evaluator(request);
  std::set<int> tensors;
  for (const StepPoint& point : step_space(request, evaluator).points) {
    tensors.insert(point.tensor);
  }
  CHECK(tensors.contains(3));
}

TEST_CASE("groups that cross nodes are costed as such") {
  const sim::Cluster cluster = h100_nodes(3);
  Request request = step_request(cluster, "llama-3.1-8b", 65536);
  request.step.global_batch = 4;
  StepEvaluator evaluator(request);
  const auto exposed = [&](int ring, int data) {
    const StepPlan plan{
        .attention = {.strategy = "zigzag-ring", .ring = ring, .layout = Layout::zigzag},
        .data = data,
        .micro_batches = 4 / data,
        .zero = 1};
    return evaluator.evaluate(plan).cost.parts[StepPart::cp];
  };
  CHECK(exposed(6, 4) > 2 * exposed(4, 4));
}

TEST_CASE("by tokens a second replicas of an inference are searched, by time they are not") {
  const sim::Cluster cluster = h100_nodes(1);
  Request request = step_request(cluster, "llama-3.1-8b", 8192);
  request.phase = StepPhase::prefill;
  const Candidate fastest = plan(request).candidates.at(0);
  CHECK(fastest.plan.data == 1);
  request.objective = Objective::tokens_per_s;
  const Candidate most = plan(request).candidates.at(0);
  CHECK(most.plan.data == 8);
  CHECK(most.predicted.tokens_per_s > 1.1 * fastest.predicted.tokens_per_s);
  CHECK_THAT(most.why, ContainsSubstring("more tokens a second than"));
}

TEST_CASE("a narrower search finds nothing faster where steps wait for the host") {
  for (const auto& [model, seq, nodes] : {std::tuple("qwen3-30b-a3b", 4096, 4),
                                          {"gpt-oss-20b", 4096, 8},
                                          {"mixtral-8x7b", 1024, 8}}) {
    INFO(model);
    const sim::Cluster cluster = h100_nodes(nodes);
    Request request = step_request(cluster, model, seq);
    request.phase = StepPhase::prefill;
    const auto fastest = [&] {
      Seconds least(1e9);
      for (const Candidate& c : plan(request).candidates) {
        least = std::min(least, c.predicted.step);
      }
      return least.count();
    };
    const double of_all = fastest();
    request.fixed.strategy = "all-gather";
    CHECK(of_all <= fastest() * 1.001);
  }
}

TEST_CASE("a narrower search finds nothing leaner") {
  const sim::Cluster cluster = h100_nodes(2);
  Request request = step_request(cluster, "qwen3-30b-a3b", 65536);
  request.phase = StepPhase::prefill;
  request.objective = Objective::memory;
  const auto least = [&] { return plan(request).candidates.at(0).predicted.memory.tensors(); };
  const Bytes of_all = least();
  request.step.expert = 16;
  CHECK(of_all <= least());
}
