#include "sim/rank_window.hpp"

#include <bit>

namespace spp::sim {

static_assert(RankWindow::lookahead == 8 * sizeof(OpMask), "a bit for every op in the window");

RankWindow::RankWindow(Program program)
    : cursor_(std::move(program)), ring_(lookahead), uses_(cursor_.buffers().size()) {}

Slot* RankWindow::fetch(const Op*& op) {
  if (ended_ || next_ - oldest_ == lookahead) {
    return nullptr;
  }
  op = cursor_.next();
  if (op == nullptr) {
    ended_ = true;
    return nullptr;
  }
  const std::int64_t position = next_++;
  const OpMask self = bit(position);
  if (position >= lookahead) {
    forget(self);
  }
  Slot& s = slot(position);
  s.started = s.finished = s.host_timer = false;
  s.waits_for = s.successors = 0;
  s.parts = 0;
  s.ready = 0;
  s.ready_by = s.next_in_stream = -1;
  s.stream = op->stream;
  s.kind = static_cast<std::uint8_t>(op->body.index());
  s.slow_from = s.slow_to = s.last_peer = Rank();
  if (op->stream.index() >= streams_.size()) {
    streams_.resize(op->stream.index() + 1);
  }
  Stream& stream = streams_[op->stream.index()];
  depend_on_buffers(op->body, s, self);
  (stream.head < 0 ? stream.head : slot(stream.tail).next_in_stream) = position;
  stream.tail = position;
  stream.ops |= self;
  unfinished_ |= self;
  return &s;
}

void RankWindow::depend_on_buffers(const OpBody& body, Slot& s, OpMask self) {
  const Access access = access_of(body);
  OpMask on = 0;
  for (const BufferId id : access.reads()) {
    BufferUse& use = uses_[id.index()];
    on |= use.writer;
    use.readers |= self;
  }
  for (const BufferId id : access.writes()) {
    BufferUse& use = uses_[id.index()];
    on |= use.writer | use.readers;
    use = {.writer = self, .readers = 0};
  }
  // Ops of the same stream are in order anyhow.
  s.waits_for = on & unfinished_ & ~streams_[s.stream.index()].ops;
  for (OpMask left = s.waits_for; left != 0; left &= left - 1) {
    ring_[static_cast<std::size_t>(std::countr_zero(left))].successors |= self;
  }
}

void RankWindow::forget(OpMask op) {
  for (BufferUse& use : uses_) {
    use.writer &= ~op;
    use.readers &= ~op;
  }
}

void RankWindow::finish(std::int64_t position, double now) {
  Slot& s = slot(position);
  const OpMask self = bit(position);
  s.finished = true;
  unfinished_ &= ~self;
  for (OpMask left = s.successors; left != 0; left &= left - 1) {
    Slot& waiter = ring_[static_cast<std::size_t>(std::countr_zero(left))];
    waiter.waits_for &= ~self;
    if (waiter.waits_for == 0) {
      waiter.ready = now;
      waiter.ready_by = position;
    }
  }
  Stream& stream = streams_[s.stream.index()];
  stream.ops &= ~self;
  stream.head = s.next_in_stream;
  while (oldest_ < next_ && slot(oldest_).finished) {
    ++oldest_;
  }
}

}  // namespace spp::sim
