// The sequence dealt out to ranks by its work, for any mask: in small chunks, as MagiAttention's
// dispatch does (arXiv:2505.13211, section 4.2; its MinHeapDispatchAlg), or by documents, each
// whole on one rank, or on as few as can take it (FlexSP, arXiv:2412.01523, gives a sequence as
// many ranks as its length needs; here each of them holds as many tokens as the others).
//
// What has most allowed (query, key) pairs goes first, each to the rank with least work that has
// room for it: so all ranks hold as many tokens as others, and nearly as much work. What decides is
// the mask alone, so every rank finds the same by itself.
#pragma once

#include "schedule/problem.hpp"

#include <memory>
#include <vector>

namespace spp {

/// MagiAttention's default (MAGI_ATTENTION_MIN_CHUNKS_PER_RANK).
inline constexpr std::int64_t chunks_of_rank = 8;

/// Of so many ranks, which holds what: chunks in the order of the sequence. The sequence is a
/// multiple of chunks_of_rank * ranks.
std::vector<TokenSet> balanced_chunks(const Problem& problem, int ranks);

/// The same of documents. One that has more tokens than a rank, or more than its share of all
/// pairs, is dealt out in zigzag parts to as few ranks as have room and share for them; what finds
/// no room whole at last is cut. The sequence is a multiple of the ranks; its documents lie one
/// after the other.
std::vector<TokenSet> whole_documents(const Problem& problem, int ranks);

/// A sequence that is dealt out, and all that decides how.
struct Dealing {
  std::int64_t seq = 0;
  Mask mask;
  Layout layout = Layout::balanced;
  int ranks = 1;
  friend bool operator==(const Dealing&, const Dealing&) = default;
};

/// One of these two: of a layout by_work(). Whatever splits heads, phases or programs of ranks asks
/// for the same, so the last dealings are remembered.
std::shared_ptr<const std::vector<TokenSet>> dealt_by_work(const Problem& problem, Layout layout,
                                                           int ranks);

/// The chunks of any layout: chunk_tokens() of each, or what is dealt out by work.
std::vector<TokenSet> chunks_of(const Problem& problem, Layout layout, int chunks);

}  // namespace spp
