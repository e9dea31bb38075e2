// What a schedule will ask of its executors, known before one of them begins: programs are loops,
// so a few trips of each loop on a few ranks tell how many ops there are, without walking them.
//
// Exact for schedules of at most `sampled_ranks` ranks, not counting those that only lie elsewhere
// on a symmetric axis, and loops of at most `sampled_trips` trips; else within a third of the
// truth, which a test holds for all strategies.
#pragma once

#include "base/units.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>

namespace spp {

/// Of all ranks together. Numbers of ops are not small integers: doubles.
struct Demand {
  int ranks = 1;
  double ops = 0;
  double messages = 0;  // from rank to rank; n(n-1) in a collective of n
  double buffers = 0;
  int most_at_once = 1;  // messages of a rank in one collective

  [[nodiscard]] double ops_of_rank() const { return ops / ranks; }
};

constexpr int sampled_ranks = 9;
constexpr int sampled_trips = 17;

/// A fraction of a millisecond, however large the schedule is.
Demand demand_of(const Schedule& schedule);

/// Token atoms of a proof's grid (atoms.hpp).
double token_atoms_of(const Schedule& schedule);

/// Memory that a proof takes (coverage.hpp): the table of meetings, and the pieces in all buffers.
Bytes proof_memory(const Schedule& schedule);

}  // namespace spp
