// What a buffer holds, symbolically: a multiset of pieces, each a cell of the grid and what has
// been summed into it. The order of the tokens inside a buffer is not tracked.
#pragma once

#include "schedule/atoms.hpp"

#include <span>
#include <vector>

namespace spp {

/// One cell of a tensor in a buffer.
///  out, lse, d_q       `contributions` are the key atoms met so far
///  scores, d_weights   the key atoms whose columns are there, masked or not
///  weights, d_scores   the key atoms that the softmax was taken over
///  state               the key atoms summed up
///  d_k, d_v, d_state   the query cells met or summed up so far (AtomGrid::contributor)
///  value               the row parts of the parameter summed up, if a linear layer writes it
///  d_value             what definitions that read it have given (Use)
///  d_param             the token atoms summed up, by use (AtomGrid::contributor)
/// `normaliser`, of out and weights: the key atoms whose softmax sum the cell was divided by. Of
/// out that is its own contributions, until a Rescale prepares a sum over a team, or weights are
/// applied; nothing under linear attention. Only cells of equal normaliser add.
struct Piece {
  Cell cell;
  AtomSet contributions;
  AtomSet normaliser;
};

/// Sorted by cell; several pieces of one cell stand in the order of arrival.
class Contents {
 public:
  [[nodiscard]] bool empty() const { return pieces_.empty(); }
  [[nodiscard]] std::span<const Piece> all() const { return pieces_; }
  [[nodiscard]] std::span<const Piece> at(const Cell& cell) const;
  /// The pieces of one token atom, all heads.
  [[nodiscard]] std::span<const Piece> of_tokens(int token_atom) const;
  /// The token atoms (or slots, or rows) that there are pieces of.
  [[nodiscard]] std::vector<int> tokens() const;
  /// The pieces of one cell, to be changed in place (not their cells).
  [[nodiscard]] std::span<Piece> change(const Cell& cell);
  [[nodiscard]] std::span<Piece> change_all() { return pieces_; }
  /// Tokens times heads of all pieces.
  [[nodiscard]] std::int64_t volume(const AtomGrid& grid, TensorRef tensor) const;

  void clear() { pieces_.clear(); }
  void add(Piece piece) { pieces_.push_back(std::move(piece)); }
  /// Call after add().
  void sort();
  /// `added` replaces pieces of the same cells.
  void replace(Contents added);

 private:
  std::vector<Piece> pieces_;
};

}  // namespace spp
