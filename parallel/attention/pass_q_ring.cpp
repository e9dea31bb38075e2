// Pass-Q ring, for inference. Yang et al., "Context Parallelism for Scalable Million-Token
// Inference" (arXiv:2411.01783), section 3.4, Algorithm 3.
//
// Keys and values stay, queries go round; each rank computes what its own keys give the visiting
// queries, and that partial (out, lse) goes home to be merged. It moves tiles of query heads where
// rings move two of KV heads, so it pays where these are many beside the new tokens.
//
//   R = 4, queries that rank r holds at steps 0..3, and where its partial goes afterwards:
//     rank 0: 0 3>3 2>2 1>1        rank 2: 2 1>1 0>0 3>3
//     rank 1: 1 0>0 3>3 2>2        rank 3: 3 2>2 1>1 0>0
//
// Deviations: the paper sends all partials at the end, in one all-to-all; here each goes home when
// it is there, R-1 matched exchanges under the kernels of the next steps, with the same bytes and
// room for two partials instead of R. No backward (the paper's is inference, too).
//
// Closed form (per rank): L = N/R; Q, O = bytes of the tiles of queries and outputs, s = fp32
// scalars of L tokens.
//   bytes   R-1 hops of Q, R-1 partials of O + s
//   FLOPs   those of a ring: under the full mask and with zigzag under the causal one a rank's keys
//           meet as many queries as its queries meet keys
//   memory  fp32 sum of out, and R > 3: 2Q + 3(O + s): at the return of step 1 two visitors, two
//           partials, one that came home; R = 3: one visitor less, or at the kernel of step 1 none
//           that came home; R = 2: of either one less
#include "parallel/attention/compose.hpp"
#include "parallel/attention/sizes.hpp"
#include "parallel/attention/strategy.hpp"

#include <algorithm>
#include <array>

namespace spp::strategies::pass_q_ring {
namespace {

ClosedForm closed_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                       const BuildOptions& options) {
  const Sizes s(requested, plan, options);
  ClosedForm form = ring_form(s, plan, phase);
  const std::int64_t hops = plan.ring - 1;
  const Tiles all = s.all_parts(s.ring);
  form.add({.kind = CommKind::send_recv,
            .axis = Axis::ring,
            .group_size = plan.ring,
            .calls = hops,
            .total = all.q * plan.ring * hops});
  form.add({.kind = CommKind::send_recv,
            .axis = Axis::ring,
            .group_size = plan.ring,
            .calls = hops,
            .total = (all.out + all.lse) * plan.ring * hops,
            .neighbours = false});
  const Tiles own = s.busiest(s.ring);
  const Bytes partial = own.out + own.lse;
  const Bytes under_way = plan.ring > 3 ? own.q * 2 + partial * 3
                                        : own.q * (plan.ring - 2) + partial * (plan.ring - 1) +
                                              std::max(own.q, partial);
  form.peak_buffers = s.inputs_and_outputs(phase) + own.lse + s.fp32(own.out) + under_way;
  return form;
}

std::string why_not_pass_q(const Problem& problem, const SequencePlan& plan) {
  if (plan.ring < 2) {
    return "a ring of one rank has no neighbour";
  }
  if (problem.mask.kind == MaskKind::window) {
    return "a sliding window is not supported: most queries would travel to keys that they do not "
           "see";
  }
  if (problem.mask.kind == MaskKind::causal && plan.layout == Layout::contiguous) {
    return "contiguous chunks under the causal mask give ranks unequal work (zigzag balances it)";
  }
  return "";
}

/// The ring of one rank.
struct Visits {
  RankGroup group;
  int ring = 1;
  int position = 0;
  Problem problem;
  Layout layout = Layout::contiguous;
  BuildOptions options;

  /// Position `steps` before (below 0: after) this one.
  [[nodiscard]] int before(std::int64_t steps) const {
    return static_cast<int>(((position - steps) % ring + ring) % ring);
  }
  [[nodiscard]] Rank peer(std::int64_t steps) const { return group.rank(before(steps)); }
  [[nodiscard]] Section block(int queries, int keys) const {
    return needed_section(chunk_of_queries(problem, layout, queries, ring),
                          chunk_of_keys(problem, layout, keys, ring), problem.mask, options);
  }
  /// What this rank computes at step i, and what comes home from the rank that computes for it.
  [[nodiscard]] Section visiting(std::int64_t i) const { return block(before(i), position); }
  [[nodiscard]] Section returning(std::int64_t i) const { return block(position, before(-i)); }
};

struct Partial {
  BufferId out, lse;
};

Partial partial(ProgramBuilder& b, const CoreContext& c, std::string_view name) {
  return {
      .out = b.scratch(fmt::format("out_{}", name), Tensor::out, c.tokens.count(), c.heads.count()),
      .lse =
          b.scratch(fmt::format("lse_{}", name), Tensor::lse, c.tokens.count(), c.heads.count())};
}

BufferId pass_q(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                ForwardBuffers io) {
  const Visits at{.group = mesh.ring_group(b.rank()),
                  .ring = c.plan.ring,
                  .position = mesh.at(b.rank()).position,
                  .problem = b.problem(),
                  .layout = c.plan.layout,
                  .options = c.options};
  const std::int64_t steps = at.ring;
  const std::int64_t tokens = c.tokens.count();
  const int heads = c.heads.count();
  const BufferId lse = b.output("lse", Tensor::lse, c.tokens, c.heads);
  const BufferId first = b.scratch("q0", Tensor::q, tokens, heads);
  const std::array visitors{first, steps > 2 ? b.scratch("q1", Tensor::q, tokens, heads) : first};
  const BufferId sum = b.scratch("out_sum", Tensor::out, tokens, heads, DType::fp32);
  const std::array parts{partial(b, c, "part0"), partial(b, c, "part1")};
  const Partial home = partial(b, c, "home");
  const auto merge_home = [=](std::int64_t i, OpList& ops) {
    if (const Section section = at.returning(i); !section.empty()) {
      ops.push_back({compute, Merge{.out = sum,
                                    .lse = lse,
                                    .part_out = home.out,
                                    .part_lse = home.lse,
                                    .tokens = section.q}});
    }
  };

  b.loop(steps, [=](std::int64_t i, OpList& ops) {
    const BufferId q = i == 0 ? io.q : visitors[static_cast<std::size_t>((i + 1) % 2)];
    const Partial& part = parts[static_cast<std::size_t>(i % 2)];
    if (i + 1 < steps) {
      ops.push_back(
          {ring_stream, Exchange{.to = at.peer(-1),
                                 .from = at.peer(1),
                                 .send = {q},
                                 .receive = {visitors[static_cast<std::size_t>(i % 2)]}}});
    }
    const Section mine = at.visiting(i);
    if (!mine.empty()) {
      ops.push_back({compute, AttentionForward{.q = q,
                                               .k = io.k,
                                               .v = io.v,
                                               .out = part.out,
                                               .lse = part.lse,
                                               .q_tokens = mine.q,
                                               .k_tokens = mine.k,
                                               .heads = c.heads,
                                               .kv_heads = c.kv_heads}});
    }
    if (i == 0) {
      ops.push_back({compute, Merge{.out = sum,
                                    .lse = lse,
                                    .part_out = part.out,
                                    .part_lse = part.lse,
                                    .tokens = mine.q,
                                    .initial = true}});
      return;
    }
    if (i > 1) {  // a step late, so that this step's kernel need not wait for it
      merge_home(i - 1, ops);
    }
    Exchange back;
    if (!mine.empty()) {
      back.to = at.peer(i);
      back.send = {part.out, part.lse};
    }
    if (!at.returning(i).empty()) {
      back.from = at.peer(-i);
      back.receive = {home.out, home.lse};
    }
    if (!back.send.empty() || !back.receive.empty()) {
      ops.push_back({gradient_stream, back});
    }
  });
  b.once([=](OpList& ops) {
    merge_home(steps - 1, ops);
    ops.push_back({compute, Copy{.kind = CopyKind::cast, .from = sum, .to = io.out}});
  });
  return lse;
}

Schedule build(const Problem& problem, const SequencePlan& plan, Phase phase,
               const BuildOptions& options) {
  ensure(phase == Phase::forward, "pass-Q has no backward");
  return compose(
      problem, plan, phase, options,
      {.forward = pass_q, .backward = nullptr, .ring_symmetric = true, .ring_alike = true});
}

constexpr std::array layouts{Layout::zigzag, Layout::contiguous, Layout::document_zigzag};

}  // namespace

extern const Strategy entry{
    .name = "pass-q-ring",
    .title = "Pass-Q ring",
    .paper = "Context Parallelism for Million-Token Inference, arXiv:2411.01783",
    .degrees = {.ring = true},
    .layouts = layouts,
    .why_not = why_not_pass_q,
    .build = build,
    .closed_form = closed_form,
    .backward = false,
    .behind_cache = true,
};

}  // namespace spp::strategies::pass_q_ring
