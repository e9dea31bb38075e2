// DistFlashAttn (LightSeq): the balanced causal schedule. Li et al. (arXiv:2310.03294), section
// 3.1-3.2, Algorithm 2.
//
// Contiguous chunks under the causal mask: rank p has p blocks beside its own. All stop after
// T = floor(R/2) of them: a rank that has run out of own work takes queries of a rank that has more
// than T, computes them against its own keys, and sends (out, lse) back.
//
//   R = 4, (query block, key block) of steps 0..2; * = for another rank
//     rank 0: 0,0  3,0*  -         rank 2: 2,2  2,1  2,0
//     rank 1: 1,1  1,0   -         rank 3: 3,3  3,2  3,1     <- an even R: half idle at the last
//
// Step t, all positions modulo R: what p brings goes to p+t: its k and v to a worker (p+t < R), its
// queries to a helper (it wraps). Results go the other way, t back: a helper's to their owner, in
// the backward also a worker's d_k, d_v. Backward of a helper: q, d_out, lse, delta arrive, d_q
// goes back; its own d_k, d_v stay. Fetches run one step ahead on a stream of their own.
// Deviation: partial gradients travel in the problem's dtype, as kernels write them, each straight
// to its owner, who sums them in the gradients' dtype.
//
// Closed form: T = floor(R/2), H = floor((R-1)/2) steps with helpers; W = TR - T(T+1)/2 fetches of
// keys, G = H(H+1)/2 of queries, all ranks together. Q, O, K = bytes of the tiles of queries, of
// outputs, of k and v together, s = fp32 scalars.
//   bytes   forward K W + (Q + O+s) G; backward 2K W + (Q+O+2s + Q) G
//   FLOPs   the last rank: its own block, half masked, and T whole ones
//   memory  the larger of a rank that works to the end and of rank 0, which helps first
#include "parallel/attention/compose.hpp"
#include "parallel/attention/sizes.hpp"
#include "parallel/attention/strategy.hpp"

#include <algorithm>
#include <array>

namespace spp::strategies::dist_flash_attn {
namespace {

/// Steps beside the own block; those with helpers (an even ring's last step needs none).
constexpr int steps_of(int ring) { return ring / 2; }
constexpr int helped_of(int ring) { return (ring - 1) / 2; }

Bytes forward_scratch(const Tiles& own, int ring) {
  const int steps = steps_of(ring);
  const Bytes part = own.out + own.lse;
  const Bytes kv = own.kv();
  // Works to the end. From 3 steps on at the fetch of step 3: two fetched, one part, one that came
  // home. With 2 at the fetch of step 2, or at the return of step 1.
  const Bytes worker = steps >= 3   ? kv * 2 + part * 2
                       : steps == 2 ? std::max(kv * 2 + part, kv + part * 2)
                                    : kv + part;
  // Helps from the start: at the kernel of step 1.
  const int helped = helped_of(ring);
  const Bytes helper = helped >= 2 ? own.q * 2 + part * 2 : helped == 1 ? own.q + part : Bytes(0);
  return std::max(worker, helper);
}

Bytes backward_scratch(const Tiles& own, int ring) {
  const int steps = steps_of(ring);
  const Bytes kv = own.kv();
  const Bytes part = own.q + kv;
  const Bytes home = std::max(kv, own.q);
  const Bytes worker = own.lse +  // its delta; a helper from the start has no more use for it
                       (steps >= 3   ? kv * 2 + part * 2 + home  // as forward
                        : steps == 2 ? kv * 2 + part * 2         // at the kernel of step 1
                                     : kv + part);
  const Bytes queries = own.q + own.out + own.lse * 2;  // q, d_out, lse, delta
  const int helped = helped_of(ring);
  const Bytes helper = helped >= 3   ? queries * 2 + part * 2 + kv  // at the fetch of step 3
                       : helped == 2 ? queries * 2 + part * 2       // at the kernel of step 1
                       : helped == 1 ? queries + part
                                     : Bytes(0);
  return std::max(worker, helper);
}

ClosedForm closed_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                       const BuildOptions& options) {
  const Sizes s(requested, plan, options);
  ClosedForm form = frame_form(s, plan, phase);
  const std::int64_t ring = plan.ring;
  const std::int64_t steps = steps_of(plan.ring);
  const std::int64_t helped = helped_of(plan.ring);
  const std::int64_t key_fetches = steps * ring - steps * (steps + 1) / 2;
  const std::int64_t query_fetches = helped * (helped + 1) / 2;
  const Tiles all = s.all_parts(s.ring);
  const bool forward = phase == Phase::forward;
  const Bytes queries = forward ? all.q : all.q + all.out + all.lse * 2;
  const Bytes results = forward ? all.out + all.lse : all.q;
  const Bytes kv = all.kv();
  const auto add = [&](std::int64_t calls, Bytes total) {
    form.add({.kind = CommKind::send_recv,
              .axis = Axis::ring,
              .group_size = plan.ring,
              .calls = calls,
              .total = total,
              .neighbours = false});
  };
  add(steps, kv * key_fetches + queries * query_fetches);
  add(forward ? helped : steps, (forward ? Bytes(0) : kv * key_fetches) + results * query_fetches);
  const std::int64_t block = s.ring;
  const Mask& mask = s.problem.mask;
  if (mask.document_ends.empty()) {
    form.busiest_flops =
        s.flops(block * (block + 1) / 2 + block * block * steps, s.split.q(0).count(), phase);
    form.attention_calls = 1 + steps;
  } else {  // any rank may be the busiest, and blocks are skipped: no less than the mean, and one
    const TokenRange whole{.begin = 0, .count = s.problem.seq};
    form.busiest_flops =
        s.flops(allowed_pairs(whole, whole, mask) / ring, s.split.q(0).count(), phase);
    form.attention_calls = 1;
  }
  const Tiles own = s.busiest(s.ring);
  form.peak_buffers = s.inputs_and_outputs(phase) + own.lse +
                      (forward ? s.fp32(own.out) + forward_scratch(own, plan.ring)
                               : s.wide(own.q + own.kv()) + backward_scratch(own, plan.ring));
  return form;
}

std::string why_not_balanced(const Problem& problem, const SequencePlan& plan) {
  if (plan.ring < 2) {
    return "a ring of one rank has nobody to help";
  }
  if (problem.mask.kind != MaskKind::causal) {
    return fmt::format("it balances the causal mask, not a {} one",
                       problem.mask.kind == MaskKind::full ? "full" : "sliding-window");
  }
  return "";
}

/// Who does what at step t >= 1 (0: the own block).
struct Turns {
  RankGroup group;
  int ring = 1;
  int position = 0;
  Problem problem;
  BuildOptions options;

  Turns(const ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c)
      : group(mesh.ring_group(b.rank())),
        ring(c.plan.ring),
        position(mesh.at(b.rank()).position),
        problem(b.problem()),
        options(c.options) {}

  [[nodiscard]] std::int64_t steps() const { return steps_of(ring); }
  /// Has own work left; else helps, if that step has helpers.
  [[nodiscard]] bool works(std::int64_t t) const { return position >= t; }
  [[nodiscard]] bool helps(std::int64_t t) const { return !works(t) && t <= helped_of(ring); }
  /// The rank t places on works; else that step's helper of this rank is there, if it has one.
  [[nodiscard]] bool feeds(std::int64_t t) const { return position + t < ring; }
  [[nodiscard]] bool is_helped(std::int64_t t) const { return !feeds(t) && t <= helped_of(ring); }
  [[nodiscard]] int before(std::int64_t t) const {
    return static_cast<int>((position - t + ring) % ring);
  }
  [[nodiscard]] int after(std::int64_t t) const { return static_cast<int>((position + t) % ring); }
  [[nodiscard]] Rank rank(int at) const { return group.rank(at); }
  [[nodiscard]] Section block(int queries, int keys) const {
    return needed_section(chunk_tokens(problem.seq, Layout::contiguous, queries, ring),
                          chunk_tokens(problem.seq, Layout::contiguous, keys, ring), problem.mask,
                          options);
  }
  /// What this rank computes at step t; and what the rank t places on computes for or with it.
  [[nodiscard]] Section mine(std::int64_t t) const {
    return works(t)   ? block(position, before(t))
           : helps(t) ? block(before(t), position)
                      : Section();
  }
  [[nodiscard]] Section theirs(std::int64_t t) const {
    return feeds(t)       ? block(after(t), position)
           : is_helped(t) ? block(position, after(t))
                          : Section();
  }
};

/// One message each way; either may be missing.
void push_exchange(StreamId stream, Rank to, const BufferList& send, Rank from,
                   const BufferList& receive, OpList& ops) {
  if (send.empty() && receive.empty()) {
    return;
  }
  ops.push_back({stream, Exchange{.to = send.empty() ? Rank() : to,
                                  .from = receive.empty() ? Rank() : from,
                                  .send = send,
                                  .receive = receive}});
}

/// Room for what arrives for one step: keys to work with, or queries to help with.
struct Fetched {
  BufferList keys, queries;
};

/// The fetch of step t: own keys or queries to the rank t places on, its counterpart from the rank
/// t places before.
void fetch(const Turns& at, std::int64_t t, const Fetched& own, const Fetched& arriving,
           OpList& ops) {
  if (t > at.steps()) {
    return;
  }
  const BufferList none;
  push_exchange(ring_stream, at.rank(at.after(t)),
                at.feeds(t)       ? own.keys
                : at.is_helped(t) ? own.queries
                                  : none,
                at.rank(at.before(t)),
                at.works(t)   ? arriving.keys
                : at.helps(t) ? arriving.queries
                              : none,
                ops);
}

BufferId balanced_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                          ForwardBuffers io) {
  const Turns at(b, mesh, c);
  const std::int64_t tokens = c.tokens.count();
  const int heads = c.heads.count();
  const int kv_heads = c.kv_heads.count();
  const BufferId lse = b.output("lse", Tensor::lse, c.tokens, c.heads);
  const auto slot = [&](int i) {
    return Fetched{.keys = {b.scratch(fmt::format("k{}", i), Tensor::k, tokens, kv_heads),
                            b.scratch(fmt::format("v{}", i), Tensor::v, tokens, kv_heads)},
                   .queries = {b.scratch(fmt::format("q{}", i), Tensor::q, tokens, heads)}};
  };
  const auto result = [&](std::string_view name) {
    return BufferList{b.scratch(fmt::format("out_{}", name), Tensor::out, tokens, heads),
                      b.scratch(fmt::format("lse_{}", name), Tensor::lse, tokens, heads)};
  };
  const std::array slots{slot(0), slot(1)};
  const std::array parts{result("part0"), result("part1")};
  const BufferList home = result("home");
  const BufferId sum = b.scratch("out_sum", Tensor::out, tokens, heads, DType::fp32);
  const Fetched own{.keys = {io.k, io.v}, .queries = {io.q}};
  const auto merge = [=](const BufferList& part, const TokenSet& q, bool initial, OpList& ops) {
    ops.push_back({compute, Merge{.out = sum,
                                  .lse = lse,
                                  .part_out = part.ids()[0],
                                  .part_lse = part.ids()[1],
                                  .tokens = q,
                                  .initial = initial}});
  };
  const auto merge_home = [=](std::int64_t t, OpList& ops) {
    if (t > 0 && at.is_helped(t) && !at.theirs(t).empty()) {
      merge(home, at.theirs(t).q, false, ops);
    }
  };

  b.loop(at.steps() + 1, [=](std::int64_t t, OpList& ops) {
    fetch(at, t + 1, own, slots[static_cast<std::size_t>((t + 1) % 2)], ops);
    const Fetched& held = slots[static_cast<std::size_t>(t % 2)];
    const bool works = at.works(t);
    // Only a helper's part is under way while the next one is computed.
    const BufferList& part = parts[works ? 0 : static_cast<std::size_t>(t % 2)];
    const Section mine = at.mine(t);
    if (!mine.empty()) {
      const BufferList& keys = works && t > 0 ? held.keys : own.keys;
      ops.push_back({compute, AttentionForward{.q = works ? io.q : held.queries.ids()[0],
                                               .k = keys.ids()[0],
                                               .v = keys.ids()[1],
                                               .out = part.ids()[0],
                                               .lse = part.ids()[1],
                                               .q_tokens = mine.q,
                                               .k_tokens = mine.k,
                                               .heads = c.heads,
                                               .kv_heads = c.kv_heads}});
      if (works) {
        merge(part, mine.q, t == 0, ops);
      }
    }
    if (t == 0) {
      return;
    }
    merge_home(t - 1, ops);  // a step late, so that this step's kernel need not wait for it
    const BufferList none;
    push_exchange(gradient_stream, at.rank(at.before(t)),
                  at.helps(t) && !mine.empty() ? part : none, at.rank(at.after(t)),
                  at.is_helped(t) && !at.theirs(t).empty() ? home : none, ops);
  });
  b.once([=](OpList& ops) {
    merge_home(at.steps(), ops);
    ops.push_back({compute, Copy{.kind = CopyKind::cast, .from = sum, .to = io.out}});
  });
  return lse;
}

/// d_q, d_k, d_v of one block.
struct Gradients {
  BufferId q, k, v;
};

Statistics balanced_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                             BackwardBuffers io) {
  const Turns at(b, mesh, c);
  const std::int64_t tokens = c.tokens.count();
  const int heads = c.heads.count();
  const int kv_heads = c.kv_heads.count();
  const BufferId lse = b.input("lse", Tensor::lse, c.tokens, c.heads);
  const BufferId delta = b.scratch("delta", Tensor::delta, tokens, heads);
  b.op(compute, RowDot{.out = io.out, .d_out = io.d_out, .delta = delta});
  const auto slot = [&](int i) {
    return Fetched{.keys = {b.scratch(fmt::format("k{}", i), Tensor::k, tokens, kv_heads),
                            b.scratch(fmt::format("v{}", i), Tensor::v, tokens, kv_heads)},
                   .queries = {b.scratch(fmt::format("q{}", i), Tensor::q, tokens, heads),
                               b.scratch(fmt::format("d_out{}", i), Tensor::d_out, tokens, heads),
                               b.scratch(fmt::format("lse{}", i), Tensor::lse, tokens, heads),
                               b.scratch(fmt::format("delta{}", i), Tensor::delta, tokens, heads)}};
  };
  const auto gradients = [&](std::string_view name, DType dtype) {
    return Gradients{
        .q = b.scratch(fmt::format("d_q_{}", name), Tensor::d_q, tokens, heads, dtype),
        .k = b.scratch(fmt::format("d_k_{}", name), Tensor::d_k, tokens, kv_heads, dtype),
        .v = b.scratch(fmt::format("d_v_{}", name), Tensor::d_v, tokens, kv_heads, dtype)};
  };
  const std::array slots{slot(0), slot(1)};
  const DType plain = b.problem().dtype;
  const std::array parts{gradients("part0", plain), gradients("part1", plain)};
  const Gradients home = gradients("home", plain);
  const Gradients sum = gradients("sum", c.options.gradient);
  const Fetched own{.keys = {io.k, io.v}, .queries = {io.q, io.d_out, lse, delta}};
  const auto add = [=](BufferId to, BufferId part, const TokenSet& where, bool initial,
                       OpList& ops) {
    ops.push_back(
        {compute, Accumulate{.sum = to, .part = part, .tokens = where, .initial = initial}});
  };
  const auto add_keys = [=](const Gradients& part, const TokenSet& k, bool initial, OpList& ops) {
    add(sum.k, part.k, k, initial, ops);
    add(sum.v, part.v, k, initial, ops);
  };
  const auto add_home = [=](std::int64_t t, OpList& ops) {
    const Section theirs = t > 0 ? at.theirs(t) : Section();
    if (theirs.empty()) {
      return;
    }
    if (at.feeds(t)) {
      add_keys(home, theirs.k, false, ops);
    } else {
      add(sum.q, home.q, theirs.q, false, ops);
    }
  };

  b.loop(at.steps() + 1, [=](std::int64_t t, OpList& ops) {
    fetch(at, t + 1, own, slots[static_cast<std::size_t>((t + 1) % 2)], ops);
    const Fetched& held = slots[static_cast<std::size_t>(t % 2)];
    const Gradients& part = parts[static_cast<std::size_t>(t % 2)];
    const bool works = at.works(t);
    const Section mine = at.mine(t);
    if (!mine.empty()) {
      const auto keys = (works && t > 0 ? held : own).keys.ids();
      const auto queries = (works ? own : held).queries.ids();
      ops.push_back({compute, AttentionBackward{.q = queries[0],
                                                .k = keys[0],
                                                .v = keys[1],
                                                .d_out = queries[1],
                                                .lse = queries[2],
                                                .delta = queries[3],
                                                .d_q = part.q,
                                                .d_k = part.k,
                                                .d_v = part.v,
                                                .q_tokens = mine.q,
                                                .k_tokens = mine.k,
                                                .heads = c.heads,
                                                .kv_heads = c.kv_heads}});
      if (works) {
        add(sum.q, part.q, mine.q, t == 0, ops);
      }
      if (!works || t == 0) {
        add_keys(part, mine.k, t == 0, ops);
      }
    }
    if (t == 0) {
      return;
    }
    add_home(t - 1, ops);
    const BufferList none;
    const BufferList back = works ? BufferList{part.k, part.v} : BufferList{part.q};
    const BufferList come = at.feeds(t) ? BufferList{home.k, home.v} : BufferList{home.q};
    push_exchange(gradient_stream, at.rank(at.before(t)), mine.empty() ? none : back,
                  at.rank(at.after(t)), at.theirs(t).empty() ? none : come, ops);
  });
  b.once([=](OpList& ops) {
    add_home(at.steps(), ops);
    ops.push_back({compute, Copy{.kind = CopyKind::cast, .from = sum.q, .to = io.d_q}});
    ops.push_back({compute, Copy{.kind = CopyKind::cast, .from = sum.k, .to = io.d_k}});
    ops.push_back({compute, Copy{.kind = CopyKind::cast, .from = sum.v, .to = io.d_v}});
  });
  return {.lse = lse, .delta = delta};
}

Schedule build(const Problem& problem, const SequencePlan& plan, Phase phase,
               const BuildOptions& options) {
  return compose(problem, plan, phase, options,
                 {.forward = balanced_forward, .backward = balanced_backward});
}

constexpr std::array layouts{Layout::contiguous};

}  // namespace

extern const Strategy entry{
    .name = "dist-flash-attn",
    .title = "DistFlashAttn, balanced causal schedule",
    .paper = "DISTFLASHATTN (LightSeq), arXiv:2310.03294",
    .degrees = {.ring = true},
    .layouts = layouts,
    .why_not = why_not_balanced,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace spp::strategies::dist_flash_attn
