// Sparse attention over ranks that share a sequence: bytes by hand, kernels as machine/ says,
// rules.
#include "step/sparse_attention.hpp"

#include "base/error.hpp"
#include "machine/sparse_cost.hpp"
#include "sim/thinned.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/step/one_gpu.hpp"

using namespace spp;
using Catch::Approx;

namespace {

constexpr std::int64_t sparse_seq = 65536;

StepPlan gathering_over(int ranks, Layout layout = Layout::zigzag, int tensor = 1) {
  return {.attention = {.strategy = "all-gather", .ring = ranks, .layout = layout},
          .tensor = tensor};
}

struct SparseRanks {
  explicit SparseRanks(const std::string& name = "deepseek-v3.2")
      : model(ModelLibrary(test::source_path("models")).load(name, "test")) {}
  Model model;
  MachineSpec machine = test::catalog().machine("dgx-h100", "test");
  sim::Cluster cluster{machine, 4, 32};
  KernelCost kernels{machine.gpu, machine.gpu.generation.attention};

  [[nodiscard]] SparseCost cost(const StepPlan& plan, StepKind kind = StepKind::train,
                                std::int64_t cached = 0, std::size_t run = 0) const {
    const sim::Cluster ranks = sim::thinned(cluster, plan.tensor, plan.sequence());
    return sparse_attention_cost(model,
                                 {.problem = {.seq = sparse_seq, .cached = cached},
                                  .kind = kind,
                                  .call = sparse_call(layer_runs(model).at(run).ops)},
                                 plan, kernels, ranks);
  }
};

}  // namespace

TEST_CASE("sequence ranks gather latents and the indexer's keys, backward again") {
  const SparseRanks ranks;
  AttentionCost cost = ranks.cost(gathering_over(8)).cost;
  const Bytes sent(sparse_seq * (512 + 64 + 128) * 2 * 7 / 8);
  CHECK(cost.forward.sent.at(StepAxis::ring, CommKind::all_gather) == sent);
  CHECK(cost.backward.sent.at(StepAxis::ring, CommKind::all_gather) == sent);
  CHECK(cost.backward.sent.at(StepAxis::ring, CommKind::reduce_scatter) == sent);
  CHECK(cost.forward.exposed > Seconds(0));
  CHECK(ranks.cost(gathering_over(1)).cost.forward.exposed == Seconds(0));
}

TEST_CASE("zigzag ranks have equal scores, contiguous ones nearly twice as many") {
  const SparseRanks ranks;
  const double alone = ranks.cost(gathering_over(1)).cost.forward.kernels.count();
  const double zigzag = ranks.cost(gathering_over(8)).cost.forward.kernels.count();
  const double contiguous =
      ranks.cost(gathering_over(8, Layout::contiguous)).cost.forward.kernels.count();
  CHECK(zigzag == Approx(alone / 8).epsilon(0.02));
  CHECK(contiguous > 1.2 * zigzag);
  CHECK(contiguous < 2 * zigzag);
}

TEST_CASE("cached keys are picked among, too") {
  const SparseRanks ranks;
  const StepPlan plan = gathering_over(4);
  AttentionCost whole = ranks.cost(plan, StepKind::prefill).cost;
  AttentionCost behind = ranks.cost(plan, StepKind::prefill, 3 * sparse_seq).cost;
  CHECK(behind.forward.kernels > 1.5 * whole.forward.kernels);
  CHECK(behind.forward.sent.at(StepAxis::ring, CommKind::all_gather) ==
        4 * whole.forward.sent.at(StepAxis::ring, CommKind::all_gather));
}

TEST_CASE("only ranks that gather all keys have sparse attention") {
  const SparseRanks ranks;
  CHECK(why_not(ranks.model, gathering_over(8)).legal());
  CHECK(why_not(ranks.model, {.attention = {.strategy = "ring"}}).legal());
  const WhyNot ring = why_not(ranks.model, {.attention = {.strategy = "ring", .ring = 8}});
  CHECK(ring.rule == "sparse");
  CHECK(ring.detail ==
        "sparse attention picks among all keys, which its sequence ranks gather; ring hands them "
        "on in parts");
  StepPlan heads = gathering_over(4);
  heads.attention.ulysses = 2;
  CHECK(why_not(ranks.model, heads).rule == "sparse");
}

TEST_CASE("of compressed attention entries are gathered, and a window's keys come from in front") {
  const SparseRanks ranks("deepseek-v4-flash");
  const auto sent = [&](std::size_t run, Layout layout, Phase phase, CommKind kind) {
    AttentionCost cost = ranks.cost(gathering_over(8, layout), StepKind::train, 0, run).cost;
    return (phase == Phase::forward ? cost.forward : cost.backward).sent.at(StepAxis::ring, kind);
  };
  constexpr std::size_t sliding = 0;
  constexpr std::size_t sparse = 1;
  constexpr std::size_t heavy = 2;
  const auto gathered = [&](std::size_t run) {
    return sent(run, Layout::zigzag, Phase::forward, CommKind::all_gather);
  };
  CHECK(gathered(sliding) == Bytes(0));
  CHECK(gathered(sparse) == Bytes(sparse_seq / 4 * (512 + 128) * 2 * 7 / 8));
  CHECK(gathered(heavy) == Bytes(sparse_seq / 128 * 512 * 2 * 7 / 8));
  CHECK(sent(heavy, Layout::zigzag, Phase::backward, CommKind::reduce_scatter) == gathered(heavy));
  for (const std::size_t run : {sliding, sparse, heavy}) {
    // A chunk's window: two chunks a rank under zigzag, backward gradients on their way back, too.
    const Bytes one(128 * 512 * 2);
    CHECK(sent(run, Layout::contiguous, Phase::forward, CommKind::send_recv) == one);
    CHECK(sent(run, Layout::zigzag, Phase::forward, CommKind::send_recv) == 2 * one);
    CHECK(sent(run, Layout::zigzag, Phase::backward, CommKind::send_recv) == 4 * one);
  }
}

TEST_CASE("tensor ranks share groups of the output's heads evenly") {
  const SparseRanks ranks("deepseek-v4-flash");
  CHECK(why_not(ranks.model, gathering_over(1, Layout::zigzag, 8)).legal());
  const WhyNot sixteen = why_not(ranks.model, gathering_over(1, Layout::zigzag, 16));
  CHECK(sixteen.rule == "tensor");
  CHECK(sixteen.detail == "8 groups of attention's output do not split 16 ways (nearest: 8)");
}
