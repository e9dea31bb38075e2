// Group-cast context parallelism. MagiAttention (arXiv:2505.13211, sections 4.2 and 4.3), its
// group-cast and group-reduce as exchanges between pairs of ranks, as in its all-to-all-v form.
//
// Each rank gets exactly those keys and values of every other rank that its queries may see, and
// no others: under packed documents or a window few ranks need anything of each other. With the
// balanced layout all ranks have nearly the same work whatever the mask; with whole documents, too,
// and most of these need no other rank; contiguous chunks under a window exchange its halo with the
// neighbours before them. Backward: gradients of the keys that came go home (group-reduce).
//
//   R = 4, balanced, 2 of 8 chunks a rank; documents aaab bbcc (a letter: a chunk)
//     rank 0: 2 7    keys 0 1 | 6      from the ranks that hold them
//     rank 1: 5 1    keys 3 4 | 0
//
// What rank r + d needs of rank r's tokens is its part at distance d. Distances 1 to R-1 fall into
// `stages`, the overlap degree: while one stage's keys are worked on, those of the next two travel.
// One kernel a stage, for all keys that came in it, beside one for a rank's own. Our deviation:
// stages are of equal numbers of distances, not solved for.
//
// Combines with Ulysses (the group-cast then runs over the ring dimension on this rank's heads).
//
// Bytes sent: forward k and v of every token once for each other rank that needs it; backward the
// same again, and as many of d_k and d_v. FLOPs: the pairs of a rank's queries. Memory: keys of at
// most three stages, what is packed for one message; scratch_peak() follows them.
#include "parallel/attention/compose.hpp"
#include "parallel/attention/group_cast_parts.hpp"
#include "parallel/attention/strategy.hpp"

#include <array>

namespace spp::strategies::group_cast {
namespace {

std::string why_not_cast(const Problem&, const SequencePlan& plan) {
  return plan.ring < 2 ? "a ring of one rank has nobody to get keys from" : "";
}

struct KeyBuffers {
  BufferId k, v;
};

/// Keys that came from one rank.
struct Arrived {
  TokenSet tokens;
  KeyBuffers at;
};

/// What both phases do with keys.
class Caster {
 public:
  Caster(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c, KeyBuffers own)
      : b_(b),
        kv_heads_(c.kv_heads.count()),
        wide_(c.options.gradient),
        parts_(b.problem(), mesh, c.plan, mesh.at(b.rank()).position),
        ring_(mesh.ring_group(b.rank())),
        own_(own),
        arrived_(static_cast<std::size_t>(parts_.stages())) {}

  [[nodiscard]] const Parts& parts() const { return parts_; }

  /// Packs what others need in a stage, and posts its exchanges.
  void cast(int stage) {
    if (stage >= parts_.stages()) {
      return;
    }
    for (const int distance : parts_.distances(stage)) {
      const TokenSet to = parts_.to(distance);
      const TokenSet from = parts_.from(distance);
      Exchange exchange;
      if (!to.empty()) {
        const KeyBuffers sent = to == parts_.own() ? own_ : pack(to, distance);
        exchange.to = ring_.rank(parts_.position_after(distance));
        exchange.send = {sent.k, sent.v};
      }
      if (!from.empty()) {
        const KeyBuffers at = keys(fmt::format("from_{}", distance), from.count());
        exchange.from = ring_.rank(parts_.position_before(distance));
        exchange.receive = {at.k, at.v};
        arrived_[static_cast<std::size_t>(stage)].push_back({.tokens = from, .at = at});
      }
      if (!to.empty() || !from.empty()) {
        b_.op(ring_stream, exchange);
      }
    }
  }

  /// The keys of a stage in one buffer; none: no tokens.
  Arrived join(int stage) {
    const std::vector<Arrived>& all = arrived_[static_cast<std::size_t>(stage)];
    if (all.size() == 1) {
      return all.front();
    }
    Arrived joined{.tokens = parts_.keys_of(stage), .at = {}};
    if (all.empty()) {
      return joined;
    }
    joined.at = keys(fmt::format("stage_{}", stage), joined.tokens.count());
    for (const Arrived& one : all) {
      take(one.at.k, joined.at.k, one.tokens);
      take(one.at.v, joined.at.v, one.tokens);
    }
    return joined;
  }

  /// Sends the gradients of a stage's keys home; what comes is added to the sums later.
  void reduce(int stage, KeyBuffers gradients, std::vector<Arrived>& returned) {
    for (const int distance : parts_.distances(stage)) {
      const TokenSet to = parts_.to(distance);
      const TokenSet from = parts_.from(distance);
      Exchange exchange;
      if (!from.empty()) {
        const KeyBuffers back = sums(fmt::format("back_{}", distance), from.count());
        take(gradients.k, back.k, from);
        take(gradients.v, back.v, from);
        exchange.to = ring_.rank(parts_.position_before(distance));
        exchange.send = {back.k, back.v};
      }
      if (!to.empty()) {
        const KeyBuffers at = sums(fmt::format("home_{}", distance), to.count());
        exchange.from = ring_.rank(parts_.position_after(distance));
        exchange.receive = {at.k, at.v};
        returned.push_back({.tokens = to, .at = at});
      }
      if (!to.empty() || !from.empty()) {
        b_.op(gradient_stream, exchange);
      }
    }
  }

  void add(std::vector<Arrived>& returned, KeyBuffers to) {
    for (const Arrived& one : std::exchange(returned, {})) {
      for (const auto& [part, sum] : {std::pair(one.at.k, to.k), std::pair(one.at.v, to.v)}) {
        b_.op(compute, Copy{.kind = CopyKind::add, .from = part, .to = sum, .tokens = one.tokens});
      }
    }
  }

  KeyBuffers gradients(const std::string& name, std::int64_t tokens) {
    return {.k = b_.scratch("d_k_" + name, Tensor::d_k, tokens, kv_heads_),
            .v = b_.scratch("d_v_" + name, Tensor::d_v, tokens, kv_heads_)};
  }
  KeyBuffers sums(const std::string& name, std::int64_t tokens) {
    return {.k = b_.scratch("d_k_" + name, Tensor::d_k, tokens, kv_heads_, wide_),
            .v = b_.scratch("d_v_" + name, Tensor::d_v, tokens, kv_heads_, wide_)};
  }

 private:
  KeyBuffers keys(const std::string& name, std::int64_t tokens) {
    return {.k = b_.scratch("k_" + name, Tensor::k, tokens, kv_heads_),
            .v = b_.scratch("v_" + name, Tensor::v, tokens, kv_heads_)};
  }
  KeyBuffers pack(const TokenSet& tokens, int distance) {
    const KeyBuffers packed = keys(fmt::format("to_{}", distance), tokens.count());
    take(own_.k, packed.k, tokens);
    take(own_.v, packed.v, tokens);
    return packed;
  }
  void take(BufferId from, BufferId to, const TokenSet& tokens) {
    b_.op(compute, Copy{.kind = CopyKind::take, .from = from, .to = to, .tokens = tokens});
  }

  ProgramBuilder& b_;
  int kv_heads_;
  DType wide_;
  Parts parts_;
  RankGroup ring_;
  KeyBuffers own_;
  std::vector<std::vector<Arrived>> arrived_;  // by stage
};

BufferId cast_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                      ForwardBuffers io) {
  Caster caster(b, mesh, c, {.k = io.k, .v = io.v});
  const Parts& parts = caster.parts();
  const BufferId lse = b.output("lse", Tensor::lse, c.tokens, c.heads);
  AttentionForward block{.q = io.q,
                         .k = io.k,
                         .v = io.v,
                         .out = io.out,
                         .lse = lse,
                         .q_tokens = c.tokens,
                         .k_tokens = c.tokens,
                         .heads = c.heads,
                         .kv_heads = c.kv_heads};
  caster.cast(0);
  caster.cast(1);
  if (!parts.needs_others()) {
    b.op(compute, block);
    for (int stage = 2; stage < parts.stages(); ++stage) {
      caster.cast(stage);
    }
    return lse;
  }
  const std::int64_t tokens = c.tokens.count();
  const BufferId sum = b.scratch("out_sum", Tensor::out, tokens, c.heads.count(), DType::fp32);
  block.out = b.scratch("out_part", Tensor::out, tokens, c.heads.count());
  block.lse = b.scratch("lse_part", Tensor::lse, tokens, c.heads.count());
  const auto attend = [&](bool initial) {
    b.op(compute, block);
    b.op(compute, Merge{.out = sum,
                        .lse = lse,
                        .part_out = block.out,
                        .part_lse = block.lse,
                        .tokens = block.q_tokens,
                        .initial = initial});
  };
  attend(true);
  for (int stage = 0; stage < parts.stages(); ++stage) {
    caster.cast(stage + 2);
    const Arrived keys = caster.join(stage);
    if (!keys.tokens.empty()) {
      block.k = keys.at.k;
      block.v = keys.at.v;
      block.q_tokens = parts.queries_of(keys.tokens);
      block.k_tokens = keys.tokens;
      attend(false);
    }
  }
  b.op(compute, Copy{.kind = CopyKind::cast, .from = sum, .to = io.out});
  return lse;
}

Statistics cast_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                         BackwardBuffers io) {
  Caster caster(b, mesh, c, {.k = io.k, .v = io.v});
  const Parts& parts = caster.parts();
  const std::int64_t tokens = c.tokens.count();
  const BufferId lse = b.input("lse", Tensor::lse, c.tokens, c.heads);
  const BufferId delta = b.scratch("delta", Tensor::delta, tokens, c.heads.count());
  b.op(compute, RowDot{.out = io.out, .d_out = io.d_out, .delta = delta});
  AttentionBackward block{.q = io.q,
                          .k = io.k,
                          .v = io.v,
                          .d_out = io.d_out,
                          .lse = lse,
                          .delta = delta,
                          .d_q = io.d_q,
                          .d_k = io.d_k,
                          .d_v = io.d_v,
                          .q_tokens = c.tokens,
                          .k_tokens = c.tokens,
                          .heads = c.heads,
                          .kv_heads = c.kv_heads};
  if (!parts.meets_others()) {
    b.op(compute, block);
    return {.lse = lse, .delta = delta};
  }
  caster.cast(0);
  caster.cast(1);
  const DType wide = c.options.gradient;
  const BufferId q_sum = b.scratch("d_q_sum", Tensor::d_q, tokens, c.heads.count(), wide);
  const KeyBuffers sum = caster.sums("sum", tokens);
  const KeyBuffers own = caster.gradients("part", tokens);
  block.d_q = b.scratch("d_q_part", Tensor::d_q, tokens, c.heads.count());
  block.d_k = own.k;
  block.d_v = own.v;
  const auto accumulate = [&](BufferId to, BufferId part, const TokenSet& of, bool initial) {
    b.op(compute, Accumulate{.sum = to, .part = part, .tokens = of, .initial = initial});
  };
  b.op(compute, block);
  accumulate(q_sum, block.d_q, c.tokens, true);
  accumulate(sum.k, own.k, c.tokens, true);
  accumulate(sum.v, own.v, c.tokens, true);
  std::vector<Arrived> returned;
  for (int stage = 0; stage < parts.stages(); ++stage) {
    caster.cast(stage + 2);
    const Arrived keys = caster.join(stage);
    KeyBuffers gradients;
    if (!keys.tokens.empty()) {
      gradients = caster.gradients(fmt::format("stage_{}", stage), keys.tokens.count());
      block.k = keys.at.k;
      block.v = keys.at.v;
      block.d_k = gradients.k;
      block.d_v = gradients.v;
      block.q_tokens = parts.queries_of(keys.tokens);
      block.k_tokens = keys.tokens;
      b.op(compute, block);
      accumulate(q_sum, block.d_q, block.q_tokens, false);
    }
    caster.add(returned, sum);  // of the stage before, which has come meanwhile
    caster.reduce(stage, gradients, returned);
  }
  caster.add(returned, sum);
  b.op(compute, Copy{.kind = CopyKind::cast, .from = q_sum, .to = io.d_q});
  b.op(compute, Copy{.kind = CopyKind::cast, .from = sum.k, .to = io.d_k});
  b.op(compute, Copy{.kind = CopyKind::cast, .from = sum.v, .to = io.d_v});
  return {.lse = lse, .delta = delta};
}

Schedule build(const Problem& problem, const SequencePlan& plan, Phase phase,
               const BuildOptions& options) {
  Schedule s =
      compose(problem, plan, phase, options, {.forward = cast_forward, .backward = cast_backward});
  s.grain.cuts = cuts_of(s.contract.attention, AttentionMesh(plan, s.contract.attention));
  return s;
}

constexpr std::array layouts{Layout::balanced, Layout::whole_documents, Layout::zigzag,
                             Layout::contiguous};
constexpr std::array<const Parameter*, 1> own_parameters{&parameters::overlap};

}  // namespace

extern const Strategy entry{
    .name = "group-cast",
    .title = "Group-cast context parallelism",
    .paper = "MagiAttention, arXiv:2505.13211",
    .degrees = {.ulysses = true, .ring = true},
    .parameters = own_parameters,
    .layouts = layouts,
    .why_not = why_not_cast,
    .build = build,
    .closed_form = group_cast_form,
    .for_sparse_masks = true,
};

}  // namespace spp::strategies::group_cast
