// Memory of one rank by liveness: how much its buffers need at once, and where in one allocation
// (the arena) each scratch buffer lies.
//
// Liveness. Inputs and outputs belong to the caller and count throughout. A scratch buffer lives
// from the first to the last op that touches it, in program order; a buffer that rotates through a
// loop lives as long as the loop.
//
// Placement. Greedy by size (Pisarchyk & Lee, Efficient Memory Management for Deep Neural Net
// Inference, arXiv:2001.03288, algorithm 3): largest buffer first, each at the lowest 256-byte
// aligned offset that is free of the placed buffers that it may not share bytes with. (The paper
// takes the smallest gap instead of the lowest; ties go to the lower BufferId, so results are
// repeatable.)
//
// Streams. Lifetimes are in program order, but ops of different streams overlap in time: an op on
// "ring" may fill a buffer while an *earlier* op on "compute" still reads another one. So two
// buffers share bytes only where the order of streams and buffers (docs/schedule.md) already has
// every op on one end before the first op on the other begins. Memory never makes an op wait, and
// what is simulated without looking at memory is what runs. Overlap has its price: `size` may be
// above `scratch_peak` by more than gaps.
#pragma once

#include "base/progress.hpp"
#include "base/units.hpp"
#include "schedule/schedule.hpp"

#include <vector>

namespace spp {

struct Arena {
  /// Offset of a buffer that is not in the arena: an input, an output, scratch that no op touches.
  static constexpr Bytes outside{-1};

  std::vector<Bytes> offsets;  // by BufferId
  Bytes size;                  // of the arena
  Bytes peak_live;             // most bytes alive at one op: inputs + outputs + scratch_peak
  Bytes inputs;                // of the caller, alive throughout
  Bytes outputs;               // of the caller, alive throughout
  Bytes scratch_peak;          // most bytes of scratch alive at one op; <= size
  /// What a program takes.
  [[nodiscard]] Bytes total() const { return inputs + outputs + size; }
};

constexpr Bytes arena_alignment{256};
/// So much or more, a multiple of it.
constexpr Bytes arena_aligned(Bytes size) {
  const std::int64_t unit = arena_alignment.value();
  return Bytes((size.value() + unit - 1) / unit * unit);
}

/// Walks the program once, one iteration at a time; then looks for each buffer at those that live
/// beside it, and at few others.
Arena plan_arena(const Program& program);

/// What the fullest rank's program takes. Of ranks whose buffers live alike one is planned. `watch`
/// is told ranks, and not heard.
Bytes most_memory(const Schedule& schedule, const Watch& watch = {});

}  // namespace spp
