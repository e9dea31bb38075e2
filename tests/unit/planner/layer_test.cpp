// A layer that is simulated op by op, against a step's cost, which adds its kernels and transfers
// up: what one more layer costs a step is what the layer takes.
#include "planner/layer.hpp"

#include "base/error.hpp"
#include "planner/step.hpp"
#include "schedule/coverage.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/requests.hpp"

using namespace spp;

namespace {

struct LayerTimes {
  double attention = 0, gemm = 0, elementwise = 0, tensor = 0;
};

Request train(const sim::Cluster& cluster, std::string_view model, const StepPlan& plan) {
  Request r = test::step_request(cluster, model, 32768);
  r.gpus = plan.world();
  return r;
}

/// A step of a model with one more layer, less the step.
LayerTimes of_one_more(Request request, const StepPlan& plan) {
  const auto parts = [&] { return evaluate(request, plan).candidate.predicted.parts_s; };
  const StepSeconds fewer = parts();
  ++request.model->layers;
  const StepSeconds more = parts();
  const auto grown = [&](StepPart part) { return more[part] - fewer[part]; };
  return {.attention = grown(StepPart::attention),
          .gemm = grown(StepPart::gemm),
          .elementwise = grown(StepPart::elementwise),
          .tensor = grown(StepPart::tp)};
}

Evaluation evaluated(const Request& request, const StepPlan& plan, const LayerQuestion& question,
                     bool fold = true) {
  return evaluate_layer(request, plan, question, phases_of(request, plan, question, fold), {});
}

LayerTimes simulated(const Request& request, const StepPlan& plan) {
  const Evaluation e = evaluated(request, plan, layer_question(request, plan), false);
  LayerTimes sum;
  for (const auto* phase : {&e.forward, &e.backward}) {
    const Breakdown& b = (*phase)->breakdown;
    sum.attention += b.attention.count();
    sum.gemm += b.gemm.count();
    sum.elementwise += b.other_kernels.count();
    sum.tensor += b.exposed.count();
  }
  return sum;
}

StepPlan plan_of(int tensor, int ulysses) {
  StepPlan plan;
  plan.attention.strategy = "ulysses";
  plan.attention.ulysses = ulysses;
  plan.tensor = tensor;
  return plan;
}

}  // namespace

TEST_CASE("one more layer costs a step what the layer takes") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  const StepPlan plan = plan_of(8, 1);
  const Request request = train(cluster, "llama-3.1-70b", plan);
  const LayerTimes step = of_one_more(request, plan);
  const LayerTimes layer = simulated(request, plan);
  CHECK(layer.attention == Approx(step.attention).epsilon(1e-9));
  // The bytes of parameters' gradients: what is written in fp32 here, what is added up there.
  CHECK(layer.gemm == Approx(step.gemm).epsilon(0.01));
  // What gate and up give their input is added by the second product here, by a kernel there.
  CHECK(layer.elementwise < step.elementwise);
  CHECK(layer.elementwise == Approx(step.elementwise).epsilon(0.35));
  CHECK(layer.tensor == Approx(step.tensor).epsilon(0.1));
}

TEST_CASE("a layer whose heads are normed is split, normed and turned in one kernel") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  const StepPlan plan = plan_of(8, 1);
  const Request request = train(cluster, "qwen3-32b", plan);
  const LayerTimes step = of_one_more(request, plan);
  const LayerTimes layer = simulated(request, plan);
  CHECK(layer.attention == Approx(step.attention).epsilon(1e-9));
  CHECK(layer.gemm == Approx(step.gemm).epsilon(0.01));
  // The list has a kernel for norms and one for rotations, each way.
  CHECK(layer.elementwise < step.elementwise);
  CHECK(layer.elementwise == Approx(step.elementwise).epsilon(0.4));
  // The norms' own share is no more than that of two such kernels.
  Request plain = request;
  plain.model->qk_norm = false;
  CHECK(layer.elementwise > simulated(plain, plan).elementwise);
}

TEST_CASE("what overlaps in a layer is near to what a step's cost says of it") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  for (const StepPlan& plan : {plan_of(2, 4), plan_of(1, 8)}) {
    const Request request = train(cluster, "llama-3.1-70b", plan);
    const LayerTimes step = of_one_more(request, plan);
    const LayerTimes layer = simulated(request, plan);
    INFO("TP " << plan.tensor);
    // Gradients of parameters travel beside kernels, whose SMs they share: here beside attention,
    // there beside products.
    CHECK(layer.attention == Approx(step.attention).epsilon(0.05));
    CHECK(layer.gemm == Approx(step.gemm).epsilon(0.1));
  }
}

TEST_CASE("a step that is simulated op by op takes nearly what its parts cost") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 2);
  for (StepPlan plan : {plan_of(2, 4), plan_of(8, 1), plan_of(1, 8)}) {
    plan.data = 16 / (plan.tensor * plan.sequence());
    plan.zero = 1;
    Request request = train(cluster, "llama-3.1-8b", plan);
    request.memory = Bytes(720'000'000'000);  // whether it fits is another question
    const LayerQuestion question = step_question(request, plan);
    const Evaluation step = evaluated(request, plan, question);
    const Prediction cost = evaluate(request, plan).candidate.predicted;
    INFO("TP " << plan.tensor << ", Ulysses " << plan.sequence());
    const Breakdown& b = step.forward->breakdown;
    CHECK(b.attention.count() == Approx(cost.parts_s[StepPart::attention]).epsilon(0.02));
    CHECK(b.gemm.count() == Approx(cost.parts_s[StepPart::gemm]).epsilon(0.12));
    CHECK(step.candidate.predicted.step.count() == Approx(cost.step.count()).epsilon(0.12));
    CHECK(step.forward->folded > 1);
  }
}

TEST_CASE("a step that is simulated takes what a calibration timed for each of its own kernels") {
  MachineSpec machine = test::catalog().machine("dgx-h100", "test");
  const StepPlan plan = plan_of(1, 1);
  const auto others = [&] {
    const sim::Cluster cluster(machine, 1, 1);
    Request request = train(cluster, "llama-3.1-8b", plan);
    request.memory = Bytes(720'000'000'000);
    const Evaluation step = evaluated(request, plan, step_question(request, plan));
    return step.forward->breakdown.other_kernels.count();
  };
  const double streamed = others();
  auto& rows = machine.gpu.generation.layer.rows;
  double seconds = 0;
  // One table, one head; a weight for each product and norm of 32 layers, the last norm and both.
  for (const auto& [function, backward, kernels] : {std::tuple{LayerFunction::embedding, false, 1},
                                                    {LayerFunction::embedding, true, 1},
                                                    {LayerFunction::word_sums, false, 1},
                                                    {LayerFunction::word_sums, true, 1},
                                                    {LayerFunction::word_loss, false, 1},
                                                    {LayerFunction::adam, false, 32 * 7 + 3}}) {
    rows[{.function = function, .backward = backward}] = {
        .startup = {.value = Seconds(10), .spread = 0, .source = "test"},
        .rate = {.value = Bandwidth(1e15), .spread = 0, .source = "test"}};
    seconds += 10 * kernels;
    INFO(to_string(RowFunction{.function = function, .backward = backward}));
    CHECK(others() - streamed == Approx(seconds).epsilon(0.01));
  }
}

TEST_CASE("a pipeline that is simulated op by op takes nearly what its parts cost") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 4);
  struct Order {
    std::string name;
    int stages = 1, chunks = 1, zero = 1;
    Recompute recompute = Recompute::none;
    bool tied = false;  // embeddings
  };
  for (const Order& order :
       {Order{.name = "1f1b", .zero = 2}, Order{.name = "1f1b", .stages = 4},
        Order{.name = "gpipe", .stages = 2}, Order{.name = "interleaved", .stages = 4, .chunks = 2},
        Order{.name = "zero-bubble", .stages = 4},
        Order{.name = "1f1b", .stages = 2, .recompute = Recompute::full},
        Order{.name = "1f1b", .stages = 2, .recompute = Recompute::selective},
        Order{.name = "1f1b", .zero = 3, .recompute = Recompute::full},
        Order{.name = "1f1b", .stages = 2, .tied = true}}) {
    StepPlan plan = plan_of(8, 1);
    plan.pipeline = order.stages;
    plan.virtual_stages = order.chunks;
    plan.order = order.name;
    plan.data = 4 / order.stages;
    plan.micro_batches = 16 / plan.data;
    plan.zero = order.zero;
    plan.recompute.kind = order.recompute;
    Request request = train(cluster, "llama-3.1-8b", plan);
    request.model->tied_embeddings = order.tied;
    request.memory = Bytes(720'000'000'000);
    const Evaluation step = evaluated(request, plan, step_question(request, plan));
    const Prediction cost = evaluate(request, plan).candidate.predicted;
    INFO(order.name << " over " << order.stages << (order.tied ? ", tied" : ""));
    // Transfers of tensor ranks overlap here, which the cost adds up.
    CHECK(step.candidate.predicted.step.count() < 1.03 * cost.step.count());
    CHECK(step.candidate.predicted.step.count() > 0.9 * cost.step.count());
  }
}

TEST_CASE("gradients of a table that is the loss head, too, are added before they are reduced") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  StepPlan plan = plan_of(1, 1);
  plan.data = 4;
  plan.micro_batches = 2;
  plan.zero = 2;
  Request request = train(cluster, "qwen2.5-0.5b", plan);
  request.problem.seq = 1024;
  request.memory = Bytes(720'000'000'000);
  const Evaluation step = evaluated(request, plan, step_question(request, plan));
  const SentBytes::ByKind costed = evaluate(request, plan).candidate.predicted.sent.by_kind();
  const auto reduced = static_cast<std::size_t>(CommKind::reduce_scatter);
  CHECK(step.forward->sent.at(reduced).as_double() ==
        Approx(costed.at(reduced).as_double()).epsilon(1e-3));
}

// What a cost adds besides, the simulation leaves out: waits of the host for counts of tokens, and
// gradients of weights that are read and written once more, which are many beside few tokens each.
TEST_CASE("a step with experts that is simulated op by op takes no more than its parts cost") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 2);
  using Case = std::tuple<const char*, std::int64_t, int, int>;
  for (const auto& [model, seq, tensor, expert] :
       {Case("mixtral-8x7b", 8192, 2, 8), Case("mixtral-8x7b", 8192, 4, 4),
        Case("mixtral-8x7b", 8192, 1, 2), Case("qwen3-30b-a3b", 65536, 2, 1)}) {
    StepPlan plan = plan_of(tensor, 1);
    plan.data = 16 / tensor;
    plan.expert = expert;
    plan.zero = 1;
    Request request = train(cluster, model, plan);
    request.problem.seq = seq;
    request.memory = Bytes(720'000'000'000);
    const LayerQuestion question = step_question(request, plan);
    CHECK(question.notes.size() == 1);
    const Evaluation step = evaluated(request, plan, question);
    const Prediction cost = evaluate(request, plan).candidate.predicted;
    INFO(model << ", TP " << tensor << ", EP " << expert);
    const Breakdown& b = step.forward->breakdown;
    CHECK(b.attention.count() == Approx(cost.parts_s[StepPart::attention]).epsilon(0.05));
    CHECK(b.gemm.count() == Approx(cost.parts_s[StepPart::gemm]).epsilon(0.25));
    const double without_host = cost.step.count() - cost.parts_s[StepPart::launch];
    CHECK(step.candidate.predicted.step.count() - b.launch_bound.count() < without_host);
    CHECK(step.candidate.predicted.step.count() - b.launch_bound.count() > 0.65 * without_host);
  }
}

// Of a sequence so long that gradients read and written once more, which only the cost has, are
// few.
TEST_CASE("a step of latent attention is simulated about as its parts cost") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 2);
  StepPlan plan = plan_of(2, 1);
  plan.data = 8;
  plan.expert = 8;
  plan.zero = 1;
  Request request = train(cluster, "deepseek-v3", plan);
  request.problem.seq = 65536;
  request.memory = Bytes(7'200'000'000'000);
  const Evaluation step = evaluated(request, plan, step_question(request, plan));
  const Prediction cost = evaluate(request, plan).candidate.predicted;
  const Breakdown& b = step.forward->breakdown;
  CHECK(b.attention.count() == Approx(cost.parts_s[StepPart::attention]).epsilon(0.05));
  CHECK(b.gemm.count() == Approx(cost.parts_s[StepPart::gemm]).epsilon(0.25));
}

// Sinks, windows in turns, and biases of everything.
TEST_CASE("a step of gpt-oss is proven, and simulated about as its parts cost") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  StepPlan plan = plan_of(1, 2);
  plan.data = 4;
  plan.expert = 8;
  plan.zero = 3;
  Request request = train(cluster, "gpt-oss-20b", plan);
  request.problem.seq = 8192;
  const LayerQuestion question = step_question(request, plan);
  std::int64_t parameters = 0;
  for (const Param& param : question.graph.graph.params) {
    parameters += param.rows * param.columns;
  }
  CHECK(parameters == request.model->parameters());
  const Evaluation step = evaluated(request, plan, question);
  CHECK_THAT(prove(question.schedule(Phase::step)).counter_example, Catch::Matchers::Equals(""));
  const Prediction cost = evaluate(request, plan).candidate.predicted;
  const Breakdown& b = step.forward->breakdown;
  CHECK(b.attention.count() == Approx(cost.parts_s[StepPart::attention]).epsilon(0.05));
  CHECK(b.gemm.count() == Approx(cost.parts_s[StepPart::gemm]).epsilon(0.25));
}

TEST_CASE("layers that see a chunk see chunks of every document") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 2);
  StepPlan plan = plan_of(2, 4);
  Request request = train(cluster, "llama-4-scout-17b-16e", plan);
  request.problem.seq = 24'064;
  const auto masks = [&] {
    const Problem problem = step_question(request, plan).problem;
    REQUIRE(problem.masks() == 2);
    CHECK(problem.mask_of(1).document_ends == request.problem.mask.document_ends);
    return problem.mask_of(0);
  };
  CHECK(masks().document_ends == std::vector<std::int64_t>{8192, 16'384, 24'064});
  request.problem.mask.document_ends = {9000, 17'192, 24'064};
  CHECK(masks().document_ends == std::vector<std::int64_t>{8192, 9000, 17'192, 24'064});
}

TEST_CASE("layers and steps see what --mask says, layers with a window of their own that") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  const StepPlan plan = plan_of(1, 8);
  Request dense = train(cluster, "llama-3.1-8b", plan);
  dense.problem.mask = {.kind = MaskKind::full};
  CHECK(layer_question(dense, plan).problem.mask.kind == MaskKind::full);
  CHECK(step_question(dense, plan).problem.mask.kind == MaskKind::full);
  Request mixed = train(cluster, "gpt-oss-20b", plan);
  mixed.problem.mask = {.kind = MaskKind::full};
  std::vector<MaskKind> kinds;
  const Problem problem = step_question(mixed, plan).problem;
  for (int i = 0; i < problem.masks(); ++i) {
    kinds.push_back(problem.mask_of(i).kind);
  }
  CHECK(kinds == std::vector{MaskKind::window, MaskKind::full});
}

TEST_CASE("what no schedule of a step holds is refused") {
  const sim::Cluster cluster = test::cluster_of("dgx-h100", 1);
  StepPlan plan = plan_of(2, 4);
  const Request request = train(cluster, "llama-3.1-8b", plan);
  const auto why = [&](auto change) {
    StepPlan other = plan;
    change(other);
    return test::message_of<InputError>([&] { (void)step_question(request, other); });
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(why([](StepPlan& p) { p.expert_tensor = 2; }),
             Contains("tensor parallelism in experts"));
  CHECK_THAT(why([](StepPlan& p) { p.expert = 2; }), Contains("a model without experts"));
  CHECK_THAT(why([](StepPlan& p) { p.offload = Offload::optimizer; }), Contains("offload"));
  CHECK_THAT(why([](StepPlan& p) { p.tensor = 3; }), Contains("KV heads"));
}
