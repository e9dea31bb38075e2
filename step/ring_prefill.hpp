// Attention of a prefill in a ring of context-parallel ranks, behind keys that are cached already,
// or with queries that travel instead of keys (pass-Q): Yang et al., arXiv:2411.01783, section 3.
//
// No schedule: an estimate in closed form. A schedule has as many keys as queries, and its
// strategies pass keys. Nothing proves it, and the runtime cannot execute it.
//
// Each of R ranks has n = N/R new tokens, balanced (zigzag), and c = C/R cached ones.
//   own step  n queries behind c keys, under the mask
//   a step    n queries against c + n/2 keys: of the new ones half are visible on average
//   pass-KV   R-1 hops of K and V of c + n tokens, each behind the step in front of it
//   pass-Q    R-1 hops of n queries, likewise; then every rank sends each other one its part of the
//             output and LSE back: an all-to-all that nothing hides
//   merge     R parts, in 16 bits, into an fp32 sum
#pragma once

#include "machine/kernel_cost.hpp"
#include "machine/stack.hpp"
#include "schedule/problem.hpp"
#include "sim/cluster.hpp"
#include "step/passes.hpp"

#include <cstdint>

namespace spp {

struct RingPrefill {
  std::int64_t cached = 0;  // tokens in front of the sequence, over all ranks
  bool pass_queries = false;
};

/// Of one rank; `problem` is that of one tensor rank's heads, its sequence the new tokens;
/// under a window one rank alone; `cluster` has the ring's ranks in order. `stack`: what becomes of
/// messages beside its kernels.
AttentionCost ring_prefill(const RingPrefill& work, const Problem& problem, int ring,
                           const KernelCost& kernels, const sim::Cluster& cluster,
                           const StackSpec* stack = nullptr);

}  // namespace spp
