// Worlds made by hand, for tests and benchmarks of the simulator: machines whose every message
// costs exactly latency + bytes / rate, and the few schedules that SimGrid programs are written as,
// too.
#pragma once

#include "schedule/builder.hpp"
#include "sim/simulate.hpp"

#include <functional>
#include <vector>

namespace spp::test {

/// One segment a kind, fraction 1: rates are what links have, and nothing else is lost.
struct PlainMachine {
  int gpus_per_node = 8;
  Bandwidth port{450e9};  // of a GPU, each way
  Seconds latency{};      // of a message inside a node
  Seconds hop{};          // of a ring step of a collective inside a node
  Bandwidth nic{25e9};
  int gpus_per_nic = 1;
  Seconds nic_latency{};  // of a message between nodes
  Seconds nic_hop{};
  int nodes_per_leaf = 0;  // 0: non-blocking
  double oversubscription = 1;
  int sockets = 0;  // above 0: a PCIe machine with that many host bridges
  Bandwidth bridge{}, socket_link{};
  double cpu_share = 0;  // above 0: ranks are CPU cores, and messages inside a node take this
  double network_cpu_share = 0;  // across nodes; as cpu_share if 0
  int cores = 0;                 // above 0: that ranks share
  int nodes_on_cores = 1;        // whose ranks do; 0: all
  int ranks_per_device = 0;      // above 0: that share a GPU
  bool split = true;             // its SMs; else ranks use them in turn
  Bandwidth device_memory{};     // of the GPU
  Bytes l2{};
};
MachineSpec machine(const PlainMachine& plain);

/// 2 nodes of 4 GPUs with 450 GB/s ports and one 25 GB/s NIC a node: the contention oracle's.
PlainMachine oracle_machine();

/// A machine per rank with a NIC as its only port, on one switch.
PlainMachine star_machine(Bandwidth port, Seconds latency);

/// Blocks of 4,000 bytes times `tokens` (one head of 1000, fp32), so that sizes are round numbers.
Problem round_problem(std::int64_t tokens, int heads = 1);

/// `steps` steps of a ring of all ranks. In each a rank sends the block that it holds to the right,
/// receives one from the left and, if `compute`, attends to the one that it holds; the next step
/// starts when all three have ended.
struct RingOfSteps {
  int ranks = 2;
  std::int64_t tokens = 1;  // of a block, as in round_problem
  int steps = 1;
  bool compute = true;
  std::vector<int> order;  // ranks around the ring; empty: 0, 1, …
};
Schedule ring_of_steps(const RingOfSteps& ring);

/// One all-to-all of all ranks: everyone sends `tokens` as in round_problem to everyone else.
Schedule one_all_to_all(int ranks, std::int64_t tokens);

/// A schedule of `ranks` ranks (a ring) whose programs are written by hand.
using WriteProgram = std::function<void(ProgramBuilder&)>;
Schedule hand_made(int ranks, const Problem& problem, WriteProgram write);
inline constexpr StreamId compute_stream{0};
inline constexpr StreamId first_stream{1};
inline constexpr StreamId second_stream{2};

/// Every kernel takes as long.
sim::SimulationCosts every_kernel(Seconds seconds);
/// A kernel's time by its rank.
sim::SimulationCosts by_rank(std::vector<Seconds> seconds);

}  // namespace spp::test
