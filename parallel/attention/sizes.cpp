#include "parallel/attention/sizes.hpp"

#include "parallel/attention/attention_mesh.hpp"
#include "schedule/balanced.hpp"
#include "schedule/measure.hpp"

#include <algorithm>

namespace spp::strategies {
namespace {

/// Chunks before its own that hold keys which the first query of a chunk sees.
std::int64_t reach_of(const Mask& mask, std::int64_t chunk) {
  return (mask.window - 1 + chunk - 1) / chunk;
}

/// Ring blocks that the rank with most cannot skip.
std::int64_t needed_blocks(const Sizes& s, const SequencePlan& plan) {
  const bool windowed = s.problem.mask.kind == MaskKind::window;
  if (windowed && s.problem.cached > 0) {
    return 1;  // a lower bound
  }
  if (!s.problem.mask.document_ends.empty() && (windowed || !deals_documents(plan.layout))) {
    return 1;  // blocks without a common document are skipped: a lower bound
  }
  if (!windowed) {
    return plan.ring;
  }
  const Mask& mask = s.problem.mask;
  switch (plan.layout) {
    case Layout::contiguous:
    case Layout::document_contiguous:
      return std::min<std::int64_t>(plan.ring, 1 + reach_of(mask, s.ring));
    case Layout::zigzag:
    case Layout::document_zigzag:  // both ways along the ring: chunks r, 2R-1-r look at lower ones
      return std::min<std::int64_t>(plan.ring, 1 + 2 * reach_of(mask, s.ring / 2));
    case Layout::striped:  // the rank `distance` before holds the keys `distance` before
      return std::min<std::int64_t>(plan.ring, mask.window);
    case Layout::balanced:
    case Layout::whole_documents:  // what a rank holds goes to no ring in turn
      return 1;
  }
  throw InternalError("unknown layout");
}

}  // namespace

std::int64_t rotation_steps(const Problem& padded, const SequencePlan& plan) {
  if (padded.mask.kind != MaskKind::window || plan.layout != Layout::contiguous) {
    return plan.ring;
  }
  const std::int64_t chunk = padded.seq / plan.ring;
  const std::int64_t cached = padded.cached / plan.ring;
  std::int64_t steps = std::min<std::int64_t>(plan.ring, 1 + reach_of(padded.mask, chunk));
  // The cache ends on the last rank, one before the first. How far back each rank's first query
  // sees into it:
  for (std::int64_t r = 0; cached > 0 && r < plan.ring; ++r) {
    const std::int64_t into = padded.mask.window - 1 - r * chunk;
    if (into > 0) {
      steps = std::max(steps, 1 + r + (into + cached - 1) / cached);
    }
  }
  return std::min<std::int64_t>(plan.ring, steps);
}

Sizes::Sizes(const Problem& requested, const SequencePlan& plan, const BuildOptions& options)
    : problem(padded(requested, plan)),
      split(problem, plan.ulysses, plan.heads),
      gradient(options.gradient),
      home(problem.seq / plan.ranks()),
      ring(home * plan.ulysses),
      team(ring * plan.own[parameters::team]) {}

Tiles Sizes::tiles(Rows of, std::int64_t q_heads, std::int64_t kv_heads) const {
  const std::int64_t rows = problem.batch * of.queries;
  const std::int64_t keys = problem.batch * of.keys;
  const std::int64_t row = std::int64_t{problem.head_dim} * size_of(problem.dtype);
  const std::int64_t value_row = std::int64_t{problem.v_dim()} * size_of(problem.dtype);
  return {.q = Bytes(rows * q_heads * row),
          .k = Bytes(keys * kv_heads * row),
          .v = Bytes(keys * kv_heads * value_row),
          .out = Bytes(rows * q_heads * value_row),
          .lse = Bytes(rows * q_heads * size_of(DType::fp32))};
}

Tiles Sizes::busiest(std::int64_t tokens) const {
  return tiles(with_cached(tokens), split.q(0).count(), split.kv(0).count());
}

Tiles Sizes::all_heads(std::int64_t tokens) const {
  return tiles(split.parts() > 1 ? of_sequence(tokens) : with_cached(tokens), problem.q_heads,
               problem.kv_heads);
}

Tiles Sizes::all_parts(std::int64_t tokens) const {
  return tiles(with_cached(tokens), problem.q_heads,
               std::int64_t{problem.kv_heads} * split.replicas());
}

Tiles Sizes::dealt_parts(std::int64_t tokens) const {
  return tiles(of_sequence(tokens), problem.q_heads,
               std::int64_t{problem.kv_heads} * split.replicas());
}

Bytes Sizes::inputs_and_outputs(Phase phase) const {
  const Tiles at_home = all_heads(home);
  const Tiles own = busiest(ring);
  const Bytes cache = problem.cached > 0 ? framed(own.kv()) : Bytes(0);
  return phase == Phase::forward ? at_home.q + at_home.kv() + at_home.out + cache
                                 : own.q + own.kv() + own.out + at_home.out  // and d_out; d_q, …
                                       + at_home.q + at_home.kv();
}

Bytes Sizes::frame_peak(Phase phase) const {
  const Tiles at_home = all_heads(home);  // packed, or received
  const Tiles own = tiles(of_sequence(ring), split.q(0).count(), split.kv(0).count());
  const Tiles copies = dealt_parts(home);
  if (phase == Phase::forward) {
    return framed(std::max({at_home.q + own.q, own.q + at_home.k + own.k,
                            own.q + framed_kv(own.k) + at_home.v + own.v, own.out + at_home.out}));
  }
  return framed(std::max({at_home.out + own.out, own.q + own.kv() + at_home.q, own.kv() + copies.k,
                          own.v + copies.v}));
}

FlopCount Sizes::flops(std::int64_t pairs, int heads, Phase phase) const {
  const double per_pair =
      flops_per_pair(phase, problem.head_dim, problem.v_dim()) * static_cast<double>(problem.batch);
  return FlopCount(static_cast<double>(pairs) * heads * per_pair);
}

ClosedForm frame_form(const Sizes& s, const SequencePlan& plan, Phase phase) {
  const TokenRange queries{.begin = s.problem.cached, .count = s.problem.seq};
  const TokenRange keys{.begin = 0, .count = s.problem.end()};
  ClosedForm form;
  form.flops = s.flops(allowed_pairs(queries, keys, s.problem.mask), s.problem.q_heads, phase);
  // In each of the R groups the home tokens of every rank meet the heads of the U-1 others: over
  // all ranks, home*(U-1) tokens of every head. Forward q, k, v, out; backward d_out, d_q, d_k,
  // d_v.
  const Tiles leaving = s.dealt_parts(s.home * (plan.ulysses - 1));
  form.add({.kind = CommKind::all_to_all,
            .axis = Axis::ulysses,
            .group_size = plan.ulysses,
            .calls = 4,
            .total = (leaving.q + leaving.kv() + leaving.out) * plan.ring});
  return form;
}

ClosedForm ring_form(const Sizes& s, const SequencePlan& plan, Phase phase) {
  ClosedForm form = frame_form(s, plan, phase);
  const TokenSet all({.begin = 0, .count = s.problem.end()});
  // With packed documents any rank may be the busiest: no less than the mean. Dealt out in pieces,
  // each of them is like a sequence of its own.
  const bool uniform = s.problem.mask.document_ends.empty() || deals_documents(plan.layout);
  std::int64_t pairs = 0;
  if (by_work(plan.layout)) {
    const auto dealt = dealt_by_work(s.problem, plan.layout, plan.ring);
    for (const TokenSet& own : *dealt) {
      pairs = std::max(pairs, allowed_pairs(own, all, s.problem.mask));
    }
  } else if (uniform) {
    const TokenSet last = chunk_of_queries(s.problem, plan.layout, plan.ring - 1, plan.ring);
    pairs = allowed_pairs(last, all, s.problem.mask);
  } else {
    pairs = allowed_pairs(all, all, s.problem.mask) / plan.ring;
  }
  form.busiest_flops = s.flops(pairs, s.split.q(0).count(), phase);
  form.attention_calls = needed_blocks(s, plan);
  return form;
}

}  // namespace spp::strategies
