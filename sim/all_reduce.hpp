// All-reduce as NCCL runs it: the time of each algorithm, and the fastest of them.
//
// n ranks on N nodes, p = n/N a node; S bytes in every rank's buffer (the size of nccl-tests).
// Constants of links are the transports' (`all_reduce` in topologies/transports); those of NCCL are
// in all_reduce.cpp. NCCL's own estimate (src/graph/tuning.cc) has the same terms; it takes the
// algorithm whose estimate is least, sometimes a slow one, which is not modelled: published logs
// have bumps (64 KiB to 1 MiB on two Slingshot nodes) that a time which never falls cannot follow.
//
// Inside a node
//   ring       latency + 2 (n-1) hop + s / rate, s = 2 (n-1)/n S, by segments of s (LL, LL128,
//              Simple); the rank's own part, S/n, is copied beside what is sent (own_copy)
//   nvls       latency + (fill + S) / switch rate: the switches add; the pipeline fills with one
//              chunk for each rank. More than four ranks: up to four run at the ring's rate on
//              H100, H200 and B200.
// Across nodes
//   tree       latency + 2 (p-1) hop + log2(N) stage(S) + S / rate; two trees share the NICs, so a
//              node moves S through them if N = 2, else twice that. stage(S) is the network's
//              latency for that size, up and down; from 1 MiB on at least the Simple protocol's and
//              the time in which the node's NICs fill the pipeline.
//   ring       latency + 2 (N-1) (hop between nodes + (p-1) hop) + s / rate. NCCL's steps fill
//              their buffers from S/n = 4 MiB on; a smaller S is charged as that.
//   nvls tree  latency + log2(N) stage latency + (fill (1 + c log2(N)) + S) / rate, in place of
//              rings (and, from 64 MiB on, of trees) where the switches reduce.
//   In-network reduction between nodes (SHARP in InfiniBand switches) is not modelled.
// A transport without constants: reduce-scatter and all-gather in one launch.
#pragma once

#include "base/units.hpp"
#include "sim/lowering.hpp"

#include <string_view>

namespace spp::sim {

struct AllReduceOptions {
  bool nvls = true;  // NCCL_NVLS_ENABLE; without effect where the links have no such switches
};

struct AllReduceCost {
  Seconds time{};
  bool twice = false;          // what a rank has goes round twice, as in a ring; else about once
  std::string_view algorithm;  // "ring", "tree", "nvls", "nvls tree", "scatter, gather"
};

/// Time of an all-reduce over a group with the network for itself; members are taken to lie equally
/// on its nodes. `bytes`: buffer of one rank. Nothing to do takes no time. It never falls as
/// `bytes` grow. Against 900 published nccl-tests results on 2 to 2048 ranks the median error is 1
/// to 5 % a table, 12 % on one.
AllReduceCost all_reduce_cost(Bytes bytes, const RankGroup& group, const Placement& placement,
                              const AllReduceOptions& options = {});

}  // namespace spp::sim
