// Chunks of the sequence dealt out to ranks by their work: MagiAttention's dispatch
// (arXiv:2505.13211, section 4.2; its MinHeapDispatchAlg), for any mask.
//
// The sequence is cut into chunks_of_rank chunks for every rank. Those with most allowed (query,
// key) pairs go first, each to the rank with least work that has room for another: so all ranks
// hold as many tokens as others, and nearly as much work. What decides is the mask alone, so every
// rank finds the same by itself.
#pragma once

#include "schedule/problem.hpp"

#include <vector>

namespace spp {

/// MagiAttention's default (MAGI_ATTENTION_MIN_CHUNKS_PER_RANK).
inline constexpr std::int64_t chunks_of_rank = 8;

/// Of so many ranks, which holds what: chunks in the order of the sequence. The sequence is a
/// multiple of chunks_of_rank * ranks.
std::vector<TokenSet> balanced_chunks(const Problem& problem, int ranks);

/// The chunks of any layout: chunk_tokens() of each, or the balanced ones.
std::vector<TokenSet> chunks_of(const Problem& problem, Layout layout, int chunks);

}  // namespace spp
