// One simulated rank: its program, of which a window of ops is held at a time, with the
// dependencies that follow from the buffers (schedule.hpp). Knows nothing of time or networks.
#pragma once

#include "schedule/schedule.hpp"
#include "sim/lowering.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace spp::sim {

enum class OpClass : std::uint8_t { kernel, attention, exchange, collective };
constexpr bool is_kernel(OpClass op) { return op < OpClass::exchange; }

/// An op's place in its rank's window while it is there; then another op's.
using SlotId = std::int16_t;
/// A set of slots.
using SlotMask = std::uint64_t;

/// An op in the window. A big world walks over cold windows: what all ops need is one line of the
/// cache, and a kernel needs hardly more.
struct alignas(64) Slot {
  OpClass op_class = OpClass::kernel;
  bool host_timer : 1 = false;
  bool streams : 1 = false;  // a kernel that takes bandwidth of a memory that ranks share
  OpKind kind = OpKind::attention_fwd;
  CommKind comm = CommKind::send_recv;
  SlotId id = 0;
  SlotId next_in_stream = -1;
  StreamId stream;
  Rank last_peer;              // that kept it waiting
  std::int32_t position = 0;   // in the program
  std::int32_t ready_by = -1;  // position of its last dependency
  SlotMask waits_for = 0;      // unfinished ops it depends on
  SlotMask successors = 0;
  double ready = 0;    // when its last dependency had ended, and the window had room for it
  double issued = 0;   // by the host
  double seconds = 0;  // kernels and local copies

  double begin = 0;         // timeline only
  std::int64_t bytes = 0;   // sent, or touched by a kernel (timeline only)
  double flops = 0;         // timeline only
  double met = 0;           // transfers: until when it waited for a rank that still computed
  Rank to, from;            // exchange
  Rank slow_from, slow_to;  // its last message
  double slow_rate = 0;
  int parts = 0;     // messages that have not ended
  RankGroup group;   // collective
  double host = 0;   // SimulationCosts::host_of: to issue it
  double stand = 0;  // likewise: from its end on, in which no op begins
  LoweredComm lowered;
};

class RankWindow {
 public:
  /// Ops that the host may have issued and that have not started. Those that have started, one a
  /// stream at most, do not count: a long transfer does not stop the host. Small, so that the
  /// windows of a big world stay in the cache.
  static constexpr int lookahead = 16;
  /// Of a layer, or a step: parameters and gradients queue up on streams of their own, which on a
  /// GPU stops the host after a thousand of them.
  static constexpr int lookahead_of_step = 48;
  /// Ops that are fetched at once, ahead of what the host may have issued: what they are made of is
  /// then in the cache.
  static constexpr int batch = 8;
  static int lookahead_of(const Schedule& schedule) {
    return schedule.contract.graph.empty() ? lookahead : lookahead_of_step;
  }

  explicit RankWindow(Program program, int most_unstarted = lookahead);

  /// Takes the next op of the program into the window, behind those that the host has issued;
  /// nullptr when a batch waits to be issued, the window is full or the program at its end. `op` is
  /// the op itself, valid until the next call. References to slots are valid until then, too.
  Slot* fetch(const Op*& op);
  /// The host may issue one op more.
  [[nodiscard]] bool has_room() const { return unstarted_ < most_unstarted_; }
  /// The host may have issued the next op that was fetched from `now` on.
  Slot& issue(double now);
  [[nodiscard]] Slot& slot(SlotId id) { return slots_[static_cast<std::size_t>(id)]; }
  /// Ops so far.
  [[nodiscard]] std::int64_t fetched() const { return fetched_; }
  [[nodiscard]] std::int64_t issued() const { return issued_; }
  [[nodiscard]] std::size_t streams() const { return streams_.size(); }
  /// First op of a stream that has not finished; -1 if none is in the window.
  [[nodiscard]] SlotId head(std::size_t stream) const { return streams_[stream].head; }
  /// The first stream from this one on whose head has not started and waits for no other op;
  /// streams() if there is none.
  [[nodiscard]] std::size_t next_ready(std::size_t from) const {
    const std::uint64_t left = from < most_streams ? ready_ >> from : 0;
    return left == 0 ? streams_.size() : from + static_cast<std::size_t>(std::countr_zero(left));
  }
  /// Marks an op as started.
  void start(SlotId id) {
    --unstarted_;
    ready_ &= ~(std::uint64_t{1} << slot(id).stream.index());
  }
  /// Marks an op as ended; the ops that waited for it are told (`waits_for`, `ready`, `ready_by`).
  void finish(SlotId id, double now);
  [[nodiscard]] bool done() const { return ended_ && unfinished_ == 0; }
  [[nodiscard]] std::span<const Buffer> buffers() const { return cursor_.buffers(); }
  /// Of the op fetched last: its loop, the one that this is like, and how many ops of it are
  /// before.
  [[nodiscard]] std::size_t loop() const { return cursor_.loop(); }
  [[nodiscard]] std::size_t like() const { return cursor_.like(); }
  [[nodiscard]] std::size_t before_in_loop() const {
    return static_cast<std::size_t>(cursor_.before_in_loop());
  }

 private:
  struct BufferUse {
    SlotMask writer = 0;       // the last one
    SlotMask readers = 0;      // since then
    std::int32_t touched = 0;  // position of the last op that it has: later ones in these slots
                               // are others
  };
  struct Stream {
    SlotId head = -1, tail = -1;
    SlotMask ops = 0;  // unfinished
  };
  static SlotMask bit(SlotId id) { return SlotMask{1} << static_cast<unsigned>(id); }
  Slot& free_slot();
  BufferUse& use_of(BufferId id, std::int32_t position);
  void depend_on_buffers(const OpBody& body, Slot& slot, SlotMask self);
  void note_ready(const Slot& slot) {
    if (slot.waits_for == 0 && slot.position < issued_ && head(slot.stream.index()) == slot.id) {
      ready_ |= std::uint64_t{1} << slot.stream.index();
    }
  }

  static constexpr std::size_t most_streams = 64;
  ProgramCursor cursor_;
  std::vector<Slot> slots_;
  std::vector<std::int32_t> positions_;  // of the ops in the slots
  std::vector<BufferUse> uses_;
  std::vector<Stream> streams_;
  SlotMask unfinished_ = 0;               // slots in use
  std::uint64_t ready_ = 0;               // streams whose head may start
  int unstarted_ = 0, most_unstarted_;    // of those that are issued
  std::array<SlotId, batch> unissued_{};  // by position
  std::int64_t fetched_ = 0, issued_ = 0;
  bool ended_ = false;
};

}  // namespace spp::sim
