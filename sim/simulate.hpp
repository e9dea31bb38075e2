// The simulator: runs a schedule over a modelled cluster and returns when everything happened.
//
// Semantics (DESIGN in docs/cost-model.md)
// - An op starts when the buffers it uses are free in the sense of schedule.hpp, its stream is free
//   and the host has issued it: ops one after the other in program order, each at its host time; at
//   most `lookahead` ops (rank_window.hpp) are issued and have not started. Where the host waits
//   for what an op brings (HostTime::stand), nothing of its rank begins before it has it.
// - A kernel occupies its rank's device for the time its cost model says, longer while
//   communication kernels of the rank hold SMs: the device's capacity is 1 less their share.
//   Where kernels go before communication (beside_kernels), messages between nodes move at that
//   part of their speed while a longer kernel of one of their ranks runs.
// - A point-to-point message starts when both sides have started their op; a collective when all
//   members have. It pays its latency, then its flows run at max-min fair rates (flow_network.hpp).
// - Between CPU ranks (TransportSpec::cpu_share) a message takes time of its two ranks' cores while
//   its bytes move, and only then: nothing while it waits for its partner or its latency. Kernels
//   and messages of a rank share its core, ranks that share cores (MachineSpec::host) those cores,
//   max-min fairly in seconds of cores. An exchange with oneself is a kernel, there.
//   An exchange ends when its own messages have ended, a collective when all of its flows have.
// - Ranks that share a GPU (MachineSpec::device) share its memory: kernels around attention and
//   messages, if they touch more than the rank's part of the L2 cache, take bytes of it beside all
//   else, max-min fairly. Attention works from caches and takes none.
// - Deterministic: events of one instant are handled in order of their creation.
#pragma once

#include "machine/stack.hpp"
#include "schedule/breakdown.hpp"
#include "schedule/timeline.hpp"
#include "sim/folding.hpp"

#include <array>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace spp::sim {

/// Time of a kernel op alone on its device.
using KernelTime = std::function<Seconds(const Kernel&, const Shapes&)>;

/// What an op takes of its rank's host.
struct HostTime {
  Seconds issue{};
  Seconds stand{};  // from its end on, in which no op of the rank begins
};
using OpHostTime = std::function<HostTime(const Op&, const Shapes&)>;

struct SimulationCosts {
  KernelTime kernel;
  HostTimes host{};      // to issue an op, by OpKind
  OpHostTime host_of{};  // instead of `host`, where kinds do not tell; empty: they do
  Seconds call{};        // host time before the first op
  /// Speed of point-to-point messages between nodes once a kernel of one of their ranks has run
  /// for `beside_after`, over their speed alone (StackSpec::network_beside_kernels).
  double beside_kernels = 1;
  Seconds beside_after{};
  Bandwidth local_copy{};  // an exchange of a rank with itself; bytes are read and written
  std::array<double, 3>
      sm_share{};  // of the device, taken by communication in a scope (self, intra, inter)
};

/// Told now and then what the simulation took so far (Simulation::work). False: give up.
using OpsWatch = std::function<bool(double work)>;

struct SimulationOptions {
  bool fold = true;                  // simulate one rank of each orbit
  const Folding* folding = nullptr;  // the orbits, if the caller has them already
  bool fold_turns = true;  // simulate few of a schedule's turns (turns.hpp); a timeline has all
  Seconds stop_after{std::numeric_limits<double>::infinity()};  // give up beyond this time
  bool timeline = false;      // record every op of the simulated ranks
  bool steps = false;         // record each wait of the critical rank
  double rate_staleness = 0;  // see flow_network.hpp; 0 is exact
  OpsWatch watch{};
};

/// A kernel that waited for communication, without what its peers still computed.
struct Wait {
  std::int64_t op = 0;  // position of the op that waited
  std::int64_t waited_for = 0;
  CommKind kind = CommKind::send_recv;
  StreamId stream;
  Seconds seconds{};
};

/// The op class that cost most exposed time, with the slowest of its messages.
struct Bottleneck {
  CommKind kind = CommKind::send_recv;
  StreamId stream;
  Scope scope = Scope::self;
  Seconds exposed{};
  Rank from, to;     // of the slowest message
  Bandwidth rate{};  // that it reached
  std::string algorithm;
};

struct Simulation {
  bool complete = true;  // false: stopped by stop_after or watch; nothing below means anything
  Seconds makespan{};
  Rank critical;
  Breakdown breakdown;  // as breakdown_of the timeline, which need not be kept for it
  Seconds issue{};      // that the critical rank's host takes for all ops
  LinkSeconds links;    // that all transfers take
  std::array<Bytes, comm_kinds> sent{};                // by the rank that sends most
  std::vector<std::array<Bytes, comm_kinds>> sent_on;  // the same, by stream
  std::vector<Bottleneck> bottlenecks;                 // by falling exposed time
  std::vector<Wait> waits;                             // options.steps
  std::vector<Seconds> rank_end;                       // of the representatives
  std::vector<Rank> representatives;
  int folded = 1;                      // ranks that one simulated rank stands for
  int turns_left_out = 0;              // of a schedule that goes round: like those simulated
  std::int64_t ops = 0, messages = 0;  // simulated; times `folded` is what they stand for
  /// What it took, in ops: these, messages, and what rates took beyond one for each of them.
  /// Without the last demand.hpp knows it before.
  double work = 0;
  Timeline timeline;  // options.timeline
};

/// Runs `schedule`. It must be proven (coverage); a schedule that deadlocks is an InternalError.
Simulation simulate(const Schedule& schedule, const Placement& placement,
                    const SimulationCosts& costs, const SimulationOptions& options = {});

}  // namespace spp::sim
