// Measured attention kernels and what they teach the formula. Formulas here are simple functions,
// so that expectations can be derived.
#include "machine/attention_table.hpp"

#include "machine/kernel_cost.hpp"
#include "machine/profile.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <cmath>

using namespace spp;
using Catch::Approx;

namespace {

constexpr Mask causal{.kind = MaskKind::causal};
constexpr Mask full{.kind = MaskKind::full};

TokenSet tokens(std::int64_t begin, std::int64_t count) {
  return TokenSet({.begin = begin, .count = count});
}

AttentionShape block(TokenSet q, TokenSet k, Mask mask = full) {
  return {.q = q, .k = k, .q_heads = 8, .kv_heads = 8, .head_dim = 64, .mask = mask};
}

MeasuredAttention measured(TokenSet q, TokenSet k, double seconds, Mask mask = full) {
  return {.kernels = "a kernel",
          .q_heads = 8,
          .kv_heads = 8,
          .head_dim = 64,
          .mask = mask,
          .q = q,
          .k = k,
          .median = Seconds(seconds),
          .spread = 0.03,
          .samples = 9};
}

/// A microsecond a query.
Seconds per_query(const AttentionShape& shape) {
  return Seconds(1e-6 * static_cast<double>(shape.q.count()));
}

AttentionTable table(const std::vector<MeasuredAttention>& list) {
  return {list, "a kernel", per_query};
}

double time_of(const AttentionTable& table, std::int64_t queries) {
  const AttentionShape shape = block(tokens(0, queries), tokens(0, 77));
  return table.time(shape, per_query(shape)).count();
}

}  // namespace

TEST_CASE("only the pattern of a block tells it from others") {
  const TokenSet zigzag({.begin = 0, .count = 64}, {.begin = 448, .count = 64});
  const TokenSet later({.begin = 100, .count = 64}, {.begin = 548, .count = 64});
  CHECK(key_of(block(zigzag, zigzag, causal)) == key_of(block(later, later, causal)));
  CHECK(key_of(block(zigzag, zigzag, causal)) != key_of(block(zigzag, later, causal)));
  CHECK(key_of(block(zigzag, zigzag, causal)) != key_of(block(zigzag, zigzag, full)));
  // Nothing is masked: counts are all.
  CHECK(key_of(block(tokens(512, 128), tokens(0, 512), causal)) ==
        key_of(block(zigzag, tokens(9, 512), full)));
  CHECK(key_of(block(tokens(512, 128), tokens(0, 512), causal)) !=
        key_of(block(tokens(512, 128), tokens(2, 512), causal)));
  AttentionShape other = block(zigzag, zigzag, causal);
  other.q_heads = 16;
  CHECK(key_of(other) != key_of(block(zigzag, zigzag, causal)));
}

TEST_CASE("a measured block takes its median, wherever it lies") {
  const AttentionTable t = table({measured(tokens(0, 100), tokens(0, 100), 3e-4, causal)});
  const AttentionShape shape = block(tokens(700, 100), tokens(700, 100), causal);
  CHECK(t.time(shape, Seconds(1)) == Seconds(3e-4));
}

TEST_CASE("the median of a measured block is as uncertain as its samples are few and far apart") {
  MeasuredAttention m = measured(tokens(0, 256), tokens(0, 256), 3e-4);  // spread 0.03
  const AttentionKey key = key_of(shape_of(m));
  m.samples = 100;
  // sqrt(pi / 2) * 1.4826 * 0.03 / 10
  CHECK(table({m}).standard_error(key).value_or(0) == Approx(0.0055745).epsilon(1e-4));
  m.samples = 25;
  CHECK(table({m}).standard_error(key).value_or(0) == Approx(0.011149).epsilon(1e-4));
  CHECK_FALSE(table({m}).standard_error(key_of(block(tokens(0, 256), tokens(0, 255)))));
}

// Measured: 100 queries in 300 us (3 times the formula), 400 in 600 us (1.5 times). 200 lies half
// way between in the logarithm: sqrt(300 * 600).
TEST_CASE("between measured blocks the formula's error is interpolated in the log of the size") {
  const AttentionTable t = table({measured(tokens(0, 100), tokens(0, 9), 300e-6),
                                  measured(tokens(0, 400), tokens(0, 9), 600e-6)});
  CHECK(time_of(t, 200) == Approx(std::sqrt(300e-6 * 600e-6)).epsilon(1e-12));
  CHECK(time_of(t, 100) == Approx(300e-6).epsilon(1e-12));  // other keys: by the curve
  CHECK(time_of(t, 400) == Approx(600e-6).epsilon(1e-12));
}

// Ratio 1.5 at 400. A factor of 4 further, half of its logarithm is left: sqrt(1.5); beyond a
// factor of 16 nothing.
TEST_CASE("far from what was measured the formula stands alone") {
  const AttentionTable t = table({measured(tokens(0, 400), tokens(0, 9), 600e-6)});
  CHECK(time_of(t, 1600) == Approx(1600e-6 * std::sqrt(1.5)).epsilon(1e-12));
  CHECK(time_of(t, 100) == Approx(100e-6 * std::sqrt(1.5)).epsilon(1e-12));
  CHECK(time_of(t, 400 * 16) == Approx(6400e-6).epsilon(1e-12));
  CHECK(time_of(t, 20) == Approx(20e-6).epsilon(1e-12));
}

TEST_CASE("blocks of other heads, kernels or masking teach nothing") {
  const AttentionTable t = table({measured(tokens(0, 400), tokens(0, 9), 600e-6)});
  AttentionShape heads = block(tokens(0, 300), tokens(0, 9));
  heads.q_heads = heads.kv_heads = 4;
  CHECK(t.time(heads, Seconds(1e-3)) == Seconds(1e-3));
  const AttentionShape masked = block(tokens(0, 300), tokens(0, 300), causal);
  CHECK(t.time(masked, Seconds(1e-3)) == Seconds(1e-3));
  const std::vector list{measured(tokens(0, 400), tokens(0, 9), 600e-6)};
  CHECK(AttentionTable(list, "another kernel", per_query).empty());
}

// 200 queries were measured faster than 100 (noise): both get the mean of the logarithms.
TEST_CASE("a longer block by the formula is never faster than a shorter one") {
  const AttentionTable noisy = table(
      {measured(tokens(0, 100), tokens(0, 9), 400e-6), measured(tokens(0, 200), tokens(0, 9), 1e-4),
       measured(tokens(0, 800), tokens(0, 9), 100e-6), measured(tokens(0, 900), tokens(0, 9), 2)});
  CHECK(time_of(noisy, 100) == Approx(std::cbrt(400e-6 * 1e-4 * 1e-4)).epsilon(1e-12));
  double before = 0;
  for (std::int64_t queries = 1; queries < 2'000'000; queries += 1 + queries / 7) {
    const double now = time_of(noisy, queries);
    CHECK(now >= before * (1 - 1e-12));
    before = now;
  }
}

TEST_CASE("the least ratio bounds every block from below") {
  const AttentionTable t = table({measured(tokens(0, 100), tokens(0, 9), 50e-6),
                                  measured(tokens(0, 300), tokens(0, 9), 20e-6),
                                  measured(tokens(0, 4000), tokens(0, 9), 9e-3)});
  CHECK(t.least_ratio(Phase::forward) == Approx(20.0 / 300));
  CHECK(t.least_ratio(Phase::backward) == 1);
  for (std::int64_t queries = 1; queries < 100'000; queries += 1 + queries / 5) {
    CHECK(time_of(t, queries) >=
          t.least_ratio(Phase::forward) * 1e-6 * static_cast<double>(queries) * (1 - 1e-12));
  }
  CHECK(t.spread(Phase::forward, DType::bf16, 64) == Approx(0.03));
  CHECK_FALSE(t.spread(Phase::forward, DType::fp32, 64).has_value());
}

TEST_CASE("a profile's kernels are timed as measured, never faster than the peak") {
  const MachineSpec machine =
      read_profile(test::source_path("tests/support/data/cpu-2x2.json")).machine;
  const KernelCost cost(machine.gpu);
  REQUIRE_FALSE(machine.gpu.measured.empty());
  for (const MeasuredAttention& m : machine.gpu.measured) {
    AttentionShape shape = shape_of(m);
    CHECK(cost.attention(shape) == m.median);
    const FlopRate peak = matrix_rate(machine.gpu, shape.dtype, "test");
    for (const std::int64_t count : {1, 100, 700, 1500, 30'000}) {
      shape.q = tokens(0, count);
      CHECK(cost.attention(shape) >= attention_flops_of(shape) / peak);
      const Problem problem{.head_dim = 64, .mask = shape.mask, .dtype = shape.dtype};
      CHECK(cost.attention(shape) >=
            cost.attention_at_best(attention_flops_of(shape), problem, shape.phase));
      CHECK(cost.attention_spread(problem, shape.phase) < 0.05);
    }
  }
}
