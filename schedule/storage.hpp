// Where everything lies: a schedule made executable.
//
// The proof (coverage.hpp) knows what a buffer holds, not in which order. Whoever moves real bytes
// must: `store` walks all ranks' programs once more, follows the order of tokens and heads through
// every op, and gives each op of a rank the rows, moves and parts that it touches, and the ops that
// it waits for. An order that does not fit (rows that do not lie together, members that bring other
// tokens than their peers expect, heads that a buffer has no columns for) is an InternalError, or
// what `misplaced` says: so this proves packs, unpacks and reorders, which coverage leaves open.
//
// Storage (docs/schedule.md). A buffer is a sequence of pieces, each dense
// [rows, batch, heads, width], a row a token. Nearly all buffers are one piece; around the
// all-to-all of Ulysses there is one piece for every peer's heads. Slots of tokens lie by group of
// experts, in each of these by slot: a piece for each slot, all cells of which are rows; what came
// from several ranks, rank by rank. Positions count cells:
// one cell is `width` elements of one (row, batch, head).
//
// A kernel that writes a tile writes it where its tokens lie already, behind what is there if it is
// new and there is room, else at the beginning.
#pragma once

#include "base/progress.hpp"
#include "schedule/arena.hpp"
#include "schedule/schedule.hpp"
#include "schedule/token_list.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace spp {

/// Tokens and heads of a dense piece of a buffer.
struct StoredPiece {
  TokenList tokens;
  HeadRange heads;
  friend bool operator==(const StoredPiece&, const StoredPiece&) = default;
};
using StoredContent = std::vector<StoredPiece>;

/// Rows of a buffer of one piece, all heads.
struct RowSpan {
  BufferId buffer;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Consecutive cells of a buffer.
struct CellSpan {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// [rows, batch, heads] cells of a piece: the cell of (row, b, h) is
/// begin + (row * row_step * batch + b) * row_heads + h.
struct CellBox {
  std::int64_t begin = 0;
  int row_heads = 1;
  std::int64_t row_step = 1;
};
struct CellMove {
  CellBox from, to;
  std::int64_t rows = 0;
  int heads = 0;
  bool add = false;  // to what is there (fold)
};

/// Rows of a buffer of slots, one after the other, that one expert gets.
struct ExpertRun {
  int expert = 0;  // of those that the op multiplies by
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

struct StoredOp {
  Op op;
  std::vector<RowSpan> rows;        // kernels other than copies: of every buffer they touch
  std::vector<CellMove> moves;      // copies, in order
  std::vector<CellSpan> sends;      // collectives: of `from`, by group index
  std::vector<CellSpan> receives;   // collectives: of `to`, by group index (reduce_scatter: one)
  std::vector<std::int32_t> waits;  // earlier ops of this rank on other streams
  std::vector<ExpertRun> runs{};    // products of experts: of `a`, or of `a` and `b`, in order
  /// Rows of one of the op's buffers.
  [[nodiscard]] const RowSpan& rows_of(BufferId id) const;
};

/// The program of one rank.
struct StoredProgram {
  Rank rank;
  std::vector<Buffer> buffers;
  Arena arena;
  std::vector<StoredOp> ops;            // in program order
  std::vector<StoredContent> contents;  // of each buffer, at the end
};

/// Programs of all ranks. The schedule must be proven. O(ranks * ops).
std::vector<StoredProgram> store(const Schedule& schedule);

/// "" if a proven schedule can be stored; else the first op that cannot, and why. `watch` is told
/// ops of all ranks, and not heard.
std::string misplaced(const Schedule& schedule, const Watch& watch = {});

}  // namespace spp
