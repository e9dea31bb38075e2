// Sparse attention over ranks that share a sequence: bytes by hand, kernels as machine/ says,
// rules.
#include "step/sparse_attention.hpp"

#include "base/error.hpp"
#include "machine/sparse_cost.hpp"
#include "sim/thinned.hpp"
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
  Model model = ModelLibrary(test::source_path("models")).load("deepseek-v3.2", "test");
  MachineSpec machine = Catalog(test::source_path("topologies")).machine("dgx-h100", "test");
  sim::Cluster cluster{machine, 4, 32};
  KernelCost kernels{machine.gpu, machine.gpu.generation.attention};

  [[nodiscard]] SparseCost cost(const StepPlan& plan, StepKind kind = StepKind::train,
                                std::int64_t cached = 0) const {
    const sim::Cluster ranks = sim::thinned(cluster, plan.tensor, plan.sequence());
    return sparse_attention_cost(model,
                                 {.problem = {.seq = sparse_seq, .cached = cached}, .kind = kind},
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
  const StepRule ring = why_not(ranks.model, {.attention = {.strategy = "ring", .ring = 8}});
  CHECK(ring.rule == "sparse");
  CHECK(ring.detail ==
        "sparse attention picks among all keys, which its sequence ranks gather; ring hands them "
        "on in parts");
  StepPlan heads = gathering_over(4);
  heads.attention.ulysses = 2;
  CHECK(why_not(ranks.model, heads).rule == "sparse");
}
