// The executor: runs one rank's program over a real transport and real kernels, and returns the
// Timeline of what happened, as the simulator returns that of what it expects.
//
// Host ranks have one thread. Communication ops are posted as soon as their buffers and their
// stream are free and move on whenever the transport is polled: between the tiles of a kernel
// (Poll), and while there is nothing to compute. So streams overlap as far as the transport moves
// data by itself or in between. Kernels of all streams run one at a time, earliest in the program
// first.
//
// Waits. An op starts when the ops that it waits for (StoredOp::waits) and its stream are done. A
// rank that sees nothing happen for `timeout`, and hears of nobody who is at work
// (comm/deadlines.hpp), ends the run for everybody and says who waited for whom in which op.
#pragma once

#include "runtime/comm/transport.hpp"
#include "runtime/kernels/attention.hpp"
#include "runtime/memory.hpp"
#include "schedule/measure.hpp"
#include "schedule/timeline.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace spp::runtime {

struct ExecuteOptions {
  Seconds timeout{120};
  bool timeline = true;
  /// Ops, rising, before which a device waits until its host is ahead of it again, be it slow, in
  /// all runs but the first: what is timed after that holds nothing of the host. Only devices have
  /// hosts; ranks of the host run on.
  std::vector<std::int32_t> pauses = {};
};

struct Execution {
  Seconds elapsed{};                     // from the start to the end of this rank's last op
  Timeline timeline;                     // of this rank; options.timeline
  std::array<Bytes, comm_kinds> sent{};  // counted by the transport
};

/// Runs `program` (of `schedule`, for transport.rank()). BackendError if a rank fails or hangs, or
/// if other bytes were sent than the schedule says. All ranks should enter at about the same time
/// (Transport::barrier).
Execution execute(const Schedule& schedule, const StoredProgram& program, HostMemory& memory,
                  AttentionKernels& kernels, Transport& transport, const ExecuteOptions& options);

}  // namespace spp::runtime
