// Where the time of a simulated rank goes: kernels, communication that they hide or that is waited
// for, ranks that still compute, the host. Told when its ops begin and end; the same as
// breakdown_of() makes of a timeline (schedule/breakdown.hpp), which need not be kept for it.
#pragma once

#include "sim/rank_window.hpp"
#include "sim/simulate.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace spp::sim {

struct Turn;

class RankAccount {
 public:
  /// `steps`: keeps each wait.
  explicit RankAccount(bool steps) : steps_(steps) {}

  void begin_kernel(const Slot& slot, double now);
  void end_kernel(const Slot& slot, double now);
  void begin_communication(const Slot& slot, double now);
  /// Nothing of the rank begins before, for the host.
  void stand(double now, double until) {
    stood_ += std::max(0.0, until - std::max(stands_, now));
    stands_ = std::max(stands_, until);
  }
  [[nodiscard]] double stands() const { return stands_; }
  /// `scope`: that its slowest message went through.
  void end_communication(const Slot& slot, Scope scope, double now);
  /// The rank has ended, `ops` behind it: communication after its last kernel was waited for.
  void close(std::int64_t ops);
  /// Behind a turn, so many more are like it.
  void repeat(const Turn& turn, int times);

  [[nodiscard]] bool communicates() const { return communicating_ > 0; }
  /// When the kernel that runs, or ran last, began.
  [[nodiscard]] double kernel_begin() const { return kernel_begin_; }
  /// When the compute stream's last kernel ended.
  [[nodiscard]] double compute_free() const { return compute_free_; }
  [[nodiscard]] double end() const { return end_; }

  [[nodiscard]] Breakdown breakdown() const;
  /// By falling exposed time.
  [[nodiscard]] std::vector<Bottleneck> bottlenecks() const;
  [[nodiscard]] std::array<Bytes, comm_kinds> sent() const;
  [[nodiscard]] Bytes all_sent() const;
  [[nodiscard]] const std::vector<std::array<Bytes, comm_kinds>>& sent_on() const { return sent_; }
  [[nodiscard]] const std::vector<Wait>& waits() const { return waits_; }

 private:
  /// Exposed time by kind of communication and stream, with the slowest message seen.
  struct Exposed {
    CommKind kind = CommKind::send_recv;
    StreamId stream;
    Scope scope = Scope::self;
    Rank from, to;
    double rate = 0;
    std::string_view algorithm;
    double seconds = 0;
  };

  double add_wait(double wait);
  void add_exposed(double wait);
  void keep_wait(std::int64_t op, std::int64_t waited_for, double exposed);
  void repeat_waits(const Turn& turn, int times);

  bool steps_;
  int communicating_ = 0;
  double communicating_since_ = 0, communicating_total_ = 0;
  double compute_free_ = 0;
  double kernel_begin_ = 0;
  double transfer_end_ = 0;  // of the last transfer on the compute stream
  double stands_ = 0;        // until when nothing begins
  double stood_ = 0;         // of the time since the last kernel
  double busy_peers_ = 0;    // until when communications so far had waited for them (Slot::met)
  double end_ = 0;
  double attention_ = 0, gemm_ = 0, other_kernels_ = 0, exposed_ = 0, imbalance_ = 0,
         launch_bound_ = 0;
  Exposed last_;
  std::int64_t last_op_ = -1;                        // -1: none yet
  std::vector<std::array<Bytes, comm_kinds>> sent_;  // by stream
  std::vector<Exposed> exposed_by_;
  std::vector<Wait> waits_;
};

/// A turn of a schedule that goes round, on one rank (turns.hpp).
struct Turn {
  RankAccount from, to;       // as they were when its first op, and the first one behind it, began
  std::int64_t first_op = 0;  // position
  std::int64_t ops = 0;
  double begin = 0;
  double seconds = 0, host = 0;  // that it takes, and that the host takes to issue it
};

}  // namespace spp::sim
