// Probes as a schedule: its ops are what is to be timed, so that an engine runs and times them as
// it does those of a plan. Kernels are on stream 0, messages on stream 1. On every rank, probe by
// probe, one after the other:
//
//   meet      if somebody is quiet meanwhile: all begin when the last has ended what was before
//   prepare   the operands, several copies of them where all fit into a cache
//   once      untimed: whatever is done at the first use of a shape
//   flush     a few fills of memory that is larger than caches: operands are cold
//   meet      those who share a device; messages meet by themselves, in one more untimed op. Before
//             its last op a device waits for its host (ExecuteOptions::pauses), which is ahead of
//             it at the start of a plan, too
//   timed     `times` ops, on one copy after the other
#pragma once

#include "runtime/calibrate/probes.hpp"
#include "runtime/memory.hpp"
#include "schedule/storage.hpp"

#include <span>
#include <vector>

namespace spp::runtime {

struct ProbeSetting {
  Problem shape;  // of kernels beside attention, and the type of attention
  int ranks = 1;
  int ranks_per_device = 1;  // neighbours
  std::int64_t cold = 0;     // bytes that push everything else out of caches
};

/// Ops of a probe in a rank's program; `times` 0: the rank is quiet.
struct TimedOps {
  std::int32_t first = 0;
  int times = 0;
};

/// An input, and the numbers in it: `middle` plus or minus `reach`.
struct ProbeInput {
  BufferId buffer;
  float middle = 0;
  float reach = 1;
};

struct ProbeSchedule {
  Schedule schedule;
  std::vector<std::vector<TimedOps>> timed;     // by rank and probe
  std::vector<std::vector<ProbeInput>> inputs;  // by rank
};

/// Blocks of attention must have one batch, head_dim, value_dim, mask and dtype.
ProbeSchedule schedule_of(std::span<const Probe> probes, const ProbeSetting& setting);

/// Memory that a probe takes in a schedule, on a rank that works.
struct ProbeMemory {
  Bytes inputs;   // for as long as the engine lives, and on the host
  Bytes scratch;  // while it runs
};
ProbeMemory memory_of(const Probe& probe, const ProbeSetting& setting);

/// That a block is part of.
Problem problem_of(const AttentionBlock& block);
/// How often a kernel that computes so much is run in a sample.
int times_of(FlopCount flops);

}  // namespace spp::runtime
