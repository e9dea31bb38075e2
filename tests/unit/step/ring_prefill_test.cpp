#include "step/ring_prefill.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/step/one_gpu.hpp"

using namespace spp;
using Catch::Approx;

namespace {

struct Ring {
  MachineSpec machine = Catalog(test::source_path("topologies")).machine("dgx-h100", "test");
  sim::Cluster cluster{machine, 1, 4};
  KernelCost kernels{machine.gpu, machine.gpu.generation.attention};
  Problem problem{.seq = 4096, .q_heads = 16, .kv_heads = 1, .head_dim = 128};

  [[nodiscard]] AttentionCost::Pass pass(const RingPrefill& work, int ranks = 4) const {
    return ring_prefill(work, problem, ranks, kernels, cluster).forward;
  }
};

Bytes sent(const AttentionCost::Pass& pass, CommKind kind) {
  return pass.sent.by_kind().at(static_cast<std::size_t>(kind));
}

}  // namespace

TEST_CASE("without a ring the new queries stand behind the cached keys") {
  const Ring ring;
  const auto alone = [&](std::int64_t cached, const Mask& mask) {
    return ring.kernels.attention({.q = TokenSet(TokenRange{.begin = cached, .count = 4096}),
                                   .k = TokenSet(TokenRange{.begin = 0, .count = cached + 4096}),
                                   .q_heads = 16,
                                   .kv_heads = 1,
                                   .head_dim = 128,
                                   .mask = mask});
  };
  for (const std::int64_t cached : {0, 1000}) {
    const AttentionCost::Pass pass = ring.pass({.cached = cached}, 1);
    CHECK(pass.kernels == alone(cached, {}));
    CHECK(pass.exposed == Seconds(0));
    CHECK(sent(pass, CommKind::send_recv) == Bytes(0));
  }
  Ring windows;
  windows.problem.mask = {.kind = MaskKind::window, .window = 128};
  CHECK(windows.pass({.cached = 1000}, 1).kernels == alone(1000, windows.problem.mask));
}

TEST_CASE("hops of ranks below one bridge share it") {
  const Catalog catalog(test::source_path("topologies"));
  const MachineSpec machine = catalog.machine("8xl20-pcie", "test");
  const KernelCost kernels(machine.gpu, machine.gpu.generation.attention);
  const Problem problem{.seq = 4096, .q_heads = 16, .kv_heads = 16, .head_dim = 128};
  const AttentionCost::Pass pass =
      ring_prefill({.cached = 0}, problem, 4, kernels, {machine, 1, 4}).forward;
  // Each of 4 ranks sends K and V of 1024 tokens three times, through 46 GB/s.
  const double bytes = 3.0 * 4 * 2 * 1024 * 16 * 128 * 2;
  CHECK((pass.exposed + pass.hidden).count() >= bytes / 46e9 * (1 - 1e-9));
}

TEST_CASE("kernels slow a hop between nodes as long as they run") {
  const Ring one;
  const sim::Cluster two(one.machine, 2, 16);
  const Catalog catalog(test::source_path("topologies"));
  const StackSpec slow = catalog.stack("ring-flash-attn", "test");
  StackSpec fast = slow;
  fast.network_beside_kernels.reset();
  Problem problem = one.problem;
  for (const std::int64_t seq : {16384, 32768, 65536, 131072, 262144}) {
    problem.seq = seq;
    const auto of = [&](const StackSpec& stack) {
      return ring_prefill({.cached = 0}, problem, 16, one.kernels, two, &stack).forward;
    };
    const AttentionCost::Pass a = of(fast);
    const AttentionCost::Pass b = of(slow);
    const double alone = (a.exposed + a.hidden).count();
    const double slowed = (b.exposed + b.hidden).count();
    const double speed = slow.network_beside_kernels->speed_forward.value;
    CHECK(slowed >= alone);
    CHECK(slowed <= alone / speed);                                   // all of it
    CHECK(slowed <= alone + (1 - speed) * b.kernels.count() + 1e-9);  // while kernels run
  }
}

TEST_CASE("keys travel with what is cached, queries without") {
  const Ring ring;
  // K and V of (4096 + 8192) / 4 tokens, one head of 128 in 2 B, three hops.
  const AttentionCost::Pass keys = ring.pass({.cached = 8192});
  CHECK(sent(keys, CommKind::send_recv) == Bytes(3 * 2 * 3072 * 128 * 2));
  CHECK(sent(keys, CommKind::all_to_all) == Bytes(0));
  // 16 heads of 1024 queries; their parts of the output, and LSE in 4 B, go back.
  const AttentionCost::Pass queries = ring.pass({.cached = 8192, .pass_queries = true});
  CHECK(sent(queries, CommKind::send_recv) == Bytes(3 * 1024 * 16 * 128 * 2));
  CHECK(sent(queries, CommKind::all_to_all) == Bytes(3 * (1024 * 16 * 128 * 2 + 1024 * 16 * 4)));
  CHECK(queries.kernels.count() == Approx(keys.kernels.count()));
}

TEST_CASE("few new tokens behind a long cache favour queries that travel") {
  const auto total = [](const AttentionCost::Pass& p) {
    return (p.kernels + p.small + p.exposed).count();
  };
  Ring ring;
  ring.problem.kv_heads = 16;
  ring.problem.seq = 256;
  const std::int64_t much = 1 << 20;
  CHECK(total(ring.pass({.cached = much, .pass_queries = true})) <
        total(ring.pass({.cached = much})));
  ring.problem.seq = 131072;
  CHECK(total(ring.pass({.cached = 0, .pass_queries = true})) > total(ring.pass({.cached = 0})));
}
