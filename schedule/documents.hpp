// A range of tokens as the packed documents of a mask see it: which documents it has, and which
// positions of each. What counts pairs and what cuts kernels into tiles go through blocks document
// by document with this.
//
// Up to slot x, a document whose piece is [b, e) in each chunk of n slots has
//
//   upto(x) = (x / n) (e - b) + clamp(x % n - b, 0, e - b)
//
// tokens, so that slots [x, y) are its positions [upto(x), upto(y)): a range of stride 1 is one run
// of positions of every document, however many chunks it spans.
#pragma once

#include "schedule/tokens.hpp"

#include <cstddef>
#include <cstdint>

namespace spp {

/// Tokens [begin, end) of a document in a chunk; behind the last document: all that follow.
Interval document_in_chunk(const Mask& mask, std::size_t document, std::int64_t chunk);
/// The chunk of a token; mask.pieces behind the last one. 0 where nothing is dealt out.
std::int64_t chunk_of(const Mask& mask, std::int64_t token);

/// Every document, or the sequence, in chunks of so many tokens, from its first token on: where
/// these end.
std::vector<std::int64_t> chunk_ends(std::vector<std::int64_t> documents, std::int64_t seq,
                                     std::int64_t tokens);

class RangeInDocuments {
 public:
  /// `range`: not empty; of stride 1, or of one chunk (cut_at_chunks). The mask has documents.
  RangeInDocuments(const TokenRange& range, const Mask& mask);

  /// No other document has tokens of the range; these may.
  [[nodiscard]] std::size_t first() const { return first_; }
  [[nodiscard]] std::size_t last() const { return last_; }
  /// The range goes from the document before it to the one behind it.
  [[nodiscard]] bool has_whole(std::size_t document) const {
    return range_.stride == 1 && mask_->pieces == 1 && first_ < document && document < last_;
  }
  /// Positions in a document, in the order of the range; none: count 0.
  [[nodiscard]] TokenRange of(std::size_t document) const;

 private:
  /// A border between slots: chunk, and offset in it.
  struct Border {
    std::int64_t chunk = 0, offset = 0;
  };
  [[nodiscard]] std::int64_t up_to(const Border& border, std::int64_t begin,
                                   std::int64_t end) const;

  const Mask* mask_;
  TokenRange range_;
  std::int64_t chunk_ = 0;  // of a strided range
  Border begin_, end_;      // of one of stride 1
  std::size_t first_ = 0, last_ = 0;
};

}  // namespace spp
