// An attention block cut into work items, and the items dealt out over the SMs of a GPU: the
// geometry behind kernel_cost.hpp, whose header has the theory. Rows are those of the inner
// dimension (keys in the forward, queries in the backward).
#pragma once

#include "machine/attention_table.hpp"
#include "machine/machine.hpp"

namespace spp::tiles {

/// Work of one head of one sequence, in rows of the inner dimension.
struct Work {
  double items = 0;
  double total = 0;    // rows of all items, whole inner tiles
  double longest = 0;  // rows of the longest item; 0: the mask hides all
};
Work work_of(const AttentionShape& shape, const AttentionKernelSpec& kernel);

/// Rows of the busiest slot when all items are equal. Two items share a slot's rate; the last of an
/// odd number is alone and reaches only `lone` of it.
double equal_rows(double items, double slots, double item, double lone);

/// The same when they differ. `between` is place_between(…).
double unequal_rows(const Work& work, double slots, double between, double lone);

/// Where between Graham's two bounds the end of a block lies: 0 the lower, 1 the upper. `heads`
/// heads of `items` items of evenly rising length. Simulated list scheduling on 108 and 132 slots,
/// 8 to 1024 items, 1 to 64 heads; these fits are within 0.15 of it.
double place_between(ItemOrder order, double items, double heads, double slots);

/// How FlashAttention-2's split-KV kernel cuts the forward (csrc/flash_attn/flash_api.cpp).
struct Split {
  static constexpr double q_tile = 64;
  double kv_tile;
  double pieces = 1;
};
/// num_splits_heuristic: none if the query tiles fill `fill` of the slots (two blocks an SM); else
/// the fewest pieces that fill their waves to 0.85 of what the best number of pieces reaches.
Split split_of(double q_tiles, double keys, int head_dim, double slots, double fill);

/// Cuts the items of `work`, tiles of `queries` queries, into the pieces of `split`.
Work cut(const Work& work, const Split& split, double queries, bool masked);

}  // namespace spp::tiles
