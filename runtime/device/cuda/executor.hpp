// The executor of a device: the same program, memory layout and Timeline as runtime/execute.hpp, on
// CUDA streams. Every stream of the schedule that has ops is a CUDA stream; the host walks the
// program in order and only enqueues.
//
//   start               behind a gate (gate.hpp), which the host opens when it has enqueued the
//                       program, or so much of it that it stays ahead; then all ranks meet on the
//                       device, and the clock starts: it counts what devices do, not what hosts do;
//                       and again at every pause (ExecuteOptions::pauses) but in the first run, on
//                       the next op's stream
//   StoredOp::waits     cudaStreamWaitEvent for the awaited op's end, recorded on its own stream
//   times               timed events before and after each op, against one at the start, at which
//                       all streams of the rank begin; an event costs its stream about a
//                       microsecond (cuda::event_cost() measures it)
//   preparing           memory, compiled plans and loaded modules of all ops, before any run
//   time-outs           no op ended for `timeout`, and nobody was heard to be at work: BackendError
//                       that names the ops that have not, and who takes part in them
#pragma once

#include "runtime/device/cuda/attention.hpp"
#include "runtime/device/cuda/communicator.hpp"
#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/cuda/device_memory.hpp"
#include "runtime/device/cuda/gate.hpp"
#include "runtime/device/cuda/rank_streams.hpp"
#include "runtime/execute.hpp"
#include "runtime/ops.hpp"

#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace spp::runtime::cuda {

/// All of it must outlive the executor.
struct ExecutorParts {
  const Schedule& schedule;
  const StoredProgram& program;
  const DeviceMemory& memory;
  const DeviceAttentionBackend& attention;
  DeviceCommunicator& communicator;
  Transport& transport;  // asked while waiting whether the run was aborted
  RankStreams& streams;
  const ExecuteOptions& options;
  int ranks_of_gpu = 1;  // whose streams go through its hardware queues
};

/// One program on the calling thread's device. Events are made once, for all runs.
class DeviceExecutor {
 public:
  explicit DeviceExecutor(const ExecutorParts& parts);
  DeviceExecutor(const DeviceExecutor&) = delete;
  DeviceExecutor& operator=(const DeviceExecutor&) = delete;
  ~DeviceExecutor();

  /// Once; BackendError if a rank fails or hangs, or other bytes were sent than the schedule says.
  Execution run();
  /// For copies before and after.
  [[nodiscard]] const Stream& stream() const { return parts_.streams.compute(); }
  /// Of all attention kernels (DeviceAttention::made_for).
  [[nodiscard]] std::set<int> made_for() const;
  /// Of any of them (DeviceAttention::refusal).
  [[nodiscard]] std::string refusal() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct OpEvents {
    std::optional<Event> begin, end;
  };

  void prepare();
  /// Device memory that an op needs beside its buffers.
  void make_room(std::size_t index, const OpPlace& place, cudaStream_t stream);
  void end_all() noexcept;
  /// The kernels of a stream; made at the first call, in prepare().
  DeviceAttention& attention(StreamId id);
  void make_events();
  void enqueue_all(Execution& result);
  [[nodiscard]] std::size_t most_behind_gate() const;
  void enqueue(std::int32_t index, Execution& result);
  void wait_for_all();
  [[nodiscard]] bool look_for_ended();
  [[nodiscard]] std::string unfinished() const;
  void read_times(Execution& result) const;

  [[nodiscard]] OpOnStream start() const;
  [[nodiscard]] const StoredOp& op(std::int32_t index) const {
    return parts_.program.ops[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] OpEvents& events(std::int32_t index) {
    return events_[static_cast<std::size_t>(index)];
  }

  ExecutorParts parts_;
  Shapes shapes_;
  std::vector<const Stream*> streams_;                       // by StreamId; null: unused
  std::vector<std::unique_ptr<DeviceAttention>> attention_;  // by StreamId; null: none there
  std::vector<DeviceBuffer> rooms_;                          // by op
  std::vector<OpEvents> events_;                             // by op
  std::vector<std::vector<std::int32_t>> ends_;  // by StreamId: ops with an end event, in order
  std::vector<std::size_t> ended_;               // by StreamId: how many of them have happened
  Gate gate_;
  bool ran_ = false;
  Event start_{EventUse::time};
};

}  // namespace spp::runtime::cuda
