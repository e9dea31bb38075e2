#include "schedule/contents.hpp"

#include <algorithm>
#include <iterator>

namespace spp {

std::span<const Piece> Contents::at(const Cell& cell) const {
  return std::ranges::equal_range(pieces_, cell, {}, &Piece::cell);
}

std::span<const Piece> Contents::of_tokens(int token_atom) const {
  return std::ranges::equal_range(pieces_, token_atom, {},
                                  [](const Piece& p) { return p.cell.tokens; });
}

std::vector<int> Contents::tokens() const {
  std::vector<int> result;
  for (const Piece& piece : pieces_) {
    if (result.empty() || result.back() != piece.cell.tokens) {
      result.push_back(piece.cell.tokens);
    }
  }
  return result;
}

std::span<Piece> Contents::change(const Cell& cell) {
  return std::ranges::equal_range(pieces_, cell, {}, &Piece::cell);
}

std::int64_t Contents::volume(const AtomGrid& grid, TensorRef tensor) const {
  std::int64_t total = 0;
  for (const Piece& piece : pieces_) {
    total += grid.volume(tensor, piece.cell);
  }
  return total;
}

void Contents::sort() { std::ranges::stable_sort(pieces_, {}, &Piece::cell); }

void Contents::replace(Contents added) {
  std::erase_if(pieces_, [&](const Piece& old) { return !added.at(old.cell).empty(); });
  pieces_.insert(pieces_.end(), std::make_move_iterator(added.pieces_.begin()),
                 std::make_move_iterator(added.pieces_.end()));
  sort();
}

}  // namespace spp
