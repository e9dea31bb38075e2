#include "sim/rank_window.hpp"

#include <bit>
#include <limits>

namespace spp::sim {

RankWindow::RankWindow(Program program, int most_unstarted)
    : cursor_(std::move(program)),
      uses_(cursor_.buffers().size()),
      most_unstarted_(most_unstarted) {}

Slot* RankWindow::fetch(const Op*& op) {
  if (ended_ || fetched_ == issued_ + batch ||
      unfinished_ == std::numeric_limits<SlotMask>::max()) {
    return nullptr;
  }
  op = cursor_.next();
  if (op == nullptr) {
    ended_ = true;
    return nullptr;
  }
  ensure(fetched_ < std::numeric_limits<std::int32_t>::max(), "a program of too many ops");
  Slot& s = free_slot();
  s.host_timer = s.streams = false;
  s.successors = 0;
  s.ready_by = -1;
  s.next_in_stream = -1;
  s.position = positions_[static_cast<std::size_t>(s.id)] = static_cast<std::int32_t>(fetched_);
  unissued_.at(static_cast<std::size_t>(fetched_++ % batch)) = s.id;
  s.stream = op->stream;
  s.kind = kind_of(op->body);
  s.last_peer = Rank();
  if (is_transfer(s.kind)) {
    s.parts = 0;
    s.met = 0;
    s.slow_from = s.slow_to = Rank();
  }
  if (op->stream.index() >= streams_.size()) {
    ensure(op->stream.index() < most_streams, "a program of too many streams");
    streams_.resize(op->stream.index() + 1);
  }
  const SlotMask self = bit(s.id);
  depend_on_buffers(op->body, s, self);
  Stream& stream = streams_[op->stream.index()];
  (stream.head < 0 ? stream.head : slot(stream.tail).next_in_stream) = s.id;
  stream.tail = s.id;
  stream.ops |= self;
  unfinished_ |= self;
  return &s;
}

Slot& RankWindow::issue(double now) {
  Slot& s = slot(unissued_.at(static_cast<std::size_t>(issued_++ % batch)));
  ++unstarted_;
  if (s.waits_for == 0) {  // nobody has kept it waiting
    s.ready = now;
    s.ready_by = -1;
  }
  note_ready(s);
  return s;
}

/// The lowest free slot.
Slot& RankWindow::free_slot() {
  const auto id = static_cast<SlotId>(std::countr_one(unfinished_));
  if (static_cast<std::size_t>(id) == slots_.size()) {
    if (slots_.size() == slots_.capacity()) {
      slots_.reserve(slots_.size() + 8);  // not twice as many: there are many windows
      positions_.reserve(slots_.capacity());
    }
    slots_.emplace_back().id = id;
    positions_.push_back(0);
  }
  return slot(id);
}

/// A buffer's use that an op adds to, without the ops whose slots have others by now.
RankWindow::BufferUse& RankWindow::use_of(BufferId id, std::int32_t position) {
  BufferUse& use = uses_[id.index()];
  for (SlotMask left = use.writer | use.readers; left != 0; left &= left - 1) {
    const auto holder = static_cast<SlotId>(std::countr_zero(left));
    if (positions_[static_cast<std::size_t>(holder)] > use.touched) {
      use.writer &= ~bit(holder);
      use.readers &= ~bit(holder);
    }
  }
  use.touched = position;
  return use;
}

void RankWindow::depend_on_buffers(const OpBody& body, Slot& s, SlotMask self) {
  const Access access = access_of(body);
  SlotMask on = 0;
  for (const BufferId id : access.reads()) {
    BufferUse& use = use_of(id, s.position);
    on |= use.writer;
    use.readers |= self;
  }
  for (const BufferId id : access.writes()) {
    BufferUse& use = use_of(id, s.position);
    on |= use.writer | use.readers;
    use.writer = self;
    use.readers = 0;
  }
  // Ops of the same stream are in order anyhow.
  s.waits_for = on & unfinished_ & ~streams_[s.stream.index()].ops;
  for (SlotMask left = s.waits_for; left != 0; left &= left - 1) {
    slot(static_cast<SlotId>(std::countr_zero(left))).successors |= self;
  }
}

void RankWindow::finish(SlotId id, double now) {
  Slot& s = slot(id);
  const SlotMask self = bit(id);
  unfinished_ &= ~self;
  for (SlotMask left = s.successors; left != 0; left &= left - 1) {
    Slot& waiter = slot(static_cast<SlotId>(std::countr_zero(left)));
    waiter.waits_for &= ~self;
    if (waiter.waits_for == 0) {
      waiter.ready = now;
      waiter.ready_by = s.position;
      note_ready(waiter);
    }
  }
  Stream& stream = streams_[s.stream.index()];
  stream.ops &= ~self;
  stream.head = s.next_in_stream;
  ready_ &= ~(std::uint64_t{1} << s.stream.index());
  if (stream.head >= 0) {
    note_ready(slot(stream.head));
  }
}

}  // namespace spp::sim
