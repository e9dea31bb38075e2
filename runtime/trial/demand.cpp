#include "runtime/trial/demand.hpp"

#include "schedule/demand.hpp"

#include <algorithm>
#include <array>

namespace spp::runtime {
namespace {

/// The fuller one of the first and the last rank's buffers.
double buffers_of_rank(const Schedule& schedule, bool on_device) {
  double most = 0;
  for (const int r : {0, schedule.mesh.size() - 1}) {
    const Arena arena = plan_arena(schedule.program(Rank(r)));
    const Bytes bytes = on_device ? arena.inputs + arena.outputs : arena.total();
    most = std::max(most, bytes.as_double());
  }
  return most;
}

double memory_of(const Schedule& schedule, const TrialRequest& request, int ranks_here) {
  // Every process stores the programs of all ranks, with rows, moves and waits of every op, and
  // where each member's part of a collective lies, on both sides.
  constexpr double op_bytes = sizeof(StoredOp) + 400;
  constexpr double message_bytes = 2 * sizeof(CellSpan);
  const Demand all = demand_of(schedule);
  const double programs = all.ops * op_bytes + all.messages * message_bytes;
  // All iterations keep what they timed until the one in the middle is known.
  const double runs = static_cast<double>(request.iterations) + 1;
  const double timelines = all.ops_of_rank() * ranks_here * runs * sizeof(TimelineEvent);
  const bool on_device = request.engines != nullptr;
  return programs + timelines + ranks_here * buffers_of_rank(schedule, on_device);
}

}  // namespace

Bytes trial_memory(const TrialRequest& request, int ranks_here) {
  constexpr double thread_bytes = 400e3;  // a stack, tiles of kernels
  double bytes = thread_bytes * ranks_here;
  double proof = 0;  // is gone before programs are stored
  for (const std::optional<Schedule>* schedule : {&request.forward, &request.backward}) {
    if (*schedule) {
      proof = std::max(proof, proof_memory(**schedule).as_double());
      bytes += memory_of(**schedule, request, ranks_here);
    }
  }
  constexpr double most = 9e18;  // a Bytes holds it
  return Bytes(static_cast<std::int64_t>(std::min(most, std::max(bytes, proof))));
}

}  // namespace spp::runtime
