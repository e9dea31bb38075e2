// Double ring attention. LoongTrain (arXiv:2406.18485, section 4.2); MindSpeed --cp-window-size.
//
// The R ranks form o = R/w windows of w adjacent ranks. Within a window blocks rotate over the
// inner ring; once per window, while its w steps run, one block moves to the same place of the next
// window over the outer ring: only (o-1) of the R-1 hops cross windows, and each has w steps to
// hide behind.
//
//   R = 4, w = 2, block held at steps 0..3       inner hop: 0<->1, 2<->3
//     rank 0 (W0,x0): 0 1 | 2 3                  outer hop: 0<->2, 1<->3, started at steps 0
//     rank 1 (W0,x1): 1 0 | 3 2
//     rank 2 (W1,x0): 2 3 | 0 1
//     rank 3 (W1,x1): 3 2 | 1 0
//
// Backward: gradients follow their block one step behind; after a window's last step a block's
// gradient sits one place before where the block entered, so the outer gradient hop goes to
// (window + 1, place + 1), and the last one of them lands at home.
//
// Combines with Ulysses (LoongTrain's 2D attention).
//
// Bytes sent per rank forward: (o*(w-1) + (o-1)) blocks of k and v; backward the same for k and v
// and o*(w-1) + o blocks of d_k and d_v. FLOPs as Ring Attention. Memory: one or two receive
// buffers for either ring (one where it is used once), else as Ring Attention; most is alive when a
// block enters the second window.
#include "parallel/attention/double_ring_core.hpp"
#include "parallel/attention/sizes.hpp"
#include "parallel/attention/strategy.hpp"

#include <algorithm>
#include <array>

namespace spp::parameters {
extern const Parameter window{.name = "window",
                              .symbol = "w",
                              .letter = "W",
                              .words = "window",
                              .help = "window of the double ring; W divides R"};
}

namespace spp::strategies::double_ring {
namespace {

Bytes scratch_peak(const Sizes& s, const SequencePlan& plan, Phase phase) {
  const Tiles own = s.busiest(s.ring);
  const Bytes kv = own.kv();
  const int window = plan.own[parameters::window];
  const Bytes arriving = kv * ((window > 2 ? 2 : 1) + (plan.ring / window > 2 ? 2 : 1));
  if (phase == Phase::forward) {
    // In the second window; or at the first kernel: gathered k and v, both first receivers, no sum.
    const Bytes second = arriving + s.fp32(own.out);
    return s.framed(own.q) + own.out + own.lse + std::max(second, s.framed(kv * 3));
  }
  return own.lse + s.framed(own.out) + arriving + (own.q + kv) + s.wide(own.q) + s.wide(kv) * 2;
}

ClosedForm closed_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                       const BuildOptions& options) {
  const Sizes s(requested, plan, options);
  ClosedForm form = ring_form(s, plan, phase);
  const int window = plan.own[parameters::window];
  const int windows = plan.ring / window;
  const std::int64_t inner = std::int64_t{windows} * (window - 1);
  const Bytes kv = s.all_parts(s.ring).kv() * plan.ring;  // one hop of all ranks
  const auto hops = [&](int group_size, int stride, std::int64_t calls, Bytes hop) {
    form.add({.kind = CommKind::send_recv,
              .axis = Axis::ring,
              .group_size = group_size,
              .stride = stride,
              .calls = calls,
              .total = hop * calls});
  };
  hops(window, 1, inner, kv);
  hops(windows, window, windows - 1, kv);
  if (phase == Phase::backward) {
    hops(window, 1, inner, s.wide(kv));
    hops(windows, window, windows, s.wide(kv));
  }
  form.peak_buffers = s.inputs_and_outputs(phase) + s.busiest(s.ring).lse +
                      std::max(scratch_peak(s, plan, phase), s.frame_peak(phase));
  return form;
}

std::string why_not_double(const Problem&, const SequencePlan& plan) {
  const int window = plan.own[parameters::window];
  if (window < 2 || plan.ring / window < 2) {
    return fmt::format(
        "a window of {} over a ring of {} leaves no inner or no outer ring (that is plain Ring "
        "Attention)",
        window, plan.ring);
  }
  return "";
}

Schedule build(const Problem& problem, const SequencePlan& plan, Phase phase,
               const BuildOptions& options) {
  return compose(problem, plan, phase, options,
                 {.forward = double_forward, .backward = double_backward, .ring_symmetric = false});
}

constexpr std::array own{&parameters::window};
constexpr std::array layouts{Layout::zigzag, Layout::contiguous, Layout::striped,
                             Layout::document_zigzag};

}  // namespace

extern const Strategy entry{
    .name = "double-ring",
    .title = "Double ring: inner rings on fast links, one outer hop per window behind them",
    .paper = "LoongTrain, arXiv:2406.18485",
    .degrees = {.ulysses = true, .ring = true},
    .parameters = own,
    .layouts = layouts,
    .why_not = why_not_double,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace spp::strategies::double_ring
