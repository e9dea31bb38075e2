// Linear attention over ranks that share a sequence: bytes by hand, kernels as machine/ says,
// rules.
#include "step/linear_attention.hpp"

#include "base/error.hpp"
#include "machine/linear_cost.hpp"
#include "sim/thinned.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/step/one_gpu.hpp"

using namespace spp;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::int64_t linear_seq = 65536;

/// Qwen3.5-27B's: 16 key heads and 48 value heads of 128, 10,240 channels.
Model delta_model() {
  Model model = test::tiny_model();
  model.linear =
      LinearLayers{.scan = {.key_heads = 16, .key_dim = 128, .value_heads = 48, .value_dim = 128}};
  return model;
}

/// Nemotron-3-Nano's.
Model mamba_model() {
  Model model = test::tiny_model();
  model.linear = LinearLayers{.scan = {.rule = StateRule::mamba2,
                                       .key_heads = 8,
                                       .key_dim = 128,
                                       .value_heads = 64,
                                       .value_dim = 64,
                                       .chunk = 128}};
  return model;
}

StepPlan over(int ranks, Layout layout = Layout::contiguous, int tensor = 1) {
  return {.attention = {.ring = ranks, .layout = layout}, .tensor = tensor};
}

struct Ranks {
  MachineSpec machine = test::catalog().machine("dgx-h100", "test");
  sim::Cluster cluster{machine, 4, 32};
  KernelCost kernels{machine.gpu, machine.gpu.generation.attention};

  [[nodiscard]] LinearCost cost(const Model& model, const StepPlan& plan,
                                StepKind kind = StepKind::train) const {
    const sim::Cluster ranks = sim::thinned(cluster, plan.tensor, plan.sequence());
    return linear_attention_cost(model, {.seq = linear_seq, .kind = kind}, plan, kernels, ranks);
  }
  [[nodiscard]] Seconds scan(const Model& model, std::int64_t tokens, int of_heads,
                             Phase phase = Phase::forward, bool fused = false) const {
    StateScan scan = model.linear->scan;
    scan.key_heads /= of_heads;
    scan.value_heads /= of_heads;
    return scan_time(machine.gpu, {.scan = scan, .seq = tokens, .fused = fused, .phase = phase},
                     DType::bf16);
  }
};

Bytes sent_as(const AttentionCost::Pass& pass, CommKind kind) {
  return pass.sent.by_kind().at(static_cast<std::size_t>(kind));
}

}  // namespace

TEST_CASE("one rank scans all tokens: chunked in training, fused in a prefill") {
  const Ranks r;
  const Model model = delta_model();
  const LinearCost cost = r.cost(model, over(1));
  CHECK(cost.cost.forward.kernels == r.scan(model, linear_seq, 1));
  CHECK(cost.cost.backward.kernels == r.scan(model, linear_seq, 1, Phase::backward));
  CHECK(cost.cost.backward.kernels.count() == Approx(3 * cost.cost.forward.kernels.count()));
  CHECK(cost.cost.forward.exposed == Seconds(0));
  // A token and value head: W 128, U and the new values 2 * 128, a state of 128 * 128 in each 64th,
  // 2 B each; as much of their gradients.
  CHECK(cost.cost.buffers == Bytes(linear_seq * 48 * 2 * (3 * 128 + 256) * 2));
  const LinearCost prefill = r.cost(model, over(1), StepKind::prefill);
  CHECK(prefill.cost.forward.kernels == r.scan(model, linear_seq, 1, Phase::forward, true));
  CHECK(prefill.cost.backward.kernels == Seconds(0));
  CHECK(prefill.spread < cost.spread);
}

TEST_CASE("heads go to ranks by all-to-all, whatever the order of tokens") {
  const Ranks r;
  const Model model = delta_model();
  const LinearCost cost = r.cost(model, over(8, Layout::zigzag));
  CHECK(cost.split == LinearSplit::heads);
  CHECK(cost.cost.forward.kernels == r.scan(model, linear_seq, 8));
  // Of 8192 tokens q, k 2 * 2048, v, z 2 * 6144, b, a 2 * 48 in 2 B, and back 6144; 7/8 of both.
  const Bytes in(8192 * (2 * 2048 + 2 * 6144 + 96) * 2);
  const Bytes out(8192 * 6144 * 2);
  CHECK(sent_as(cost.cost.forward, CommKind::all_to_all) == in * 7 / 8 + out * 7 / 8);
  CHECK(sent_as(cost.cost.backward, CommKind::all_to_all) ==
        sent_as(cost.cost.forward, CommKind::all_to_all));
  CHECK(sent_as(cost.cost.forward, CommKind::all_gather) == Bytes(0));
}

TEST_CASE("states are gathered where heads do not divide") {
  const Ranks r;
  const Model model = delta_model();
  const LinearCost cost = r.cost(model, over(32));
  CHECK(cost.split == LinearSplit::states);
  const ScanWork part{.scan = model.linear->scan, .seq = linear_seq / 32};
  CHECK(cost.cost.forward.kernels.count() ==
        Approx((r.scan(model, linear_seq / 32, 1) + summary_time(r.machine.gpu, part)).count()));
  // 32 ranks' states and matrices of 48 heads, 128 x 128 each, in fp32; 3 tokens of 10,240
  // channels.
  CHECK(sent_as(cost.cost.forward, CommKind::all_gather) == Bytes(31LL * 48 * 2 * 128 * 128 * 4));
  CHECK(sent_as(cost.cost.forward, CommKind::send_recv) == Bytes(3 * 10'240 * 2));
  CHECK(cost.cost.forward.exposed > Seconds(0));
}

TEST_CASE("Mamba2 hands on states without a matrix, and copies groups for more ranks") {
  const Ranks r;
  const Model model = mamba_model();
  const LinearCost states = r.cost(model, over(32));
  if (states.split == LinearSplit::states) {
    CHECK(sent_as(states.cost.forward, CommKind::all_gather) == Bytes(31LL * 64 * 128 * 64 * 4));
  }
  CHECK(splits_linear_heads(model, 1, 32));
  const LinearCost heads = r.cost(model, over(32, Layout::zigzag));
  // Of 2048 tokens B and C 2 * 4 * 1024 (4 copies of a group), x and z 2 * 4096, dt 64; y 4096.
  const Bytes in(2048 * (2 * 4 * 1024 + 2 * 4096 + 64) * 2);
  const Bytes out(2048 * 4096 * 2);
  CHECK(heads.split == LinearSplit::heads);
  CHECK(sent_as(heads.cost.forward, CommKind::all_to_all) == in * 31 / 32 + out * 31 / 32);
}

TEST_CASE("of two ways the faster one is taken") {
  const Ranks r;
  const Model model = delta_model();
  const auto total = [](const AttentionCost& c) {
    const auto of = [](const AttentionCost::Pass& p) { return p.kernels + p.small + p.exposed; };
    return of(c.forward) + of(c.backward);
  };
  const LinearCost heads = r.cost(model, over(16, Layout::zigzag));
  const LinearCost best = r.cost(model, over(16));
  CHECK(total(best.cost) <= total(heads.cost));
}

TEST_CASE("plans that linear attention cannot follow are refused with the reason") {
  const Model model = delta_model();
  CHECK(why_not_linear(test::tiny_model(), over(3)).legal());
  CHECK(why_not_linear(model, over(16, Layout::zigzag)).legal());
  CHECK(why_not_linear(model, over(32)).legal());
  const WhyNot order = why_not_linear(model, over(32, Layout::zigzag));
  CHECK(order.rule == "linear");
  CHECK(order.detail ==
        "linear attention's 16 key heads and 48 heads do not both split over tp 1 x 32 sequence "
        "ranks, and states are handed on only between ranks whose tokens stand together (layout "
        "contiguous, not zigzag)");
  const WhyNot tensor = why_not_linear(model, over(1, Layout::contiguous, 32));
  CHECK(tensor.rule == "tensor");
  CHECK(tensor.detail == "linear attention's 16 key heads and 48 heads do not both split 32 ways");
  CHECK(why_not_linear(mamba_model(), over(1, Layout::contiguous, 16)).detail ==
        "linear attention's 8 groups and 64 heads do not both split 16 ways");
}

TEST_CASE("a step's linear layers have their own pass: projections, convolution, scan") {
  test::TinyStep step;
  step.model.linear =
      LinearLayers{.scan = {.key_heads = 2, .key_dim = 3, .value_heads = 4, .value_dim = 2}};
  step.model.blocks = {{.mixer = Mixer::linear}, {}};
  step.attention.resize(2);
  step.attention[0].forward.kernels = Seconds(1);
  step.attention[0].backward.kernels = Seconds(3);
  step.attention[1].forward.kernels = Seconds(10);
  step.attention[1].backward.kernels = Seconds(20);
  StepPlan plan;
  CHECK(step.cost(plan).parts[StepPart::attention] == Approx(34));
  plan.recompute.kind = Recompute::full;
  CHECK(step.cost(plan).parts[StepPart::attention] == Approx(45));
}
