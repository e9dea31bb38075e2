// Memory of one rank by liveness: how much its buffers need at once, and where in one allocation
// (the arena) each scratch buffer lies.
//
// Liveness. Inputs and outputs belong to the caller and count throughout. A scratch buffer lives
// from the first to the last op that touches it, in program order; a buffer that rotates through a
// loop lives as long as the loop.
//
// Placement. Greedy by size (Pisarchyk & Lee, Efficient Memory Management for Deep Neural Net
// Inference, arXiv:2001.03288, algorithm 3): largest buffer first, each at the lowest 256-byte
// aligned offset that is free of the placed buffers whose lifetimes meet its own. (The paper takes
// the smallest gap instead of the lowest; ties go to the lower BufferId, so results are
// repeatable.)
//
// Streams. Lifetimes are in program order, but ops of different streams overlap in time: an op on
// "ring" may fill a buffer while an *earlier* op on "compute" still reads another one that held the
// same bytes before. Sharing bytes therefore adds dependencies: an op that touches a scratch buffer
// for the first time waits for every op that touched one of its `predecessors`, the buffers that
// held any of its bytes before. Whoever runs ops (runtime, simulator) must add them. They point
// from later to earlier ops of one rank, so a schedule that ends when every rank runs its ops one
// after the other still ends with them.
#pragma once

#include "base/units.hpp"
#include "schedule/schedule.hpp"

#include <vector>

namespace spp {

struct Arena {
  /// Offset of a buffer that is not in the arena: an input, an output, scratch that no op touches.
  static constexpr Bytes outside{-1};

  std::vector<Bytes> offsets;  // by BufferId
  /// By BufferId: scratch buffers that held some of its bytes earlier, in order of BufferId.
  std::vector<std::vector<BufferId>> predecessors;
  Bytes size;          // of the arena: scratch with its gaps
  Bytes peak_live;     // most bytes alive at one op: inputs + outputs + scratch_peak
  Bytes inputs;        // of the caller, alive throughout
  Bytes outputs;       // of the caller, alive throughout
  Bytes scratch_peak;  // most bytes of scratch alive at one op; <= size
};

constexpr Bytes arena_alignment{256};

/// Walks the program once, one iteration at a time; O(buffers^2) after that.
Arena plan_arena(const Program& program, const Problem& problem);

}  // namespace spp
