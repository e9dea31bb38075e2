#include "sim/kernel_cost.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <cmath>
#include <random>

using namespace spp;
using namespace spp::sim;
using namespace spp::unit_literals;
using Catch::Approx;
using spp::test::message_of;
using spp::test::source_path;

namespace {

const Catalog& catalog() {
  static const Catalog instance(source_path("topologies"));
  return instance;
}

GpuSpec gpu(const std::string& name) { return catalog().gpu(name, "test"); }

TokenSet range(std::int64_t begin, std::int64_t count) { return TokenSet({begin, count, 1}); }

AttentionShape full(std::int64_t q, std::int64_t k, int heads) {
  return {.q = range(0, q), .k = range(0, k), .q_heads = heads, .mask = {MaskKind::full, 0}};
}

AttentionShape causal(std::int64_t seq, int heads) {
  return {.q = range(0, seq), .k = range(0, seq), .q_heads = heads, .mask = {MaskKind::causal, 0}};
}

FlopCount flops_of(const AttentionShape& s) {
  const double per_pair = s.phase == Phase::forward ? 4 : 10;
  return FlopCount(per_pair * static_cast<double>(allowed_pairs(s.q, s.k, s.mask)) * s.q_heads *
                   s.head_dim * static_cast<double>(s.batch));
}

/// A block as some rank of some plan meets it: contiguous, zigzag or striped, any mask.
AttentionShape random_block(std::mt19937& random) {
  const auto upto = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % n); };
  const std::int64_t chunk = 1 + upto(3000);
  const std::int64_t ranks = 1 + upto(8);
  const auto held = [&](std::int64_t rank, std::int64_t layout) {
    switch (layout) {
      case 0:
        return TokenSet({rank * chunk, chunk, 1});
      case 1:
        return TokenSet({rank * chunk, chunk, 1}, {(2 * ranks - 1 - rank) * chunk, chunk, 1});
      default:
        return TokenSet({rank, chunk, ranks});
    }
  };
  const std::int64_t layout = upto(3);
  AttentionShape s{.q = held(upto(ranks), layout), .k = held(upto(ranks), layout)};
  s.mask = {static_cast<MaskKind>(upto(3)), 1 + upto(2 * chunk)};
  s.q_heads = static_cast<int>(1 + upto(40));
  s.batch = 1 + upto(3);
  s.head_dim = std::array{32, 64, 96, 128, 256}.at(static_cast<std::size_t>(upto(5)));
  s.phase = upto(2) == 0 ? Phase::forward : Phase::backward;
  s.dtype = DType::fp16;
  return s;
}

}  // namespace

TEST_CASE("a full block takes whole waves of equal items") {
  // H100, forward: tiles of 128 queries, 132 slots. 4224 queries x 8 heads = 33 * 8 = 264 items:
  // two waves. An item: 8192 keys + 112 rows, times 128 queries, 4 * 128 FLOPs a pair, at 0.66 *
  // 989.4 TFLOP/s / 132; 10 us to start.
  const GpuSpec h100 = gpu("h100");
  const KernelCost cost(h100);
  const double item = (8192 + 112) * 128.0 * 4 * 128 / (0.66 * 989.4e12 / 132);
  CHECK(cost.attention(full(4224, 8192, 8)).count() == Approx(10e-6 + 2 * item));
  CHECK(cost.attention(full(4225, 8192, 8)).count() == Approx(10e-6 + 3 * item));
  CHECK(cost.attention(full(4224 / 2, 8192, 8)).count() == Approx(10e-6 + item * 2));  // 136 items
  CHECK(cost.attention(full(4096 / 2, 8192, 8)).count() == Approx(10e-6 + item));      // 128 items
}

TEST_CASE("a backward block is dealt out by key tiles") {
  // 8192 queries x 2048 keys x 8 heads: 16 * 8 = 128 items on 132 slots, each 8192 + 448 rows.
  const GpuSpec h100 = gpu("h100");
  AttentionShape s = full(8192, 2048, 8);
  s.phase = Phase::backward;
  const double item = (8192 + 448) * 128.0 * 10 * 128 / (0.56 * 989.4e12 / 132);
  CHECK(KernelCost(h100).attention(s).count() == Approx(28e-6 + item));
}

TEST_CASE("a causal block lies in the middle of Graham's two bounds") {
  // 1024 x 1024 causal, 32 heads, H100: 8 * 32 = 256 items of 128, 256, … 1024 keys + 112 rows on
  // 132 slots. Work 32 * (8 * 9 / 2 * 128 + 8 * 112) = 176128 rows, 1334.3 a slot; longest 1136.
  // Best 1334.3, worst (176128 + 131 * 1136) / 132 = 2461.7.
  const GpuSpec h100 = gpu("h100");
  const double rows = (176128 / 132.0 + (176128 + 131 * 1136) / 132.0) / 2;
  const double slot_rate = 0.635 * 989.4e12 / 132;
  CHECK(KernelCost(h100).attention(causal(1024, 32)).count() ==
        Approx(10e-6 + rows * 128 * 4 * 128 / slot_rate));
  // One head: 8 items, the longest decides.
  CHECK(KernelCost(h100).attention(causal(1024, 1)).count() ==
        Approx(10e-6 + 1136 * 128.0 * 4 * 128 / slot_rate));
}

TEST_CASE("attention is never faster than the saturated kernel, and never above peak") {
  std::mt19937 random(7);
  std::vector<GpuSpec> gpus;
  for (const std::string& name : catalog().gpu_names()) {
    gpus.push_back(gpu(name));
  }
  for (int i = 0; i < 20000; ++i) {
    const AttentionShape s = random_block(random);
    const GpuSpec& on = gpus.at(static_cast<std::size_t>(i) % gpus.size());
    const KernelCost cost(on);
    const Seconds time = cost.attention(s);
    const Problem problem{.head_dim = s.head_dim, .dtype = s.dtype};
    const Seconds best = cost.attention_at_best(flops_of(s), problem, s.phase);
    INFO(on.name << " q " << to_string(s.q) << " k " << to_string(s.k) << " mask "
                 << to_string(s.mask) << " heads " << s.q_heads);
    REQUIRE(std::isfinite(time.count()));
    REQUIRE(time >= best);
    REQUIRE(best >= flops_of(s) / matrix_rate(on, s.dtype, "test"));
  }
}

TEST_CASE("the named alternatives of a kernel are used") {
  const GpuSpec h100 = gpu("h100");
  const KernelCost fa2(h100, attention_kernel(h100.generation, "FA2", "test"));
  const KernelCost fa3(h100, attention_kernel(h100.generation, "FA3", "test"));
  const AttentionShape s = full(65536, 65536, 8);
  // 0.385 against 0.69 of the matrix rate; item overheads of some 0.1 %.
  CHECK(fa2.attention(s) / fa3.attention(s) == Approx(0.69 / 0.385).epsilon(0.01));
}

TEST_CASE("attention takes longer for longer sequences") {
  for (const std::string name : {"h100", "a100", "l20-48g", "v100"}) {
    const GpuSpec on = gpu(name);
    const KernelCost cost(on);
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      for (const MaskKind mask : {MaskKind::full, MaskKind::causal, MaskKind::window}) {
        for (const int heads : {1, 4, 32}) {
          Seconds before(0);
          for (std::int64_t seq = 128; seq <= 65536; seq += 128 * (1 + seq / 2048)) {
            AttentionShape s = causal(seq, heads);
            s.mask = {mask, 1000};
            s.phase = phase;
            s.dtype = DType::fp16;
            INFO(name << " " << to_string(phase) << " " << to_string(s.mask) << " heads " << heads
                      << " seq " << seq);
            const Seconds now = cost.attention(s);
            CHECK(now >= before);
            before = now;
          }
        }
      }
    }
  }
}

TEST_CASE("attention takes longer for more heads and batch") {
  const GpuSpec a100 = gpu("a100");
  const KernelCost cost(a100);
  for (const auto& make :
       {+[](int h) { return full(1500, 2500, h); }, +[](int h) { return causal(2500, h); }}) {
    Seconds before(0);
    for (int heads = 1; heads <= 200; ++heads) {
      AttentionShape s = make(heads);
      const Seconds now = cost.attention(s);
      CHECK(now >= before);
      before = now;
      s.q_heads = 1;
      s.batch = heads;
      CHECK(cost.attention(s) == now);
    }
  }
}

TEST_CASE("a long causal call takes half of a full one") {
  // At 128K the items' overhead and the diagonal's half tiles are below 1 %; forward efficiencies
  // of the H100 defaults are 0.66 and 0.635, backward 0.56 and 0.555.
  const GpuSpec h100 = gpu("h100");
  const KernelCost cost(h100);
  AttentionShape c = causal(131072, 32);
  AttentionShape f = full(131072, 131072, 32);
  CHECK(cost.attention(c) / cost.attention(f) == Approx(0.5 * 0.66 / 0.635).epsilon(0.01));
  c.phase = f.phase = Phase::backward;
  CHECK(cost.attention(c) / cost.attention(f) == Approx(0.5 * 0.56 / 0.555).epsilon(0.01));
}

TEST_CASE("cutting a block never makes the pieces faster together") {
  for (const std::string name : {"h100", "a100", "gb200"}) {
    const GpuSpec on = gpu(name);
    const KernelCost cost(on);
    const AttentionKernelSpec& kernel = on.generation.attention;
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      for (const int heads : {1, 8, 32}) {
        for (const int parts : {2, 4, 8, 16}) {
          INFO(name << " " << to_string(phase) << " heads " << heads << " parts " << parts);
          const auto time = [&](std::int64_t q, std::int64_t k, int h) {
            AttentionShape s = full(q, k, h);
            s.phase = phase;
            return cost.attention(s);
          };
          const std::int64_t seq = 16384;
          const Seconds whole = time(seq, seq, heads);
          CHECK(parts * time(seq, seq / parts, heads) >= whole);
          if (phase == Phase::forward && kernel.forward_minimum_fill) {
            continue;  // split-KV begins when items are few: fewer queries or heads may fit better
          }
          CHECK(parts * time(seq / parts, seq, heads) >= whole);
          if (heads % parts == 0) {
            CHECK(parts * time(seq, seq, heads / parts) >= whole);
          }
        }
      }
    }
  }
}

TEST_CASE("few heads cost more per FLOP on short blocks") {
  const GpuSpec h100 = gpu("h100");
  const KernelCost cost(h100);
  const auto per_head = [&](int heads) { return cost.attention(full(2048, 2048, heads)) / heads; };
  CHECK(per_head(1) > 5 * per_head(32));
  CHECK(per_head(4) > 1.5 * per_head(32));
}

TEST_CASE("split-KV kernels keep a part of the GPU busy with few heads") {
  // A100, one head, 1024 queries: 8 items of 32768 + 128 rows on 108 SMs, cut to fill 0.62 of them.
  const GpuSpec a100 = gpu("a100");
  const double rows = 32768 / (0.62 * 108 / 8) + 128;
  CHECK(KernelCost(a100).attention(full(1024, 32768, 1)).count() ==
        Approx(8e-6 + rows * 128 * 4 * 128 / (0.745 * 312e12 / 108)));
  // 128 keys are two tiles of 64: no more than two pieces.
  CHECK(KernelCost(a100).attention(full(1024, 128, 1)).count() ==
        Approx(8e-6 + (64 + 128) * 128.0 * 4 * 128 / (0.745 * 312e12 / 108)));
}

TEST_CASE("layouts of equal work take equal time") {
  // Any two ranks of a zigzag ring: half of a full block. Striped: half, with or without diagonal.
  // Items of half the length pay the overhead twice (112 of 4096 rows forward, 448 of 8192
  // backward).
  const GpuSpec h100 = gpu("h100");
  const KernelCost cost(h100);
  const auto zigzag = [](std::int64_t r) {
    return TokenSet({r * 4096, 4096, 1}, {(15 - r) * 4096, 4096, 1});
  };
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    AttentionShape s{.q = zigzag(2), .k = zigzag(5), .q_heads = 32, .phase = phase};
    const Seconds upper = cost.attention(s);
    std::swap(s.q, s.k);
    const Seconds lower = cost.attention(s);
    s.k = s.q;
    const Seconds diagonal = cost.attention(s);
    CHECK(lower / upper == Approx(1).epsilon(0.05));
    CHECK(diagonal / upper == Approx(1).epsilon(0.05));

    AttentionShape striped{
        .q = TokenSet({2, 8192, 8}), .k = TokenSet({5, 8192, 8}), .q_heads = 32, .phase = phase};
    CHECK(cost.attention(striped) / diagonal == Approx(1).epsilon(0.05));
  }
}

TEST_CASE("a block that the mask hides costs no more than its launch") {
  const GpuSpec h100 = gpu("h100");
  AttentionShape s{.q = range(0, 4096), .k = range(4096, 4096), .q_heads = 32};
  CHECK(KernelCost(h100).attention(s) == 10.0_us);
  s.phase = Phase::backward;
  CHECK(KernelCost(h100).attention(s) == 28.0_us);
}

TEST_CASE("a GPU that lacks the type is wrong input") {
  const GpuSpec v100 = gpu("v100");
  CHECK_THROWS_AS(KernelCost(v100).attention(causal(1024, 8)), InputError);
}

TEST_CASE("other kernels stream their bytes") {
  // H100: 0.85 of 3350 GB/s.
  const GpuSpec h100 = gpu("h100");
  const KernelCost cost(h100);
  CHECK(cost.memory_bound(1_GiB).count() == Approx(1073741824 / (0.85 * 3350e9)));
  CHECK(cost.launch() == 4.0_us);

  const Problem problem{.seq = 4096, .q_heads = 8, .kv_heads = 8};
  std::array<Buffer, 2> buffers;
  for (Buffer& buffer : buffers) {
    buffer.tokens = 1024;
    buffer.heads = 8;
  }
  const Shapes shapes{.problem = &problem, .buffers = buffers, .rank = Rank(0)};
  const OpBody copy = Copy{.kind = CopyKind::pack, .from = BufferId(0), .to = BufferId(1)};
  CHECK(cost.of(copy, shapes) == cost.memory_bound(touched_bytes(copy, shapes)));
  CHECK_THROWS_AS(cost.of(Exchange{}, shapes), InternalError);

  AttentionForward block;
  block.q_tokens = block.k_tokens = range(0, 1024);
  block.heads = block.kv_heads = {0, 8};
  CHECK(cost.of(block, shapes) == cost.attention(causal(1024, 8)));
}

TEST_CASE("a GEMM runs in waves of tiles, or at the speed of memory") {
  // H100: 4096 x 4224 output: 32 * 33 = 1056 tiles of 128 x 128 = 8 waves of 132; at 0.72 of peak.
  const GpuSpec h100 = gpu("h100");
  const KernelCost cost(h100);
  CHECK(cost.gemm(4096, 4224, 4096, DType::bf16).count() ==
        Approx(4e-6 + 2.0 * 4096 * 4224 * 4096 / (0.72 * 989.4e12)));
  CHECK(cost.gemm(4096, 4225, 4096, DType::bf16) > cost.gemm(4096, 4224, 4096, DType::bf16));
  // One row: 4096 x 4096 weights are read once.
  const Seconds thin = cost.gemm(1, 16384, 16384, DType::bf16);
  CHECK(thin >= cost.memory_bound(Bytes(std::int64_t{2} * 16384 * 16384)));
}
