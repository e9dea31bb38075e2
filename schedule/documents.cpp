#include "schedule/documents.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <limits>

namespace spp {
namespace {

std::int64_t dealt_tokens(const Mask& mask) { return mask.document_ends.back() * mask.pieces; }

/// Of a slot in the first chunk.
std::size_t document_at(const Mask& mask, std::int64_t offset) {
  const auto& ends = mask.document_ends;
  return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), offset) -
                                  ends.begin());
}

std::int64_t begin_of(const Mask& mask, std::size_t document) {
  return document == 0 ? 0 : mask.document_ends[document - 1];
}

}  // namespace

std::int64_t chunk_of(const Mask& mask, std::int64_t token) {
  return mask.pieces == 1 ? 0 : std::min(token / mask.document_ends.back(), mask.pieces);
}

Interval document_in_chunk(const Mask& mask, std::size_t document, std::int64_t chunk) {
  if (document == mask.document_ends.size()) {
    return {.begin = dealt_tokens(mask), .end = std::numeric_limits<std::int64_t>::max()};
  }
  if (chunk == mask.pieces) {
    return {};
  }
  const std::int64_t from = chunk * mask.document_ends.back();
  return {.begin = from + begin_of(mask, document), .end = from + mask.document_ends[document]};
}

Mask::Place Mask::place_of(std::int64_t token) const {
  if (document_ends.empty()) {
    return {.document = 0, .position = token};
  }
  if (token >= dealt_tokens(*this)) {
    return {.document = document_ends.size(), .position = token - dealt_tokens(*this)};
  }
  const std::int64_t size = document_ends.back();
  const std::int64_t chunk = pieces == 1 ? 0 : token / size;
  const std::int64_t offset = token - chunk * size;
  const std::size_t document = document_at(*this, offset);
  const std::int64_t begin = begin_of(*this, document);
  return {.document = document,
          .position = chunk * (document_ends[document] - begin) + offset - begin};
}

std::vector<std::int64_t> chunk_ends(std::vector<std::int64_t> documents, std::int64_t seq,
                                     std::int64_t tokens) {
  if (documents.empty() || documents.back() < seq) {
    documents.push_back(seq);
  }
  std::vector<std::int64_t> ends;
  std::int64_t begin = 0;
  for (const std::int64_t end : documents) {
    for (begin += tokens; begin < end; begin += tokens) {
      ends.push_back(begin);
    }
    ends.push_back(end);
    begin = end;
  }
  return ends;
}

RangeInDocuments::RangeInDocuments(const TokenRange& range, const Mask& mask)
    : mask_(&mask), range_(range) {
  const std::int64_t size = mask.document_ends.back();
  const std::int64_t all = dealt_tokens(mask);
  const auto border = [&](std::int64_t slot) {
    const std::int64_t dealt = std::min(slot, all);
    const std::int64_t chunk = mask.pieces == 1 ? 0 : dealt / size;
    return Border{.chunk = chunk, .offset = dealt - chunk * size};
  };
  begin_ = border(range.begin);
  end_ = border(range.last() + 1);
  chunk_ = chunk_of(mask, range.begin);
  ensure(range.stride == 1 || range.count == 1 || chunk_ == chunk_of(mask, range.last()),
         "a strided range of more than one chunk");
  const bool one_chunk = chunk_ == chunk_of(mask, range.last());
  const std::size_t behind = mask.document_ends.size();
  const auto document = [&](std::int64_t token) {
    return token >= all ? behind : document_at(mask, token - chunk_ * size);
  };
  first_ = one_chunk ? document(range.begin) : 0;
  last_ = one_chunk ? document(range.last()) : range.last() >= all ? behind : behind - 1;
}

std::int64_t RangeInDocuments::up_to(const Border& border, std::int64_t begin,
                                     std::int64_t end) const {
  return border.chunk * (end - begin) +
         std::clamp<std::int64_t>(border.offset - begin, 0, end - begin);
}

TokenRange RangeInDocuments::of(std::size_t document) const {
  const std::int64_t all = dealt_tokens(*mask_);
  const bool behind = document == mask_->document_ends.size();
  if (range_.stride == 1) {
    if (behind) {
      const std::int64_t from = std::max<std::int64_t>(0, range_.begin - all);
      return {.begin = from, .count = std::max<std::int64_t>(0, range_.last() + 1 - all - from)};
    }
    const std::int64_t begin = begin_of(*mask_, document);
    const std::int64_t end = mask_->document_ends[document];
    const std::int64_t from = up_to(begin_, begin, end);
    return {.begin = from, .count = up_to(end_, begin, end) - from};
  }
  const Interval own = document_in_chunk(*mask_, document, chunk_);
  const Interval kept = positions_in(range_, own);
  const std::int64_t before =
      behind ? 0 : chunk_ * (own.end - own.begin);  // positions in earlier chunks
  return {.begin = range_.at(kept.begin) - own.begin + before,
          .count = std::max<std::int64_t>(0, kept.count()),
          .stride = range_.stride};
}

}  // namespace spp
