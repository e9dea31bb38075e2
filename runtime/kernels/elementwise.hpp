// The kernels around attention, on the host: merges, sums, casts, copies. Bound by memory; computed
// in fp32. Semantics: docs/schedule.md.
#pragma once

#include "runtime/kernels/rows.hpp"

#include <cstdint>

namespace spp::runtime {

/// delta[n, b, h] = sum over the width of d_out * out.
void row_dot(const Rows& out, const Rows& d_out, const Rows& delta);

/// (out, lse) <- (out, lse) merged with (part_out, part_lse), row by row. `initial`: converts the
/// part. A side whose lse is -infinity has met no key and changes nothing.
void merge(const Rows& out, const Rows& lse, const Rows& part_out, const Rows& part_lse,
           bool initial);

/// A logit for each head, [heads] in any type, beside all rows of lse; out has those from `first`
/// on. lse <- log(e^lse + e^sink), out <- e^(lse before - lse after) out; rows that have met no key
/// get out 0 and lse = the sink.
struct SinkArgs {
  Rows out, lse, sinks;
  std::int64_t first = 0;
};
void sink(const SinkArgs& args);

/// d_sinks[h] = -sum over all rows of e^(sink - lse) delta, of lse with the sink, written.
struct SinkBackwardArgs {
  Rows lse, delta, sinks, d_sinks;
};
void sink_backward(const SinkBackwardArgs& args);

/// global_lse = log of the sum of e^lse over the `gathered` rows of all members (members x rows,
/// one member after the other); scaled = e^(lse - global_lse) * out, cast. Queries that no member
/// met a key for get 0 and -infinity.
void rescale(const Rows& out, const Rows& lse, const Rows& gathered, const Rows& scaled,
             const Rows& global_lse);

/// sum <- sum + part (`initial`: sum <- part).
void accumulate(const Rows& sum, const Rows& part, bool initial);

/// Every element becomes `value` (0 or -infinity).
void fill(const Rows& rows, float value);

/// A box of heads in rows [rows, batch, row_heads, width], from head `first` on.
struct Box {
  std::byte* data = nullptr;  // of the first row, batch 0, head `first`
  DType dtype = DType::fp32;
  int row_heads = 1;          // heads from one (row, batch) to the next
  std::int64_t row_step = 1;  // rows from one row of the box to the next
};
/// to[rows, batch, heads, width] <- from, converted; `add`: to <- to + from, in fp32.
void move(const Box& from, const Box& to, std::int64_t rows, std::int64_t batch, int heads,
          int width, bool add);

}  // namespace spp::runtime
