#include "sim/rank_account.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace spp::sim {
namespace {

constexpr StreamId compute_stream{0};  // of all kernels

}  // namespace

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

void RankAccount::begin_communication(const Slot& slot, double now) {
  if (communicating_++ == 0) {
    communicating_since_ = now;
  }
  if (slot.stream.index() >= sent_.size()) {
    sent_.resize(slot.stream.index() + 1);
  }
  sent_[slot.stream.index()][static_cast<std::size_t>(slot.comm)] += Bytes(slot.bytes);
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

void RankAccount::repeat(const Turn& turn, int times) {
  const auto add = [&](double RankAccount::* sum) {
    this->*sum += times * (turn.to.*sum - turn.from.*sum);
  };
  for (const auto sum : {&RankAccount::communicating_total_, &RankAccount::attention_,
                         &RankAccount::gemm_, &RankAccount::other_kernels_, &RankAccount::exposed_,
                         &RankAccount::imbalance_, &RankAccount::launch_bound_}) {
    add(sum);
  }
  // What has not ended is in no sum yet.
  const auto under_way = [](const RankAccount& account, double now) {
    return account.communicates() ? now - account.communicating_since_ : 0.0;
  };
  communicating_total_ +=
      times * (under_way(turn.to, turn.begin + turn.seconds) - under_way(turn.from, turn.begin));
  end_ += times * turn.seconds;
  for (std::size_t stream = 0; stream < turn.to.sent_.size(); ++stream) {
    for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
      const Bytes before =
          stream < turn.from.sent_.size() ? turn.from.sent_[stream][kind] : Bytes{};
      sent_[stream][kind] += times * (turn.to.sent_[stream][kind] - before);
    }
  }
  for (std::size_t i = 0; i < turn.to.exposed_by_.size(); ++i) {  // they keep their places
    const double before = i < turn.from.exposed_by_.size() ? turn.from.exposed_by_[i].seconds : 0.0;
    exposed_by_[i].seconds += times * (turn.to.exposed_by_[i].seconds - before);
  }
  repeat_waits(turn, times);
}

/// Those of the turn come once more; what is behind it is behind them.
void RankAccount::repeat_waits(const Turn& turn, int times) {
  const auto first = std::ranges::lower_bound(waits_, turn.first_op, {}, &Wait::op);
  const auto end = std::ranges::lower_bound(waits_, turn.first_op + turn.ops, {}, &Wait::op);
  std::vector<Wait> all(waits_.begin(), end);
  const auto append = [&](auto from, auto to, int later) {
    for (auto wait = from; wait != to; ++wait) {
      Wait& again = all.emplace_back(*wait);
      again.op += later * turn.ops;
      again.waited_for += again.waited_for < 0 ? 0 : later * turn.ops;
    }
  };
  for (int i = 1; i <= times; ++i) {
    append(first, end, i);
  }
  append(end, waits_.end(), times);
  waits_ = std::move(all);
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
