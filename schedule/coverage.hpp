// The proof of a schedule: runs it symbolically over all ranks and shows that these fulfil its
// contract.
//
// What is proven: every allowed (query, key, head) is computed exactly once over all ranks; partial
// results are merged and summed without overlap and arrive, complete, in the outputs of the ranks
// that declare them; a backward kernel sees global statistics only; every message has its receiver
// of the same size; nobody waits for ever.
//
// Order. Ranks are walked in *program order*, one op after the other, although executors may
// overlap streams. That is stricter on purpose: communicators that share a device (NCCL) want the
// same order of calls everywhere, so a schedule that only terminates when its streams overtake each
// other is refused. An exchange waits until both its partners are in the matching exchange (sends
// and receives of one op are posted together); a collective waits for all members of its group.
//
// Cost: O(atom pairs x head atoms) memory, see meetings.hpp (demand.hpp knows it beforehand), and
// time proportional to the pieces moved. Not tracked: the order of tokens inside a buffer
// (storage.hpp), and the numbers.
#pragma once

#include "base/progress.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <string>

namespace spp {

struct Proof {
  bool complete = true;  // false: given up, nothing below means anything
  bool proven = false;
  /// One readable paragraph that names ranks, ops, streams, buffers, tokens and heads; empty if
  /// proven. Ranges are begin:count.
  std::string counter_example;

  // How much was looked at (up to the counter-example).
  std::int64_t pair_blocks = 0;  // (query atom, key atom, head atom) computed
  std::int64_t ops = 0;          // of all ranks
  std::int64_t messages = 0;     // between different ranks; n(n-1) in a collective of n
};

/// Proves that a schedule fulfils its contract, or refutes it with a counter-example. `watch` is
/// told ops of all ranks.
Proof prove(const Schedule& schedule, const Watch& watch = {});

}  // namespace spp
