// One simulated rank: its program, of which a window of ops is held at a time, with the
// dependencies that follow from the buffers (schedule.hpp). Knows nothing of time or networks.
#pragma once

#include "schedule/schedule.hpp"
#include "sim/lowering.hpp"

#include <cstdint>
#include <vector>

namespace spp::sim {

enum class OpClass : std::uint8_t { kernel, attention, exchange, collective };

/// A set of ops in the window: bit `position % lookahead`.
using OpMask = std::uint32_t;

/// An op in the window. What every op needs comes first: a big world walks over cold windows.
struct Slot {
  OpClass op_class = OpClass::kernel;
  bool started = false, finished = false, host_timer = false;
  std::uint8_t kind = 0;  // alternative in OpBody
  CommKind comm = CommKind::send_recv;
  StreamId stream;
  OpMask waits_for = 0;  // unfinished ops it depends on
  OpMask successors = 0;
  std::int64_t next_in_stream = -1;

  double issued = 0;           // by the host
  double ready = 0;            // when its last dependency ended
  std::int64_t ready_by = -1;  // that dependency
  double begin = 0;
  double seconds = 0;  // kernels and local copies
  Rank to, from;       // exchange
  int parts = 0;       // messages that have not ended
  RankGroup group;     // collective
  LoweredComm lowered;
  Rank slow_from, slow_to;  // its last message
  double slow_rate = 0;
  Rank last_peer;          // that kept it waiting
  std::int64_t bytes = 0;  // sent, or touched by a kernel (timeline only)
  double flops = 0;        // timeline only
};

class RankWindow {
 public:
  /// Ops that the host may be ahead. Small: the windows of a big world should stay in the cache.
  static constexpr std::int64_t lookahead = 32;

  explicit RankWindow(Program program);

  /// Takes the next op of the program into the window; nullptr when the window is full or the
  /// program at its end. `op` is the op itself, valid until the next call.
  Slot* fetch(const Op*& op);
  [[nodiscard]] Slot& slot(std::int64_t position) {
    return ring_[static_cast<std::size_t>(position % lookahead)];
  }
  [[nodiscard]] std::int64_t fetched() const { return next_; }
  [[nodiscard]] std::int64_t streams() const { return static_cast<std::int64_t>(streams_.size()); }
  /// First op of a stream that has not finished; -1 if none is in the window.
  [[nodiscard]] std::int64_t head(std::size_t stream) const { return streams_[stream].head; }
  /// Marks an op as ended; the ops that waited for it are told (`waits_for`, `ready`, `ready_by`).
  void finish(std::int64_t position, double now);
  [[nodiscard]] bool done() const { return ended_ && oldest_ == next_; }
  [[nodiscard]] std::span<const Buffer> buffers() const { return cursor_.buffers(); }

 private:
  struct BufferUse {
    OpMask writer = 0;   // the last one
    OpMask readers = 0;  // since then
  };
  struct Stream {
    std::int64_t head = -1, tail = -1;
    OpMask ops = 0;  // unfinished
  };
  static OpMask bit(std::int64_t position) { return OpMask{1} << (position % lookahead); }
  void depend_on_buffers(const OpBody& body, Slot& slot, OpMask self);
  /// A finished op's place in the window is used again: no buffer must still mean the old op.
  void forget(OpMask op);

  ProgramCursor cursor_;
  std::vector<Slot> ring_;
  std::vector<BufferUse> uses_;
  std::vector<Stream> streams_;
  OpMask unfinished_ = 0;
  std::int64_t oldest_ = 0;  // unfinished
  std::int64_t next_ = 0;
  bool ended_ = false;
};

}  // namespace spp::sim
