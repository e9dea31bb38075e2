#include "parallel/attention/sizes.hpp"
#include "parallel/attention/startrail_core.hpp"

#include <algorithm>
#include <numeric>

namespace spp::strategies {
namespace {

/// Ranks of one StarTrail that the initial exchange leaves where they are. (T, m) goes to
/// (m*S + T/C, T mod C), so T = C*a + m with a*(C-1) = m*(S-1): gcd(C-1, S-1) + 1 solutions.
std::int64_t stay_at_first(std::int64_t team, std::int64_t sub_ring) {
  return std::gcd(team - 1, sub_ring - 1) + 1;
}

/// Ranks of one StarTrail whose d_q is at home already after S-1 hops. (g*S + s, m) returns it to
/// team C*((s+1) mod S) + m, member g. Itself if g = m and, with a = s+1 in [1, S), m*(S-1) -
/// a*(C-1) = 1: one solution if C-1 and S-1 are coprime and S > 2. S = 1: the exchange reversed.
std::int64_t stay_at_last(std::int64_t team, std::int64_t sub_ring) {
  if (sub_ring == 1) {
    return team;
  }
  return sub_ring > 2 && std::gcd(team - 1, sub_ring - 1) == 1 ? 1 : 0;
}

/// Allowed pairs of the rank with most. Full: S blocks of L queries and L keys. Contiguous: the
/// last team's queries (forward) or the first one's keys (backward) need all S blocks whole, but
/// for the member who meets the diagonal. Zigzag: two of four chunk products in every block, and
/// the member on the diagonal half a chunk's edge more. Striped: all diagonals included.
std::int64_t busiest_pairs(const Sizes& s, Layout layout, std::int64_t sub_ring) {
  const std::int64_t n = s.team;
  const Mask& mask = s.problem.mask;
  if (layout == Layout::document_zigzag) {  // of each document what zigzag has of a sequence
    std::int64_t pairs = 0;
    std::int64_t begin = 0;
    for (const std::int64_t end : mask.document_ends) {
      const std::int64_t of_team = 2 * (end - begin);
      const std::int64_t whole = sub_ring * of_team * of_team;
      pairs += mask.kind == MaskKind::full ? whole : whole / 2 + of_team / 2;
      begin = end;
    }
    return pairs;
  }
  if (!mask.document_ends.empty()) {  // any rank may have most: no less than the mean
    const TokenRange all{.begin = 0, .count = s.problem.seq};
    return allowed_pairs(all, all, mask) / (s.problem.seq / s.ring);
  }
  if (mask.kind == MaskKind::full || layout == Layout::contiguous) {
    return sub_ring * n * n;
  }
  return layout == Layout::zigzag ? sub_ring * n * n / 2 + n / 2 : sub_ring * n * (n + 1) / 2;
}

Bytes scratch_peak(const Sizes& s, const SequencePlan& plan, int sub_ring, Phase phase) {
  const Tiles team = s.busiest(s.team);
  const Bytes kv = team.kv();
  const int slots = sub_ring > 1 ? 2 : 1;
  if (phase == Phase::forward) {
    // In the sub-ring; at the rescaling, if lse of all members outweighs what died before; or,
    // where keys are that much wider than values, at the initial exchange or the gathering of q.
    const Bytes rotating = kv * slots + team.q + team.out + s.fp32(team.out) + team.lse * 2;
    const Bytes rescale = s.fp32(team.out) + team.lse * (plan.own[parameters::team] + 1) + team.out;
    const Bytes gathering = s.framed(s.busiest(s.ring).q) + kv + std::max(kv, team.q);
    return std::max({rotating, rescale, gathering});
  }
  const Bytes side = team.q + team.out + team.lse * 2;  // q, d_out, lse, delta
  const Bytes parts = team.q + kv;
  const Bytes exchange = side - team.lse + side;  // lse comes from the caller
  // Of a sub-ring of two either both query sides are there, or both d_q.
  const Bytes d_q = s.wide(team.q);
  const Bytes twice = sub_ring > 2 ? side + d_q : sub_ring == 2 ? std::max(side, d_q) : Bytes(0);
  const Bytes rotating = side + d_q + twice + kv + parts + s.wide(kv);
  return std::max(exchange, rotating);
}

/// One kind of transfer along one axis.
struct Transfers {
  CommKind kind;
  Axis axis;
  int group_size;
  bool neighbours = true;
};

void add_forward(ClosedForm& form, const Sizes& s, const SequencePlan& plan, int sub_ring) {
  const int members = plan.own[parameters::team];
  const Tiles chunk = s.all_parts(s.ring);
  const Tiles team = s.all_parts(s.team);
  const std::int64_t gathers = std::int64_t{plan.ring} * (members - 1);
  const std::int64_t leave = plan.ring - stay_at_first(members, sub_ring);
  const std::int64_t hops = sub_ring - 1;
  const auto add = [&](Transfers t, std::int64_t calls, Bytes total) {
    form.add({.kind = t.kind,
              .axis = t.axis,
              .group_size = t.group_size,
              .calls = calls,
              .total = total,
              .neighbours = t.neighbours});
  };
  add({CommKind::all_gather, Axis::team, members}, 3, (chunk.kv() + chunk.q) * gathers);
  add({CommKind::all_gather, Axis::team, members}, 1, team.lse * gathers);
  add({CommKind::send_recv, Axis::ring, plan.ring, false}, 1, team.kv() * leave);
  add({CommKind::send_recv, Axis::ring, sub_ring}, hops, team.kv() * hops * plan.ring);
  add({CommKind::reduce_scatter, Axis::team, members}, 1, chunk.out * gathers);
}

void add_backward(ClosedForm& form, const Sizes& s, const SequencePlan& plan, int sub_ring) {
  const int members = plan.own[parameters::team];
  const Tiles chunk = s.all_parts(s.ring);
  const Tiles team = s.all_parts(s.team);
  const Bytes side = team.q + team.out + team.lse * 2;
  const std::int64_t gathers = std::int64_t{plan.ring} * (members - 1);
  const std::int64_t leave = plan.ring - stay_at_first(members, sub_ring);
  const std::int64_t return_home = plan.ring - stay_at_last(members, sub_ring);
  const std::int64_t hops = sub_ring - 1;
  const auto add = [&](Transfers t, std::int64_t calls, Bytes total) {
    form.add({.kind = t.kind,
              .axis = t.axis,
              .group_size = t.group_size,
              .calls = calls,
              .total = total,
              .neighbours = t.neighbours});
  };
  add({CommKind::all_gather, Axis::team, members}, 5,
      (chunk.q + chunk.out + chunk.lse + chunk.kv()) * gathers);
  add({CommKind::send_recv, Axis::ring, plan.ring, false}, 1, side * leave);
  add({CommKind::send_recv, Axis::ring, sub_ring}, hops, side * hops * plan.ring);
  add({CommKind::send_recv, Axis::ring, sub_ring}, hops, s.wide(team.q) * hops * plan.ring);
  add({CommKind::send_recv, Axis::ring, plan.ring, false}, 1, s.wide(team.q) * return_home);
  add({CommKind::reduce_scatter, Axis::team, members}, 3, s.wide(chunk.q + chunk.kv()) * gathers);
}

}  // namespace

ClosedForm startrail_closed_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                                 const BuildOptions& options) {
  const Sizes s(requested, plan, options);
  const int sub_ring = size_of(plan, Axis::ring);
  ClosedForm form = frame_form(s, plan, phase);
  form.busiest_flops =
      s.flops(busiest_pairs(s, plan.layout, sub_ring), s.split.q(0).count(), phase);
  form.attention_calls =
      s.problem.mask.document_ends.empty() || plan.layout == Layout::document_zigzag ? sub_ring : 1;
  form.exchange_first = true;
  form.exchange_last = phase == Phase::backward;
  if (phase == Phase::forward) {
    add_forward(form, s, plan, sub_ring);
  } else {
    add_backward(form, s, plan, sub_ring);
  }
  form.peak_buffers = s.inputs_and_outputs(phase) + s.busiest(s.team).lse +
                      std::max(scratch_peak(s, plan, sub_ring, phase), s.frame_peak(phase));
  return form;
}

}  // namespace spp::strategies
