// What must hold before the first and after the last op of a schedule.
#pragma once

#include "schedule/effects.hpp"

namespace spp {

/// One rank outside its program.
struct Home {
  Rank rank;
  std::span<const Buffer> buffers;
  std::span<Contents> contents;
};

/// Fills the inputs of a rank; they are complete.
void load_inputs(Ledger& ledger, const Home& home);

/// Forward: all ranks together hold every cell of q, k and v once.
void check_inputs(Ledger& ledger, Phase phase, std::span<const Home> ranks);

/// Every output buffer holds its tile, complete, each cell once; all ranks together hold every cell
/// of out (forward) or d_q, d_k, d_v (backward) once, and of lse, if there is any, at least once.
void check_outputs(Ledger& ledger, Phase phase, std::span<const Home> ranks);

}  // namespace spp
