// How long ranks wait for each other: one policy for all waits of a run, on every transport. It
// comes from --timeout.
//
// A time-out is silence: nothing happens for so long. Something happens when a message of this rank
// moves, when others come to where it waits, and when any rank of the run says that it is at work.
// A rank that computes says so every eighth of the time-out (Transport::working(), called between
// the tiles of kernels and of checks): a long kernel or check is waited for as long as it takes. A
// rank that is stopped, dead, or waits itself says nothing: where all wait, all are silent. So does
// one whose GPU runs a kernel, which cannot be looked into: none may take as long as the time-out.
#pragma once

#include "base/units.hpp"

#include <algorithm>

namespace spp::runtime {

struct Deadlines {
  Seconds timeout{120};

  /// Between two signs that a rank is at work. Between two calls of working() there may be the
  /// rest of the time-out.
  [[nodiscard]] Seconds between_signs() const { return timeout / 8; }
  /// Of silence. Where rank 0 knows who has not come (mpi, tcp) it speaks first.
  [[nodiscard]] Seconds silence_of(int rank) const { return rank == 0 ? timeout : 1.25 * timeout; }
  /// For what takes no time between processes that live: an address to connect to, the greeting of
  /// somebody who has connected, the last words of a run.
  [[nodiscard]] Seconds reply() const { return std::min(timeout / 4, Seconds(5)); }
};

}  // namespace spp::runtime
