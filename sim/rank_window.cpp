#include "sim/rank_window.hpp"

namespace spp::sim {

RankWindow::RankWindow(Program program) : cursor_(std::move(program)), ring_(lookahead), uses_(cursor_.buffers().size()) {}

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
  Slot& s = slot(position);
  s.started = s.finished = s.host_timer = false;
  s.waiting = s.parts = 0;
  s.ready = 0;
  s.ready_by = s.next_in_stream = -1;
  s.successors.clear();
  s.stream = op->stream;
  s.kind = static_cast<std::uint8_t>(op->body.index());
  s.slow_from = s.slow_to = s.last_peer = Rank();
  if (const std::size_t stream = op->stream.index(); stream >= heads_.size()) {
    heads_.resize(stream + 1, -1);
    tails_.resize(stream + 1, -1);
  }
  const std::size_t stream = op->stream.index();
  (heads_[stream] < 0 ? heads_[stream] : slot(tails_[stream]).next_in_stream) = position;
  tails_[stream] = position;

  const Access access = access_of(op->body);
  for (const BufferId id : access.reads()) {
    BufferUse& use = uses_[id.index()];
    depend(position, s, use.writer);
    use.readers.push_back(position);
  }
  for (const BufferId id : access.writes()) {
    BufferUse& use = uses_[id.index()];
    depend(position, s, use.writer);
    for (const std::int64_t reader : use.readers) {
      depend(position, s, reader);
    }
    use.readers.clear();
    use.writer = position;
  }
  return &s;
}

void RankWindow::depend(std::int64_t position, Slot& s, std::int64_t on) {
  // Ended ops left the window or are marked; ops of the same stream are in order anyhow.
  if (on < oldest_ || on == position || slot(on).finished || slot(on).stream == s.stream) {
    return;
  }
  slot(on).successors.push_back(position);
  ++s.waiting;
}

void RankWindow::finish(std::int64_t position, double now) {
  Slot& s = slot(position);
  s.finished = true;
  for (const std::int64_t successor : s.successors) {
    Slot& waiter = slot(successor);
    if (--waiter.waiting == 0) {
      waiter.ready = now;
      waiter.ready_by = position;
    }
  }
  heads_[s.stream.index()] = s.next_in_stream;
  while (oldest_ < next_ && slot(oldest_).finished) {
    ++oldest_;
  }
}

}  // namespace spp::sim
