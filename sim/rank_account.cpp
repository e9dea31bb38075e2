#include "sim/rank_account.hpp"

#include <algorithm>

namespace spp::sim {
namespace {

constexpr StreamId compute_stream{0};  // of all kernels

}  // namespace

void RankAccount::add_sent(const Slot& slot) {
  if (slot.stream.index() >= sent_.size()) {
    sent_.resize(slot.stream.index() + 1);
  }
  sent_[slot.stream.index()][static_cast<std::size_t>(slot.comm)] += Bytes(slot.bytes);
}

void RankAccount::begin_kernel(const Slot& slot, double now) {
  kernel_begin_ = now;
  if (now <= compute_free_) {
    return;
  }
  // Behind a transfer on the kernels' own stream, one that gives what the kernel reads, or those
  // that filled the window; from then on for the host.
  const double ready = std::max(slot.ready, transfer_end_);
  const double until = std::clamp(ready, compute_free_, now);
  // Some of it between two transfers.
  const double for_host =
      now - until + std::clamp(stood_ - (now - until), 0.0, until - compute_free_);
  launch_bound_ += for_host;
  if (now - for_host > compute_free_) {
    // The dependency's slot may have been reused; the rank's last communication is that op.
    keep_wait(slot.position, slot.ready_by, add_wait(now - for_host - compute_free_));
  }
}

void RankAccount::end_kernel(const Slot& slot, double now) {
  (slot.op_class == OpClass::attention ? attention_
   : slot.kind == OpKind::gemm         ? gemm_
                                       : other_kernels_) += now - kernel_begin_;
  compute_free_ = now;
  stood_ = std::max(0.0, stands_ - now);
  end_ = now;
}

void RankAccount::end_communication(const Slot& slot, Scope scope, double now) {
  if (--communicating_ == 0) {
    communicating_total_ += now - communicating_since_;
  }
  if (slot.stream == compute_stream) {
    transfer_end_ = now;
  }
  last_ = {.kind = slot.comm,
           .stream = slot.stream,
           .scope = scope,
           .from = slot.slow_from,
           .to = slot.slow_to,
           .rate = slot.slow_rate,
           .algorithm = slot.lowered.algorithm};
  last_op_ = slot.position;
  busy_peers_ = std::max(busy_peers_, slot.met);
  end_ = now;
}

void RankAccount::close(std::int64_t ops) {
  if (end_ > compute_free_ && last_op_ >= 0) {
    keep_wait(ops, last_op_, add_wait(end_ - compute_free_));
  }
}

void RankAccount::keep_wait(std::int64_t op, std::int64_t waited_for, double exposed) {
  if (steps_) {
    waits_.push_back({.op = op,
                      .waited_for = waited_for,
                      .kind = last_.kind,
                      .stream = last_.stream,
                      .seconds = Seconds(exposed)});
  }
}

/// Of the seconds since the last kernel, what was waited for a rank that still computed, and for
/// communication; gives the latter.
double RankAccount::add_wait(double wait) {
  const double imbalance = std::clamp(busy_peers_ - compute_free_, 0.0, wait);
  imbalance_ += imbalance;
  exposed_ += wait - imbalance;
  add_exposed(wait - imbalance);
  return wait - imbalance;
}

void RankAccount::add_exposed(double wait) {
  auto it = std::ranges::find_if(exposed_by_, [&](const Exposed& e) {
    return e.kind == last_.kind && e.stream == last_.stream;
  });
  if (it == exposed_by_.end()) {
    it = exposed_by_.insert(exposed_by_.end(), last_);
  } else if (last_.rate < it->rate) {
    const double so_far = it->seconds;
    *it = last_;
    it->seconds = so_far;
  }
  it->seconds += wait;
}

Breakdown RankAccount::breakdown() const {
  return {.attention = Seconds(attention_),
          .gemm = Seconds(gemm_),
          .other_kernels = Seconds(other_kernels_),
          .exposed = Seconds(exposed_),
          .imbalance = Seconds(imbalance_),
          .hidden = Seconds(std::max(0.0, communicating_total_ - exposed_ - imbalance_)),
          .launch_bound = Seconds(launch_bound_)};
}

std::vector<Bottleneck> RankAccount::bottlenecks() const {
  std::vector<Bottleneck> all;
  for (const Exposed& e : exposed_by_) {
    all.push_back({.kind = e.kind,
                   .stream = e.stream,
                   .scope = e.scope,
                   .exposed = Seconds(e.seconds),
                   .from = e.from,
                   .to = e.to,
                   .rate = Bandwidth(e.rate),
                   .algorithm = std::string(e.algorithm)});
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &Bottleneck::exposed);
  return all;
}

std::array<Bytes, comm_kinds> RankAccount::sent() const {
  std::array<Bytes, comm_kinds> sum{};
  for (const auto& stream : sent_) {
    for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
      sum[kind] += stream[kind];
    }
  }
  return sum;
}

Bytes RankAccount::all_sent() const {
  Bytes sum{};
  for (const Bytes kind : sent()) {
    sum += kind;
  }
  return sum;
}

}  // namespace spp::sim
