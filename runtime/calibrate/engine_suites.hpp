// The suites of a calibration on engines: GPUs, or (in tests) the host. What is timed is said in
// probes.hpp; the ops that do it are those of a schedule (probe_schedule.hpp), which an engine runs
// as it would run a plan's, with its executor, its communicator and its kernels.
//
// A sample is one execution of the schedule: of a probe, from the beginning of its first timed op
// to the end of the last, over their number. Of messages the slowest rank's counts, of kernels
// every working rank's. The first execution is thrown away.
#pragma once

#include "runtime/calibrate/probes.hpp"
#include "runtime/engine.hpp"

namespace spp::runtime {

struct EngineBench {
  Transport& transport;  // the control plane
  EngineSource& engines;
  Seconds budget{};  // of the suite
  Layout layout;
  int ranks_per_device = 1;  // neighbours
  bool split_devices = true;
  std::int64_t largest = 0;  // bytes of the largest message, and of a kernel's largest operand
  std::int64_t cold = 0;     // bytes that push everything else out of caches
  Problem shape;             // of kernels beside attention
};

/// "links", "collectives" and "elementwise" as in suites.hpp, but without `cpu`; kernels on all
/// ranks of a device (`active`), and on the first of each if they are several.
/// "attention": the blocks on all ranks, or where these take turns on a device, on one, which has
/// it for itself; `peak`: 128 wide heads, all keys seen, so large that more
/// makes it no faster or takes too long; of every type that the engines can do.
/// "layer": row-wise functions on one rank of each device, GEMMs on those of attention.
/// What has no room in memory is left out, the largest first; where the budget does not suffice for
/// all blocks, evenly spread ones are measured.
/// All ranks together, all get the samples.
std::vector<Series> engine_suite(const std::string& suite, const EngineBench& bench,
                                 const std::vector<AttentionBlock>& blocks);

}  // namespace spp::runtime
