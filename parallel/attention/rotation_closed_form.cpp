#include "parallel/attention/rotation.hpp"
#include "parallel/attention/sizes.hpp"

#include <algorithm>

namespace spp::strategies {
namespace {

/// Most scratch alive at once (sizes.hpp says on which rank).
Bytes scratch_peak(const Sizes& s, std::int64_t steps, Phase phase) {
  const Tiles own = s.busiest(s.ring);
  const Bytes kv = own.kv();
  const Bytes arriving = kv * (steps > 2 ? 2 : 1);
  if (phase == Phase::forward) {
    if (steps == 1) {
      return s.framed(own.q + own.out) + s.framed_kv(kv);  // at the kernel: q, k, v, out
    }
    // At the exchange of step 1 (of two steps: at its kernel), or, as long as the gathered k and v
    // are there and out_sum is not, at the kernel of step 0.
    const Bytes part = s.framed(own.q) + own.out + own.lse;
    const Bytes rotating = part + arriving + s.fp32(own.out);
    return std::max(rotating, part + kv + s.framed_kv(kv));
  }
  if (steps == 1) {
    return own.lse + s.framed(own.out + own.q + kv);  // at the kernel: delta, d_out; d_q, d_k, d_v
  }
  // At the exchange of step 1 (of two steps: at its kernel): delta, d_out, k and v that arrive,
  // the parts, d_q's sum, both slots of the gradients that travel.
  return own.lse + s.framed(own.out) + arriving + (own.q + kv) + s.wide(own.q) + s.wide(kv) * 2;
}

}  // namespace

ClosedForm rotation_closed_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                                const BuildOptions& options) {
  const Sizes s(requested, plan, options);
  ClosedForm form = ring_form(s, plan, phase);
  const std::int64_t steps = rotation_steps(s.problem, plan);
  const std::int64_t hops = steps - 1;
  const Bytes kv = s.all_parts(s.ring).kv() * plan.ring;  // one hop of all ranks
  form.add({.kind = CommKind::send_recv,
            .axis = Axis::ring,
            .group_size = plan.ring,
            .calls = hops,
            .total = kv * hops});
  if (phase == Phase::backward && steps > 1) {
    form.add({.kind = CommKind::send_recv,
              .axis = Axis::ring,
              .group_size = plan.ring,
              .calls = steps,
              .total = s.wide(kv) * steps});
  }
  form.peak_buffers = s.inputs_and_outputs(phase) + s.busiest(s.ring).lse +
                      std::max(scratch_peak(s, steps, phase), s.frame_peak(phase));
  return form;
}

}  // namespace spp::strategies
