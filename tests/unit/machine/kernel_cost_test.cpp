// Mirrors one header, hence one file.
#include "machine/kernel_cost.hpp"

#include "base/error.hpp"
#include "machine/attention_tiles.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <set>

using namespace spp;
using namespace spp::unit_literals;
using Catch::Approx;
using spp::test::catalog;
using spp::test::message_of;

namespace {

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

double overhead(const AttentionKernelSpec& kernel, Phase phase) {
  return static_cast<double>(
      (phase == Phase::forward ? kernel.item_overhead : kernel.item_overhead_backward).value);
}

}  // namespace

TEST_CASE("a full block takes whole waves of equal items") {
  // H100, forward: tiles of 128 queries, 132 slots. 4224 queries x 8 heads = 33 * 8 = 264 items:
  // two waves. An item: 8192 keys + overhead rows, times 128 queries, 4 * 128 FLOPs a pair.
  const GpuSpec h100 = gpu("h100");
  const AttentionKernelSpec& kernel = h100.generation.attention;
  const KernelCost cost(h100);
  const double startup = kernel.startup.value.count();
  const double item = (8192 + overhead(kernel, Phase::forward)) * 128.0 * 4 * 128 /
                      (kernel.forward_full.value * 989.4e12 / 132);
  CHECK(cost.attention(full(4224, 8192, 8)).count() == Approx(startup + 2 * item));
  CHECK(cost.attention(full(4225, 8192, 8)).count() == Approx(startup + 3 * item));
  CHECK(cost.attention(full(4224 / 2, 8192, 8)).count() ==
        Approx(startup + item * 2));                                                 // 136 items
  CHECK(cost.attention(full(4096 / 2, 8192, 8)).count() == Approx(startup + item));  // 128 items
}

TEST_CASE("a backward block is dealt out by key tiles and streams its gradients") {
  // 8192 queries x 2048 keys x 8 heads: 16 * 8 = 128 items on 132 slots, each 8192 + overhead rows.
  // 14 bytes for each of 8192 * 8 * 128 elements of dQ at 0.85 of 3350 GB/s.
  const GpuSpec h100 = gpu("h100");
  const AttentionKernelSpec& kernel = h100.generation.attention;
  AttentionShape s = full(8192, 2048, 8);
  s.kv_heads = 8;
  s.phase = Phase::backward;
  const double item = (8192 + overhead(kernel, Phase::backward)) * 128.0 * 10 * 128 /
                      (kernel.backward_full.value * 989.4e12 / 132);
  const double stream = 14.0 * 8192 * 8 * 128 / (0.85 * 3350e9);
  const double mha = kernel.startup_backward.value.count() + item + stream;
  CHECK(KernelCost(h100).attention(s).count() == Approx(mha));
  // Two K/V heads: dK and dV of 2048 * 8 * 128 elements in 16 bits, written and read.
  s.kv_heads = 2;
  CHECK(KernelCost(h100).attention(s).count() ==
        Approx(mha + 8.0 * 2048 * 8 * 128 / (0.85 * 3350e9)));
}

TEST_CASE("a causal block lies between Graham's two bounds") {
  // 1024 x 1024 causal, 32 heads, H100: 8 * 32 = 256 items of 128, 256, … 1024 keys + overhead h on
  // 132 slots. Work 32 * 8 * 9 / 2 * 128 = 147456 rows + 256 h. Longest first within each head:
  // 0.65 - 0.55 * 8 / 132 of the way from the lower to the upper bound.
  const GpuSpec h100 = gpu("h100");
  const AttentionKernelSpec& kernel = h100.generation.attention;
  REQUIRE(kernel.forward_order == ItemOrder::longest_first);
  const double h = overhead(kernel, Phase::forward);
  const double work = 147456 + 256 * h;
  const double low = std::max(work / 132, 1024 + h);
  const double high = (work + 131 * (1024 + h)) / 132;
  const double rows = low + (0.65 - 0.55 * 8 / 132) * (high - low);
  const double slot_rate = kernel.forward_causal.value * 989.4e12 / 132;
  const double startup = kernel.startup.value.count();
  CHECK(KernelCost(h100).attention(causal(1024, 32)).count() ==
        Approx(startup + rows * 128 * 4 * 128 / slot_rate));
  // One head: 8 items, the longest decides.
  CHECK(KernelCost(h100).attention(causal(1024, 1)).count() ==
        Approx(startup + (1024 + h) * 128.0 * 4 * 128 / slot_rate));
}

TEST_CASE("launch orders end about where list scheduling ends") {
  // Items of 1 … n tiles of 128 rows for each head, dealt to the slot that is free first.
  GpuSpec h100 = gpu("h100");
  AttentionKernelSpec kernel = h100.generation.attention;
  kernel.item_overhead.value = 64;
  const double tile_time =
      128.0 * 128 * 4 * 128 / (kernel.forward_causal.value * 989.4e12 / 132);  // of one tile pair
  for (const ItemOrder order : {ItemOrder::shortest_first, ItemOrder::longest_first,
                                ItemOrder::longest_first_of_all, ItemOrder::unknown}) {
    kernel.forward_order = order;
    for (const int heads : {1, 2, 8, 32}) {
      for (const int n : {8, 16, 32, 64, 128, 256, 512}) {
        if (n * heads <= 132) {
          continue;  // the longest item decides: above
        }
        std::vector<double> items;
        for (int head = 0; head < heads; ++head) {
          for (int i = 1; i <= n; ++i) {
            items.push_back((order == ItemOrder::longest_first ? n + 1 - i : i) + 0.5);
          }
        }
        if (order == ItemOrder::longest_first_of_all) {
          std::ranges::sort(items, std::greater<>());
        }
        std::multiset<double> slots;
        for (int i = 0; i < 132; ++i) {
          slots.insert(0);
        }
        for (const double item : items) {
          const double free = *slots.begin();
          slots.erase(slots.begin());
          slots.insert(free + item);
        }
        INFO("order " << static_cast<int>(order) << " heads " << heads << " items " << n);
        const double time =
            (KernelCost(h100, kernel).attention(causal(128 * n, heads)) - kernel.startup.value)
                .count();
        // Unknown: the middle is at most half of (1 - 1/132) * longest away.
        const double near = order == ItemOrder::unknown ? 0.5 : 0.13;
        CHECK(time == Approx(*slots.rbegin() * tile_time).epsilon(near));
      }
    }
  }
}

TEST_CASE("queries behind a long prefix fill whole waves") {
  // 10 tiles of queries of 16 heads behind 1,000 tiles of keys: 160 items of about one length, two
  // of them on some of 132 slots. Graham's upper bound is a tenth above that.
  const GpuSpec h100 = gpu("h100");
  const AttentionKernelSpec& kernel = h100.generation.attention;
  const std::int64_t prefix = 128'000;
  AttentionShape chunk = causal(1280, 16);
  chunk.q = range(prefix, 1280);
  chunk.k = range(0, prefix + 1280);
  const double row = 128.0 * 4 * 128 / (kernel.forward_causal.value * 989.4e12 / 132);
  const double time = (KernelCost(h100).attention(chunk) - kernel.startup.value).count();
  CHECK(time >= 2 * prefix * row);
  CHECK(time <= 2.2 * prefix * row);
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

TEST_CASE("no kernel of any GPU is faster than its saturated rate, and none above peak") {
  std::mt19937 random(11);
  for (const std::string& name : catalog().gpu_names()) {
    const GpuSpec on = gpu(name);
    std::vector<const AttentionKernelSpec*> kernels{&on.generation.attention};
    for (const auto& [ignored, kernel] : on.generation.kernels) {
      kernels.push_back(&kernel);
    }
    for (const AttentionKernelSpec* kernel : kernels) {
      const KernelCost cost(on, *kernel);
      const auto factor =
          static_cast<double>(kernel->matrix_rate_factor ? kernel->matrix_rate_factor->value : 1);
      for (int i = 0; i < 300; ++i) {
        const AttentionShape s = random_block(random);
        const FlopCount flops = flops_of(s);
        const Seconds best =
            cost.attention_at_best(flops, {.head_dim = s.head_dim, .dtype = s.dtype}, s.phase);
        INFO(on.name << " " << kernel->kernel << " q " << to_string(s.q) << " k " << to_string(s.k)
                     << " mask " << to_string(s.mask) << " heads " << s.q_heads);
        REQUIRE(cost.attention(s) >= best + cost.least_startup(s.phase) * 0.999);
        REQUIRE(best >= flops / (matrix_rate(on, s.dtype, "test") * factor));
      }
    }
  }
}

TEST_CASE("the named alternatives of a kernel are used") {
  const GpuSpec h100 = gpu("h100");
  const AttentionKernelSpec& two = attention_kernel(h100.generation, "FA2", "test");
  const AttentionKernelSpec& three = attention_kernel(h100.generation, "FA3", "test");
  const AttentionShape s = full(65536, 65536, 8);
  // 32 waves of either; item overheads of some 0.2 %.
  CHECK(KernelCost(h100, two).attention(s) / KernelCost(h100, three).attention(s) ==
        Approx(three.forward_full.value / two.forward_full.value).epsilon(0.01));
}

TEST_CASE("a lone item of FlashAttention-2 leaves a part of its SM idle") {
  // A100: 108 items are one an SM, 216 two, which share it; the third of 324 is alone again.
  const GpuSpec a100 = gpu("a100");
  const AttentionKernelSpec& kernel = a100.generation.attention;
  const double startup = kernel.startup.value.count();
  const double lone = kernel.lone_item->value;
  const double item = (8192 + overhead(kernel, Phase::forward)) * 128.0 * 4 * 128 /
                      (kernel.forward_full.value * 312e12 / 108);
  const KernelCost cost(a100);
  const auto items = [&](int n) { return cost.attention(full(128, 8192, n)).count() - startup; };
  CHECK(items(108) == Approx(item / lone));
  CHECK(items(216) == Approx(2 * item));
  CHECK(items(324) == Approx((2 + 1 / lone) * item));
}

TEST_CASE("head dims between 64 and 128 interpolate the time of a pair") {
  // Times of a pair in those of a pair per dim at 128: 64 / f at 64, 128 at 128.
  const GpuSpec h100 = gpu("h100");
  const AttentionKernelSpec& kernel = h100.generation.attention;
  const double at_64 = 64 / kernel.head_dim_64.value;
  const auto time = [&](int head_dim, int values = 0) {
    AttentionShape s = full(8192, 8192, 33);
    s.head_dim = head_dim;
    s.value_dim = values;
    return (KernelCost(h100).attention(s) - kernel.startup.value).count();
  };
  CHECK(time(64) / time(128) == Approx(at_64 / 128));
  CHECK(time(96) / time(128) == Approx((at_64 + 128) / 2 / 128));
  CHECK(time(72) == Approx(time(96)));  // padded
  CHECK(time(32) / time(128) == Approx((1.5 * at_64 - 64) / 128));
  CHECK(time(256) / time(128) == Approx(2 / kernel.head_dim_256->value));
  // Queries and keys of 192, values of 128: the work of 160.
  CHECK(time(192, 128) / time(128) ==
        Approx(160 / 128.0 / (1 + (kernel.head_dim_256->value - 1) / 4)));
  AttentionShape s = full(1, 1, 1);
  s.head_dim = 192;
  s.value_dim = 128;
  CHECK(attention_flops_of(s) == FlopCount(2 * (192 + 128)));
  s.phase = Phase::backward;
  CHECK(attention_flops_of(s) == FlopCount(2 * (3 * 192 + 2 * 128)));
}

TEST_CASE("a kernel's name means the version of its year") {
  const GenerationSpec hopper = gpu("h100").generation;
  const AttentionKernelSpec& latest = attention_kernel(hopper, "cudnn", "test");
  CHECK(latest.kernel == "cuDNN 9");
  CHECK(&attention_kernel(hopper, "cuDNN 9", "test", 2026) == &latest);
  const AttentionKernelSpec& before = attention_kernel(hopper, "cudnn", "test", 2024);
  CHECK(before.until == 2025);
  CHECK(before.forward_full.value < latest.forward_full.value);
  CHECK(before.q_tile.value == latest.q_tile.value);  // what it does not say is the latest's
  CHECK(&attention_kernel(hopper, "FA2", "test", 2024) == &attention_kernel(hopper, "FA2", "test"));
}

TEST_CASE("a GPU may slow down in long calls") {
  const GpuSpec h100 = gpu("h100");
  GpuSpec other = h100;
  const AttentionKernelSpec& fa3 = attention_kernel(h100.generation, "FA3", "test");
  const auto run = [](const GpuSpec& on, const AttentionKernelSpec& kernel, std::int64_t seq) {
    return (KernelCost(on, kernel).attention(full(seq, seq, 33)) - kernel.startup.value).count();
  };
  const double t = run(h100, fa3, 8192);
  other.power_limit = {.after = {.value = Seconds(t / 10), .spread = 0, .source = ""},
                       .per_decade = {.value = 0.05, .spread = 0, .source = ""}};
  CHECK(run(other, fa3, 8192) == Approx(1.05 * t));
  CHECK(run(other, fa3, 2048) == run(h100, fa3, 2048));
}

TEST_CASE("attention takes longer for longer sequences") {
  for (const std::string name : {"h100", "a100", "l20-48g", "v100", "gb200"}) {
    const GpuSpec on = gpu(name);
    const KernelCost cost(on);
    // Split-KV begins when items are few: more queries may take less. With 128 heads they are not.
    const std::vector<int> all_heads =
        on.generation.attention.forward_minimum_fill ? std::vector{128} : std::vector{1, 4, 32};
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      for (const MaskKind mask : {MaskKind::full, MaskKind::causal, MaskKind::window}) {
        for (const int heads : all_heads) {
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
  const GpuSpec h100 = gpu("h100");
  const KernelCost cost(h100);
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
  // At 128K the items' overhead and the diagonal's half tiles are below 1 %.
  const GpuSpec h100 = gpu("h100");
  const AttentionKernelSpec& kernel = h100.generation.attention;
  const KernelCost cost(h100);
  AttentionShape c = causal(131072, 32);
  AttentionShape f = full(131072, 131072, 32);
  CHECK(cost.attention(c) / cost.attention(f) ==
        Approx(0.5 * kernel.forward_full.value / kernel.forward_causal.value).epsilon(0.01));
  c.phase = f.phase = Phase::backward;
  CHECK(cost.attention(c) / cost.attention(f) ==
        Approx(0.5 * kernel.backward_full.value / kernel.backward_causal.value).epsilon(0.01));
}

TEST_CASE("cutting a block never makes the pieces faster together") {
  for (const std::string name : {"h100", "a100", "b200"}) {
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

TEST_CASE("FlashAttention-2 splits the keys of few query tiles") {
  // A100, one head, 1024 queries: 16 tiles of 64 on 216 slots. 27 pieces would fill two waves; 12,
  // the fewest with 0.85 of that (192 / 216), are taken. 32768 keys are 256 tiles of 128, a piece
  // 22 of them. 192 items on 108 SMs: two each. Then 12 partial results of 1024 * 128 are added up.
  const GpuSpec a100 = gpu("a100");
  const AttentionKernelSpec& kernel = a100.generation.attention;
  const double startup = kernel.startup.value.count();
  const double h = overhead(kernel, Phase::forward);
  const double slot_rate = kernel.forward_full.value * 312e12 / 108;
  CHECK(KernelCost(a100).attention(full(1024, 32768, 1)).count() ==
        Approx(startup + 4e-6 + 12.0 * 8 * 1024 * 128 / (0.85 * 2039e9) +
               2 * (22 * 128 + h) * 64 * 4 * 128 / (slot_rate * kernel.split_rate->value)));
  // 128 keys are one tile: nothing to split.
  CHECK(KernelCost(a100).attention(full(1024, 128, 1)).count() ==
        Approx(startup + (128 + h) / kernel.lone_item->value * 128.0 * 4 * 128 / slot_rate));
}

TEST_CASE("behind a cache every kernel splits the keys of few queries") {
  const GpuSpec h100 = gpu("h100");
  const KernelCost cost(h100);
  AttentionShape few = full(64, 131072, 4);
  const Seconds whole = cost.attention(few);
  few.behind_cache = true;
  CHECK(cost.attention(few) < 0.1 * whole);
  CHECK(cost.attention(few) < KernelCost(gpu("a100")).attention(few));
  AttentionShape many = full(8192, 131072, 32);
  const Seconds filled = cost.attention(many);
  many.behind_cache = true;
  CHECK(cost.attention(many) == filled);
}

TEST_CASE("half as many causal queries behind a cache are half as many tiles") {
  const GpuSpec h100 = gpu("h100");
  const KernelCost cost(h100);
  const auto behind = [&](std::int64_t queries) {
    return cost.attention({.q = TokenSet({131072, queries, 1}),
                           .k = TokenSet({0, 131072 + queries, 1}),
                           .q_heads = 32,
                           .kv_heads = 8,
                           .mask = {.kind = MaskKind::causal},
                           .behind_cache = true});
  };
  CHECK(behind(64) < 0.6 * behind(128));
  CHECK(behind(192) < behind(256));
}

TEST_CASE("layouts of equal work take equal time") {
  // Any two ranks of a zigzag ring: half of a full block. Striped: half, with or without diagonal.
  // Items of half the length pay the overhead twice.
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
  CHECK(KernelCost(h100).attention(s) == h100.generation.attention.startup.value);
  s.phase = Phase::backward;
  CHECK(KernelCost(h100).attention(s) == h100.generation.attention.startup_backward.value);
}

TEST_CASE("a GPU that lacks the type is wrong input") {
  const GpuSpec v100 = gpu("v100");
  CHECK_THROWS_AS(KernelCost(v100).attention(causal(1024, 8)), InputError);
}

// Lengths in tiles of 128 x 128: 300 = 2.3, 7, 500 = 3.9, 217 = 1.7 of them.
TEST_CASE("the work of packed documents is that of each document alone, in tiles of its own") {
  const GpuSpec h100 = gpu("h100-80g-sxm");
  const AttentionKernelSpec& kernel = h100.generation.attention;
  const std::vector<std::int64_t> ends{300, 307, 807, 1024};
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    for (const MaskKind kind : {MaskKind::full, MaskKind::causal}) {
      AttentionShape packed = causal(1024, 1);
      packed.phase = phase;
      packed.mask = {.kind = kind, .document_ends = ends};
      tiles::Work sum;
      std::int64_t begin = 0;
      for (const std::int64_t end : ends) {
        AttentionShape alone = packed;
        alone.q = alone.k = range(begin, end - begin);
        alone.mask.document_ends.clear();
        const tiles::Work work = tiles::work_of(alone, kernel);
        sum.items += work.items;
        sum.total += work.total;
        sum.longest = std::max(sum.longest, work.longest);
        begin = end;
      }
      const tiles::Work work = tiles::work_of(packed, kernel);
      CHECK(work.items == sum.items);
      CHECK(work.total == sum.total);
      CHECK(work.longest == sum.longest);
      CHECK(work.total * static_cast<double>(kernel.q_tile.value) >=
            static_cast<double>(allowed_pairs(packed.q, packed.k, packed.mask)));
    }
  }
}

TEST_CASE("blocks of zigzag and striped ranks under packed documents never beat their FLOPs") {
  const GpuSpec h100 = gpu("h100-80g-sxm");
  const KernelCost cost(h100);
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    AttentionShape block = random_block(random);
    block.mask.document_ends.clear();
    for (std::int64_t end = 1 + static_cast<std::int64_t>(random() % 2000); end < 40000;
         end += 1 + static_cast<std::int64_t>(random() % 2000)) {
      block.mask.document_ends.push_back(end);
    }
    CHECK(cost.attention(block) >=
          attention_flops_of(block) / matrix_rate(h100, block.dtype, "test"));
  }
}

// 2 ranks: documents of 4 pieces of 100 and 30 tokens. Rank 1 holds pieces 1 and 2 of both, rank 0
// the others. A document's pieces fill tiles of 128 together: 200 rows are 2 tiles, 60 are 1.
TEST_CASE("pieces of a document that is dealt out fill tiles together") {
  const GpuSpec h100 = gpu("h100-80g-sxm");
  const AttentionKernelSpec& kernel = h100.generation.attention;
  const auto cost_of = [&](const AttentionShape& s) { return KernelCost(h100).attention(s); };
  REQUIRE(kernel.q_tile.value == 128);
  REQUIRE(kernel.kv_tile.value == 128);
  AttentionShape own = causal(1, 1);
  own.mask = {.kind = MaskKind::causal, .document_ends = {100, 130}, .pieces = 4};
  own.q = own.k = TokenSet({0, 130}, {390, 130});
  tiles::Work work = tiles::work_of(own, kernel);
  CHECK(work.items == 3);
  CHECK(work.total == 128 + 256 + 128);  // rows up to 127 see 100 + 28 keys, up to 199 all
  CHECK(work.longest == 256);
  AttentionShape later = own;  // pieces 1 and 2: piece 3's queries see both, piece 0's none
  later.k = TokenSet({130, 260});
  work = tiles::work_of(later, kernel);
  CHECK(work.total == 2 * 256 + 128);
  CHECK(is_partly_hidden(later));
  later.q = TokenSet({390, 130});
  CHECK_FALSE(is_partly_hidden(later));
  CHECK(is_partly_masked(later));
  // The same work a chunk further on; other work with other documents.
  AttentionShape moved = own;
  moved.q = moved.k = TokenSet({130, 130});
  AttentionShape first = own;
  first.q = first.k = TokenSet({0, 130});
  CHECK(key_of(moved) == key_of(first));
  moved.mask.document_ends = {90, 130};
  CHECK(key_of(moved) != key_of(first));
  AttentionShape far = own;  // chunks 0 and 3 and chunks 1 and 2 come in the same order
  far.q = far.k = TokenSet({130, 260});
  CHECK(key_of(far) == key_of(own));
  CHECK(cost_of(far) == cost_of(own));
}

TEST_CASE("one document that is dealt out is a sequence") {
  const KernelCost cost(gpu("h100-80g-sxm"));
  AttentionShape plain = causal(4096, 8);
  AttentionShape dealt = plain;
  dealt.mask = {.kind = MaskKind::causal, .document_ends = {512}, .pieces = 8};
  CHECK(key_of(dealt) == key_of(plain));
  CHECK(attention_flops_of(dealt).value() == attention_flops_of(plain).value());
}

TEST_CASE("one document, or a window that hides nothing, is a causal block") {
  for (const char* name : {"h100-80g-sxm", "a100-80g-sxm", "b200-180g-sxm"}) {
    const GpuSpec spec = gpu(name);
    const KernelCost cost(spec);
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      AttentionShape plain = causal(10'000, 8);
      plain.phase = phase;
      AttentionShape packed = plain;
      packed.mask.document_ends = {10'000};
      AttentionShape windowed = plain;
      windowed.mask = {.kind = MaskKind::window, .window = 10'000};
      for (const AttentionShape& same : {packed, windowed}) {
        CHECK(key_of(same) == key_of(plain));
        CHECK(cost.attention(same) == cost.attention(plain));
      }
      windowed.mask.window = 5'000;
      CHECK(is_cut_by_window(windowed));
      CHECK(key_of(windowed) != key_of(plain));
      CHECK(cost.attention(windowed) < cost.attention(plain));
    }
  }
}

TEST_CASE("a block inside one document costs what it costs alone") {
  const GpuSpec h100 = gpu("h100-80g-sxm");
  const AttentionShape alone = causal(4096, 8);
  AttentionShape inside = alone;
  inside.mask.document_ends = {4096, 8192};
  CHECK(key_of(inside) == key_of(alone));
  inside.mask.document_ends = {2048, 8192};
  CHECK(key_of(inside) != key_of(alone));
  CHECK(KernelCost(h100).attention(inside) < KernelCost(h100).attention(alone));
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
  const Kernel copy = Copy{.kind = CopyKind::pack, .from = BufferId(0), .to = BufferId(1)};
  CHECK(cost.of(copy, shapes) == cost.memory_bound(touched_bytes(copy, shapes)));

  AttentionForward block;
  block.q_tokens = block.k_tokens = range(0, 1024);
  block.heads = block.kv_heads = {0, 8};
  CHECK(cost.of(block, shapes) == cost.attention(causal(1024, 8)));
}
