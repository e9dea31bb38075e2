// Kernels of attention that is not one fused kernel, on the host: products with whole rows of
// scores, and states of linear attention. Computed in fp32, rounded once to the type of the output.
// Semantics: docs/schedule.md. Query head h belongs to KV head h / (heads of q / heads of k).
//
// Rows of pairs are [rows, batch, heads, seq], a column a token; states [slots, batch, KV heads,
// head_dim * head_dim], row-major, a row a dim of keys.
#pragma once

#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/rows.hpp"

#include <cstdint>

namespace spp::runtime {

/// Columns [first, first + columns.count) of `to` <- rows . columns.
void scores(const Rows& rows, const Rows& columns, const Rows& to, std::int64_t first,
            const Poll& poll);

/// weights <- softmax(scale * scores) over the columns that are visible; 0 elsewhere, and in rows
/// that see none. `visible.k_tokens` are all columns.
void softmax(const Rows& scores, const Rows& weights, const Visibility& visible, float scale,
             const Poll& poll);

/// d_scores <- scale * weights * (d_weights - rowsum(weights * d_weights)).
void softmax_backward(const Rows& weights, const Rows& d_weights, const Rows& d_scores, float scale,
                      const Poll& poll);

/// to <- to + sum over columns [first, first + values.count) of weights * values; `initial`:
/// without what was there.
void weigh(const Rows& weights, const Rows& values, const Rows& to, std::int64_t first,
           bool initial, const Poll& poll);

/// Row j of `to` <- sum over rows, and over the query heads of a KV head, of column first + j of
/// weights * rows.
void weigh_back(const Rows& weights, const Rows& rows, const Rows& to, std::int64_t first,
                const Poll& poll);

/// out <- causal linear attention among the rows themselves, / sqrt(head_dim).
void linear_forward(const Rows& q, const Rows& k, const Rows& v, const Rows& out, const Poll& poll);

struct LinearBackwardArgs {
  Rows q, k, v, d_out, d_q, d_k, d_v;
};
void linear_backward(const LinearBackwardArgs& args, const Poll& poll);

/// to <- sum over rows, and over the heads of rows that belong to a head of `to`, of rows (x)
/// values.
void make_state(const Rows& rows, const Rows& values, const Rows& to, const Poll& poll);

/// to <- the sum of the slots of `from`.
void sum_states(const Rows& from, const Rows& to);

struct StateUse {
  bool transposed = false;  // the rows are of the state's columns
  bool add = false;         // to what is there
};
/// to <- rows . state / sqrt(head_dim), or of the state transposed.
void apply_state(const Rows& rows, const Rows& state, const Rows& to, StateUse use,
                 const Poll& poll);

}  // namespace spp::runtime
