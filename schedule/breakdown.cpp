#include "schedule/breakdown.hpp"

#include <algorithm>
#include <compare>
#include <functional>
#include <map>
#include <vector>

namespace spp {
namespace {

struct OpOfRank {
  Rank rank;
  std::size_t op = 0;
};

/// The n-th message from one rank to another on a stream, or the n-th collective of a group.
struct Meeting {
  StreamId stream;
  bool collective = false;
  std::int32_t first = 0, second = 0, size = 0;  // sender and receiver; the group
  std::int64_t number = 0;
  friend auto operator<=>(const Meeting&, const Meeting&) = default;
};

class Account {
 public:
  Account(const Timeline& timeline, std::span<const StoredProgram> programs, int lookahead)
      : programs_(programs), lookahead_(lookahead) {
    for (const StoredProgram& program : programs) {
      events_.emplace_back(program.ops.size(), nullptr);
    }
    kernel_ends_.resize(programs.size());
    for (const TimelineEvent& e : timeline.events) {
      events_[e.rank.index()][static_cast<std::size_t>(e.op)] = &e;
      const bool later =
          last_ == nullptr || e.end > last_->end || (e.end == last_->end && e.rank < last_->rank);
      last_ = later ? &e : last_;
      if (!is_transfer(e.kind)) {
        kernel_ends_[e.rank.index()].push_back(e.end);
      }
    }
    for (std::vector<Seconds>& ends : kernel_ends_) {
      std::ranges::sort(ends);
    }
  }

  Breakdown of_last() {
    if (last_ == nullptr) {
      return {};
    }
    const Rank rank = last_->rank;
    find_meetings(rank);
    find_room(rank);
    const StoredProgram& program = programs_[rank.index()];
    std::vector<const TimelineEvent*> transfers;  // in the order in which they end
    std::vector<const TimelineEvent*> kernels;    // in that of the program, which is the stream's
    for (const TimelineEvent* e : events_[rank.index()]) {
      if (e != nullptr) {
        (is_transfer(e->kind) ? transfers : kernels).push_back(e);
      }
    }
    std::ranges::stable_sort(transfers, {}, &TimelineEvent::end);
    auto next = transfers.begin();
    for (const TimelineEvent* kernel : kernels) {
      for (; next != transfers.end() && (*next)->end <= kernel->begin; ++next) {
        came(**next, kernel->stream);
      }
      const StoredOp& op = program.ops[static_cast<std::size_t>(kernel->op)];
      const Seconds room = room_[static_cast<std::size_t>(kernel->op)];
      wait(kernel->begin, std::max({ready(rank, op), on_stream_, room}));
      work(*kernel);
    }
    for (; next != transfers.end(); ++next) {
      came(**next, StreamId());
    }
    wait(last_->end, last_->end);
    b_.hidden = std::max(Seconds(0), busy(std::move(transfers)) - b_.exposed - b_.imbalance);
    return b_;
  }

 private:
  [[nodiscard]] const TimelineEvent* event(OpOfRank at) const {
    return events_[at.rank.index()][at.op];
  }

  /// When what an op reads was there.
  [[nodiscard]] Seconds ready(Rank rank, const StoredOp& op) const {
    Seconds when{};
    for (const std::int32_t wait : op.waits) {
      const TimelineEvent* e = event({.rank = rank, .op = static_cast<std::size_t>(wait)});
      when = e != nullptr ? std::max(when, e->end) : when;
    }
    return when;
  }

  /// Who takes part in the transfers of `rank`.
  void find_meetings(Rank rank) {
    for (const StoredProgram& program : programs_) {
      std::map<Meeting, std::int64_t> count;  // with number 0
      const auto meet = [&](Meeting meeting, std::size_t op) {
        meeting.number = count[meeting]++;
        meetings_[meeting].push_back({.rank = program.rank, .op = op});
      };
      for (std::size_t i = 0; i < program.ops.size(); ++i) {
        const Op& op = program.ops[i].op;
        if (const auto* o = op_if<Exchange>(op.body)) {
          if (o->to.valid()) {
            meet({.stream = op.stream, .first = program.rank.value, .second = o->to.value}, i);
          }
          if (o->from.valid() && o->from != program.rank) {
            meet({.stream = op.stream, .first = o->from.value, .second = program.rank.value}, i);
          }
        } else if (const auto* c = op_if<Collective>(op.body)) {
          meet({.stream = op.stream,
                .collective = true,
                .first = c->group.first,
                .second = c->group.stride,
                .size = c->group.size},
               i);
        }
      }
    }
    met_in_.resize(programs_[rank.index()].ops.size());
    for (const auto& [meeting, all] : meetings_) {
      for (const OpOfRank mine : all) {
        if (mine.rank == rank) {
          met_in_[mine.op].push_back(&all);
        }
      }
    }
  }

  /// When there was room for each op of the rank: all but the last few before it had begun.
  void find_room(Rank rank) {
    const std::vector<const TimelineEvent*>& events = events_[rank.index()];
    room_.assign(events.size(), Seconds());
    std::vector<Seconds> latest;  // begins of ops so far, as a heap: the earliest in front
    Seconds room{};
    for (std::size_t i = 0; lookahead_ > 0 && i < events.size(); ++i) {
      if (std::ssize(latest) == lookahead_) {
        room = std::max(room, latest.front());
      }
      room_[i] = room;
      if (events[i] != nullptr) {
        latest.push_back(events[i]->begin);
        std::ranges::push_heap(latest, std::greater());
      }
      if (std::ssize(latest) > lookahead_) {
        std::ranges::pop_heap(latest, std::greater());
        latest.pop_back();
      }
    }
  }

  /// Until when the last one to come computed; 0 if it waited for a transfer.
  [[nodiscard]] Seconds computed_until(const std::vector<OpOfRank>& meeting) const {
    Seconds when{};
    Seconds last{};
    for (const OpOfRank& partner : meeting) {
      const TimelineEvent* e = event(partner);
      if (e != nullptr && e->begin >= last) {
        when =
            e->begin > last ? computed_before(partner) : std::max(when, computed_before(partner));
        last = e->begin;
      }
    }
    return when;
  }

  /// When a rank's transfer could begin, if that was when one of its kernels ended; else 0.
  [[nodiscard]] Seconds computed_before(OpOfRank transfer) const {
    const StoredProgram& program = programs_[transfer.rank.index()];
    const StoredOp& stored = program.ops[transfer.op];
    Seconds when = ready(transfer.rank, stored);
    for (std::size_t i = transfer.op; i-- > 0;) {
      if (program.ops[i].op.stream == stored.op.stream) {
        const TimelineEvent* e = event({.rank = transfer.rank, .op = i});
        when = e != nullptr ? std::max(when, e->end) : when;
        break;
      }
    }
    return std::ranges::binary_search(kernel_ends_[transfer.rank.index()], when) ? when
                                                                                 : Seconds(0);
  }

  void came(const TimelineEvent& transfer, StreamId compute) {
    for (const auto* meeting : met_in_[static_cast<std::size_t>(transfer.op)]) {
      busy_peers_ = std::max(busy_peers_, computed_until(*meeting));
    }
    on_stream_ = transfer.stream == compute ? std::max(on_stream_, transfer.end) : on_stream_;
  }

  /// Idle since the last kernel, until `now`; what is read next was there when `ready`.
  void wait(Seconds now, Seconds ready) {
    if (now <= free_) {
      return;
    }
    const Seconds until = std::clamp(ready, free_, now);
    const Seconds idle = until - free_;
    const Seconds imbalance = std::clamp(busy_peers_ - free_, Seconds(0), idle);
    b_.imbalance += imbalance;
    b_.exposed += idle - imbalance;
    b_.launch_bound += now - until;
  }

  void work(const TimelineEvent& kernel) {
    (is_attention(kernel.kind)     ? b_.attention
     : kernel.kind == OpKind::gemm ? b_.gemm
                                   : b_.other_kernels) += kernel.end - kernel.begin;
    free_ = kernel.end;
  }

  /// Time during which at least one of them was under way.
  static Seconds busy(std::vector<const TimelineEvent*> transfers) {
    std::ranges::stable_sort(transfers, {}, &TimelineEvent::begin);
    Seconds sum{};
    Seconds until{};
    for (const TimelineEvent* e : transfers) {
      sum += std::max(Seconds(0), e->end - std::max(e->begin, until));
      until = std::max(until, e->end);
    }
    return sum;
  }

  std::span<const StoredProgram> programs_;
  int lookahead_;
  std::vector<std::vector<const TimelineEvent*>> events_;  // by rank and op
  std::vector<std::vector<Seconds>> kernel_ends_;          // by rank, rising
  std::map<Meeting, std::vector<OpOfRank>> meetings_;
  std::vector<std::vector<const std::vector<OpOfRank>*>>
      met_in_;                 // by op of the rank that ends last
  std::vector<Seconds> room_;  // likewise
  const TimelineEvent* last_ = nullptr;
  Breakdown b_;
  Seconds free_{};        // when the last kernel ended
  Seconds on_stream_{};   // and the last transfer on its stream
  Seconds busy_peers_{};  // until when transfers so far had waited for ranks that computed
};

}  // namespace

Breakdown breakdown_of(const Timeline& timeline, std::span<const StoredProgram> programs,
                       int lookahead) {
  return Account(timeline, programs, lookahead).of_last();
}

}  // namespace spp
