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

/// Stops at a buffer whose tensor nobody gives or leaves in its role, or whose elements are too
/// narrow for it.
void check_buffers(Ledger& ledger, std::span<const Home> ranks);

/// Fills the inputs of a rank; they are complete.
void load_inputs(Ledger& ledger, const Home& home);

/// Forward: all ranks together hold every cell of q, k and v once; with a graph, what it takes from
/// outside. Nobody is given what is to be computed.
void check_inputs(Ledger& ledger, Phase phase, std::span<const Home> ranks);

/// Every output buffer holds its tile, complete, each cell once; all ranks together hold every cell
/// of out (forward) or d_q, d_k, d_v (backward) once, and of lse, if there is any, at least once;
/// with a graph, of the values that nothing reads (forward), or of the gradients of its inputs and
/// parameters (backward).
void check_outputs(Ledger& ledger, Phase phase, std::span<const Home> ranks);

}  // namespace spp
