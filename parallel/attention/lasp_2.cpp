// LASP-2: sequence parallelism of linear attention. Sun, Lan, Zhong, Qu, Cheng (arXiv:2502.07563,
// Algorithms 1 and 2), within the Ulysses frame.
//
// Linear attention sums up keys and values in one state M = sum of k (x) v a head, head_dim x
// head_dim, however many tokens there are. Each rank makes the state of its own chunk, all ranks
// gather all of them, and a rank's queries read the sum of those before it (full mask: of all),
// while its own chunk is worked on causally meanwhile.
//
//   R = 4, rank 2:   M2 = k2 (x) v2   all-gather M0..M3   out2 = causal(q2, k2, v2) + q2 (M0 + M1)
//   backward:        D2 = q2 (x) d2   all-gather D0..D3   d_q2 += d2 (M0 + M1)^T
//                                                         d_k2 += v2 D3^T, d_v2 += k2 D3
//
// M0 + M1 is kept for the backward, as in Algorithm 2. States are fp32. Without decay: what gates
// states (RetNet, Mamba-2, gated delta rule) scales each by a factor on the way.
//
// Closed form (per rank): one gather of R-1 states forward and one backward, B * H_kv * d^2
// elements each, whatever the sequence. FLOPs: measure.hpp's linear_flops on the own chunk, 2 d^2 a
// token and head for each state that is made or applied.
#include "parallel/attention/compose.hpp"
#include "parallel/attention/sizes.hpp"
#include "parallel/attention/strategy.hpp"

#include <algorithm>
#include <array>

namespace spp::strategies::lasp_2 {
namespace {

bool is_causal(const Problem& problem) { return problem.mask.kind != MaskKind::full; }

/// What one rank of the ring does with states.
struct States {
  RankGroup ring;
  int position = 0;
  bool causal = true;
  HeadRange heads, kv_heads;
  TokenSet tokens;

  States(const ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c)
      : ring(mesh.ring_group(b.rank())),
        position(mesh.at(b.rank()).position),
        causal(is_causal(b.problem())),
        heads(c.heads),
        kv_heads(c.kv_heads),
        tokens(c.tokens) {}

  /// Slots whose keys this rank's queries read; whose queries read this rank's keys.
  [[nodiscard]] TokenSet before() const {
    return TokenSet({.begin = 0, .count = causal ? position : ring.size});
  }
  [[nodiscard]] TokenSet after() const {
    const int first = causal ? position + 1 : 0;
    return first < ring.size ? TokenSet({.begin = first, .count = ring.size - first}) : TokenSet();
  }
  [[nodiscard]] TokenSet own_slot() const { return TokenSet({.begin = position, .count = 1}); }

  /// rows (x) values of this rank.
  [[nodiscard]] BufferId make(ProgramBuilder& b, Tensor tensor, HeadRange of, BufferId rows,
                              BufferId values) const {
    const BufferId own =
        b.scratch(std::string(to_string(tensor)) + "_own", tensor, 1, kv_heads.count());
    b.op(compute, MakeState{.rows = rows,
                            .values = values,
                            .to = own,
                            .tokens = tokens,
                            .heads = of,
                            .kv_heads = kv_heads,
                            .slot = position});
    return own;
  }
  /// The states of all ranks; of a ring of one, its own.
  [[nodiscard]] BufferId gather(ProgramBuilder& b, StreamId stream, Tensor tensor,
                                BufferId own) const {
    if (ring.size == 1) {
      return own;
    }
    const BufferId all =
        b.scratch(std::string(to_string(tensor)) + "_all", tensor, ring.size, kv_heads.count());
    b.op(stream, Collective{.kind = CollectiveKind::all_gather,
                            .group = ring,
                            .from = own,
                            .to = all,
                            .to_tokens = TokenSet({.begin = 0, .count = ring.size}),
                            .to_heads = kv_heads});
    return all;
  }
  void sum(ProgramBuilder& b, BufferId all, const TokenSet& slots, BufferId to) const {
    b.op(compute, SumStates{.from = all, .to = to, .slots = slots, .slot = position});
  }
  void apply(ProgramBuilder& b, HeadRange of, BufferId rows, BufferId state, BufferId to) const {
    b.op(compute, ApplyState{.rows = rows,
                             .state = state,
                             .to = to,
                             .tokens = tokens,
                             .heads = of,
                             .kv_heads = kv_heads,
                             .initial = !causal});
  }
};

BufferId lasp_forward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                      ForwardBuffers io) {
  const States s(b, mesh, c);
  const bool gathers = s.ring.size > 1 || !s.causal;
  const BufferId all = gathers ? s.gather(b, ring_stream, Tensor::state,
                                          s.make(b, Tensor::state, c.kv_heads, io.k, io.v))
                               : BufferId();
  if (s.causal) {
    b.op(compute, LinearForward{.q = io.q,
                                .k = io.k,
                                .v = io.v,
                                .out = io.out,
                                .tokens = c.tokens,
                                .heads = c.heads,
                                .kv_heads = c.kv_heads});
  }
  if (!s.before().empty()) {
    const BufferId state = b.output("state", Tensor::state, s.own_slot(), c.kv_heads);
    s.sum(b, all, s.before(), state);
    s.apply(b, c.heads, io.q, state, io.out);
  }
  return {};
}

Statistics lasp_backward(ProgramBuilder& b, const AttentionMesh& mesh, const CoreContext& c,
                         BackwardBuffers io) {
  const States s(b, mesh, c);
  const bool gathers = s.ring.size > 1 || !s.causal;
  const BufferId all = gathers ? s.gather(b, ring_stream, Tensor::d_state,
                                          s.make(b, Tensor::d_state, c.heads, io.q, io.d_out))
                               : BufferId();
  if (s.causal) {
    b.op(compute, LinearBackward{.q = io.q,
                                 .k = io.k,
                                 .v = io.v,
                                 .d_out = io.d_out,
                                 .d_q = io.d_q,
                                 .d_k = io.d_k,
                                 .d_v = io.d_v,
                                 .tokens = c.tokens,
                                 .heads = c.heads,
                                 .kv_heads = c.kv_heads});
  }
  if (!s.before().empty()) {
    const BufferId state = b.input("state", Tensor::state, s.own_slot(), c.kv_heads);
    s.apply(b, c.heads, io.d_out, state, io.d_q);
  }
  if (!s.after().empty()) {
    const BufferId state = b.scratch("d_state", Tensor::d_state, 1, c.kv_heads.count());
    s.sum(b, all, s.after(), state);
    s.apply(b, c.kv_heads, io.v, state, io.d_k);
    s.apply(b, c.kv_heads, io.k, state, io.d_v);
  }
  return {};
}

/// Bytes of one state of the rank with most heads.
Bytes state_bytes(const Sizes& s) {
  const std::int64_t dim = s.problem.head_dim;
  return Bytes(s.problem.batch * s.split.kv(0).count() * dim * dim * size_of(DType::fp32));
}

/// FLOPs of a place in the ring with `heads` and `kv_heads`.
double flops_of(const Sizes& s, const SequencePlan& plan, Phase phase, int place, double heads,
                double kv_heads) {
  const bool causal = is_causal(s.problem);
  const bool forward = phase == Phase::forward;
  const double state = 2.0 * s.problem.head_dim * s.problem.head_dim;
  const double before = !causal || place > 0 ? 1 : 0;
  const double after = !causal || place + 1 < plan.ring ? 1 : 0;
  const double made = !causal || plan.ring > 1 ? 1 : 0;
  const double own =
      causal ? linear_flops(s.ring, s.problem.head_dim, phase) / static_cast<double>(s.ring) : 0;
  const double token = forward
                           ? heads * (own + before * state) + kv_heads * made * state
                           : heads * (own + (made + before) * state) + kv_heads * 2 * after * state;
  return token * static_cast<double>(s.ring) * static_cast<double>(s.problem.batch);
}

/// Most that a place in the ring has alive beside inputs and outputs of compose(): the state that
/// is kept, and scratch, op by op.
Bytes peak_of(const Sizes& s, const SequencePlan& plan, Phase phase, int place) {
  const bool causal = is_causal(s.problem);
  const bool ring = plan.ring > 1;
  const Bytes none(0);
  const Bytes state = state_bytes(s);
  const Bytes kept = !causal || place > 0 ? state : none;
  const bool after = !causal || place + 1 < plan.ring;
  const Bytes made = ring || !causal ? state : none;
  const Bytes all = ring ? state * plan.ring : none;
  const Tiles tile = s.busiest(s.ring);
  const Tiles home = s.all_heads(s.home);
  const Bytes q = s.framed(tile.q);
  const Bytes kv = s.framed(tile.v);
  if (phase == Phase::forward) {
    const Bytes arriving = q + kv + s.framed(home.v) + kv;  // v's all-to-all
    const Bytes gathering = q + (causal || !ring ? kv * 2 : none) + made + all;
    const Bytes making = q + kv * 2 + made;
    const Bytes kernel = causal ? q * 2 + kv * 2 + (place > 0 ? all : none) : q * 2;
    return kept + std::max({arriving, making, gathering, kernel});
  }
  const Bytes gathering = q + made + all;
  const Bytes leaving = q + s.framed(home.q) + kv * 2;  // d_q's all-to-all
  // What waits for the sum of states; a ring of one sums up its own.
  const Bytes waiting = !after ? none : ring ? all : made;
  const Bytes kernel = q * 2 + (causal ? kv * 2 : none) + waiting;
  const Bytes summing = after ? q + (causal ? kv * 2 : none) + waiting + state : none;
  const Bytes applying = after ? q + kv * 2 + state : none;
  return kept + std::max({gathering, leaving, kernel, causal && !ring ? none : summing,
                          causal && !ring ? none : applying});
}

/// f(place, how many are alike) for the first, the last and, if there are any, those between.
template <class F>
void for_each_place(int ring, F f) {
  f(0, 1);
  if (ring > 1) {
    f(ring - 1, 1);
  }
  if (ring > 2) {
    f(1, ring - 2);
  }
}

ClosedForm closed_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                       const BuildOptions& options) {
  const Sizes s(requested, plan, options);
  const bool causal = is_causal(s.problem);
  const bool forward = phase == Phase::forward;
  ClosedForm form = frame_form(s, plan, phase);
  form.flops = FlopCount(0);
  const double all_kv = static_cast<double>(s.problem.kv_heads) * s.split.replicas();
  Bytes peak(0);
  for_each_place(plan.ring, [&](int place, int alike) {
    form.flops += FlopCount(flops_of(s, plan, phase, place, s.problem.q_heads, all_kv)) * alike;
    const FlopCount mine(
        flops_of(s, plan, phase, place, s.split.q(0).count(), s.split.kv(0).count()));
    form.busiest_flops = std::max(form.busiest_flops, mine);
    peak = std::max(peak, peak_of(s, plan, phase, place));
  });
  // Kernels: the state that is made, the own tokens, what is read of others (backward: of those
  // before and of those after, for keys and values).
  if (forward) {
    form.attention_calls = !causal ? 2 : plan.ring > 1 ? 3 : 1;
  } else {
    form.attention_calls = !causal || plan.ring == 2 ? 4 : plan.ring > 2 ? 5 : 1;
  }
  const std::int64_t copies = std::int64_t{plan.ring} * (plan.ring - 1);
  const std::int64_t dim = s.problem.head_dim;
  form.add({.kind = CommKind::all_gather,
            .axis = Axis::ring,
            .group_size = plan.ring,
            .calls = 1,
            .total = Bytes(s.problem.batch * s.problem.kv_heads * s.split.replicas() * dim * dim *
                           size_of(DType::fp32) * copies)});
  form.peak_buffers =
      s.inputs_and_outputs(phase) - (forward ? Bytes(0) : s.busiest(s.ring).q) + peak;
  return form;
}

std::string why_not_lasp(const Problem& problem, const SequencePlan& plan) {
  if (plan.ranks() < 2) {
    return "one rank has nobody to gather from";
  }
  if (problem.v_dim() != problem.head_dim) {
    return fmt::format("its states are square: values of {} beside keys of {} are not supported",
                       problem.v_dim(), problem.head_dim);
  }
  if (problem.mask.kind == MaskKind::window) {
    return "a state does not forget the keys that leave a window";
  }
  return problem.mask.document_ends.empty() ? "" : "a state does not tell packed documents apart";
}

Schedule build(const Problem& problem, const SequencePlan& plan, Phase phase,
               const BuildOptions& options) {
  return compose(problem, plan, phase, options,
                 {.forward = lasp_forward,
                  .backward = lasp_backward,
                  .ring_symmetric = true,
                  .keeps_out = false,
                  .states = true});
}

constexpr std::array layouts{Layout::contiguous};

}  // namespace

extern const Strategy entry{
    .name = "lasp-2",
    .title = "LASP-2: gathered states of linear attention",
    .paper = "arXiv:2502.07563",
    .degrees = {.ulysses = true, .ring = true},
    .layouts = layouts,
    .why_not = why_not_lasp,
    .build = build,
    .closed_form = closed_form,
    .function = AttentionFunction::linear,
    .no_sinks = "attention sinks take their share of a softmax, and it has none",
};

}  // namespace spp::strategies::lasp_2
