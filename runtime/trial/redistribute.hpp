// Moves a tensor from the tiles in which ranks hold it to the tiles in which they need it. Set-up
// of runs, not part of any schedule: a backward wants the forward's output where its kernels read
// it.
#pragma once

#include "runtime/comm/transport.hpp"
#include "runtime/kernels/rows.hpp"
#include "schedule/problem.hpp"

#include <span>

namespace spp::runtime {

struct Tile {
  TokenSet tokens;
  HeadRange heads;
};

/// `held` and `wanted` by rank; `from` and `to` are this rank's rows of them. Where several ranks
/// hold the same, the own copy or that of the lowest rank is taken. All ranks call it; blocks.
/// InternalError if nobody holds what is wanted.
void redistribute(Transport& transport, std::span<const Tile> held, std::span<const Tile> wanted,
                  const Rows& from, const Rows& to);

}  // namespace spp::runtime
