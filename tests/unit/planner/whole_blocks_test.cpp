// Blocks of which every query sees every key are timed once, whatever else is timed between them.
#include "planner/whole_blocks.hpp"

#include "machine/kernel_cost.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <random>
#include <utility>

using namespace spp;

namespace {

constexpr std::int64_t chunk = 640;
constexpr int ranks = 8;

/// What a rank of a ring holds: contiguous, zigzag or striped.
TokenSet held(int rank, int layout) {
  switch (layout) {
    case 0:
      return TokenSet({rank * 2 * chunk, 2 * chunk, 1});
    case 1:
      return TokenSet({rank * chunk, chunk, 1}, {(2 * ranks - 1 - rank) * chunk, chunk, 1});
    default:
      return TokenSet({rank, 2 * chunk, ranks});
  }
}

/// Some of them.
TokenSet part_of(const TokenSet& tokens, int which) {
  return which == 0 || tokens.ranges().size() < 2
             ? tokens
             : TokenSet(tokens.ranges()[static_cast<std::size_t>(which - 1)]);
}

}  // namespace

TEST_CASE("blocks take what the cost model says, those that are known, too") {
  const GpuSpec gpu = test::catalog().gpu("h100-80g-sxm", "test");
  const KernelCost cost(gpu);
  std::mt19937 random(7);
  const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int asked = 0;
  int answered = 0;
  for (const MaskKind kind : {MaskKind::full, MaskKind::causal, MaskKind::window}) {
    Problem problem{.seq = 2 * chunk * ranks, .q_heads = 32, .kv_heads = 8};
    problem.mask = {.kind = kind, .window = 3 * chunk};
    problem.other_masks = {{.kind = MaskKind::full}};
    const Shapes shapes{.problem = &problem};
    WholeBlocks blocks;
    for (int i = 0; i < 400; ++i) {
      const int layout = upto(3);
      const TokenSet q = part_of(held(upto(ranks), layout), upto(3));
      const TokenSet k = part_of(held(upto(ranks), layout), upto(3));
      const HeadRange heads{.begin = 0, .end = 8 << upto(2)};
      const HeadRange kv_heads{.begin = 0, .end = heads.end / 4};
      const int mask = upto(2);
      const Kernel kernel = upto(2) == 0 ? Kernel(AttentionForward{.q_tokens = q,
                                                                   .k_tokens = k,
                                                                   .heads = heads,
                                                                   .kv_heads = kv_heads,
                                                                   .mask = mask})
                                         : Kernel(AttentionBackward{.q_tokens = q,
                                                                    .k_tokens = k,
                                                                    .heads = heads,
                                                                    .kv_heads = kv_heads,
                                                                    .mask = mask});
      const auto alone = [&] { return cost.of(kernel, shapes); };
      const Seconds told = blocks.of(kernel, shapes, [&] {
        ++asked;
        return alone();
      });
      ++answered;
      REQUIRE(told == alone());
    }
  }
  CHECK(asked < answered * 3 / 4);
}
