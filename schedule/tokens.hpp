// Which tokens: strided ranges of positions in the (padded) sequence, and how many (query, key)
// pairs of two such sets a mask allows.
//
// A contiguous chunk is one strided range, a zigzag chunk is two, a striped chunk is one with
// stride R, what is dealt out by work several. A TokenSet is such ranges *in the order in which the
// rank stores them*.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace spp {

/// Tokens begin, begin+stride, …: `count` of them. Unit: tokens.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t stride = 1;

  [[nodiscard]] std::int64_t last() const { return begin + (count - 1) * stride; }
  [[nodiscard]] std::int64_t at(std::int64_t i) const { return begin + i * stride; }
  [[nodiscard]] bool contains(std::int64_t token) const {
    return count > 0 && token >= begin && token <= last() && (token - begin) % stride == 0;
  }
  friend constexpr auto operator<=>(const TokenRange&, const TokenRange&) = default;
};

/// The tokens that two ranges share. Strides of one schedule divide each other or one another's
/// multiple; the first common token is looked for, so any strides will do.
TokenRange common(const TokenRange& a, const TokenRange& b);

/// Ranges in storage order. Empty ranges are never kept; ranges of one stride that continue each
/// other are joined. Two need no memory of their own, as most sets have no more.
class TokenSet {
 public:
  TokenSet() = default;
  explicit TokenSet(TokenRange only) { append(only); }
  TokenSet(TokenRange first, TokenRange second) {
    append(first);
    append(second);
  }

  void append(TokenRange range);

  [[nodiscard]] std::int64_t count() const;
  [[nodiscard]] bool empty() const { return size_ == 0; }
  /// As long as the set lives: of one that nobody holds there are none.
  [[nodiscard]] std::span<const TokenRange> ranges() const& {
    return many_ ? std::span<const TokenRange>(*many_) : std::span(few_.data(), size_);
  }
  std::span<const TokenRange> ranges() const&& = delete;
  [[nodiscard]] bool contains(std::int64_t token) const { return position_of(token) >= 0; }
  /// Where `token` is stored; -1 if it is not in the set.
  [[nodiscard]] std::int64_t position_of(std::int64_t token) const;

  /// Each token by so much further.
  [[nodiscard]] TokenSet shifted(std::int64_t by) const;
  /// The tokens stored at positions [from, from + count) of this set.
  [[nodiscard]] TokenSet slice(std::int64_t from, std::int64_t count) const;
  /// Part `index` of `parts` equal parts by storage position; count() must divide by `parts`.
  [[nodiscard]] TokenSet part(std::int64_t index, std::int64_t parts) const;

  friend bool operator==(const TokenSet& a, const TokenSet& b);
  friend std::strong_ordering operator<=>(const TokenSet& a, const TokenSet& b);

 private:
  [[nodiscard]] TokenRange& last();

  std::array<TokenRange, 2> few_{};
  std::size_t size_ = 0;
  std::shared_ptr<std::vector<TokenRange>>
      many_;  // all of them, from the third on; copied on write
};

/// "0:1024", "0:64+448:64", striped "3:128/8" (begin:count/stride); "-" when empty.
std::string to_string(const TokenSet& tokens);
/// The reverse of to_string. Throws InputError(where) on anything else.
TokenSet parse_token_set(std::string_view text, std::string_view where);

enum class MaskKind : std::uint8_t { full, causal, window };

/// Which keys a query may see. `window` is causal and sees the last `window` keys, itself included.
/// With packed documents, only keys of the query's own document, by their positions in it.
///
/// Documents lie one after the other; or they are *dealt out in pieces*, each in as many equal
/// ones: the sequence is then `pieces` chunks, and chunk c is piece c of every document.
///
///   a0 … a7 and b0 … b3 in 4 pieces:   a0 a1 b0 | a2 a3 b1 | a4 a5 b2 | a6 a7 b3
///
/// So a layout that deals chunks of the sequence out to ranks deals out every document alike:
/// zigzag over R ranks and 2R pieces gives rank r pieces r and 2R-1-r of every document, which is
/// how Megatron-LM and TransformerEngine split packed sequences (THD).
struct Mask {
  MaskKind kind = MaskKind::causal;
  std::int64_t window = 0;
  /// Where each packed document ends, rising: in the sequence; if they are dealt out, its piece in
  /// the first chunk. Empty: all tokens are one document. Tokens behind the last document (padding)
  /// are one of their own.
  std::vector<std::int64_t> document_ends = {};
  std::int64_t pieces = 1;  // of each document; 1: not dealt out

  /// Whether there are several documents: kernels for one are those of a plain sequence.
  [[nodiscard]] bool packs() const { return document_ends.size() > 1; }

  /// A token's document and where it stands in it.
  struct Place {
    std::size_t document = 0;
    std::int64_t position = 0;
  };
  [[nodiscard]] Place place_of(std::int64_t token) const;
  [[nodiscard]] bool allows(std::int64_t query, std::int64_t key) const {
    if (document_ends.empty()) {
      return allows_by_kind(query, key);
    }
    const Place q = place_of(query);
    const Place k = place_of(key);
    return q.document == k.document && allows_by_kind(q.position, k.position);
  }
  /// Of positions in one document.
  [[nodiscard]] bool allows_by_kind(std::int64_t query, std::int64_t key) const {
    return kind == MaskKind::full ||
           (key <= query && (kind == MaskKind::causal || key > query - window));
  }
  friend auto operator<=>(const Mask&, const Mask&) = default;
};

/// Positions [begin, end) of a range.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t count() const { return end - begin; }
  [[nodiscard]] bool empty() const { return end <= begin; }
  friend constexpr auto operator<=>(const Interval&, const Interval&) = default;
};

/// Which i of `range` have a token in [begin, end) of `tokens`.
Interval positions_in(const TokenRange& range, const Interval& tokens);

/// `tokens` in ranges of which any token sees neighbours only: its own ranges; where the mask deals
/// documents out in pieces, these cut where a chunk ends.
std::vector<TokenRange> cut_at_chunks(const TokenSet& tokens, const Mask& mask);

/// Which of `keys`, one range of cut_at_chunks(), the token `query` sees: the positions i with
/// mask.allows(query, keys.at(i)) and keys.at(i) < seq, which are neighbours. {0, 0} when there are
/// none.
Interval visible_keys(std::int64_t query, const TokenRange& keys, const Mask& mask,
                      std::int64_t seq);

/// Exact number of allowed (query, key) pairs; O(log) in the counts (floor sums) for each document
/// that both have, no loop over tokens.
std::int64_t allowed_pairs(const TokenSet& queries, const TokenSet& keys, const Mask& mask);
/// The same for two ranges.
std::int64_t allowed_pairs(const TokenRange& queries, const TokenRange& keys, const Mask& mask);
/// Whether there is one, which shows sooner than how many.
bool allows_any(const TokenSet& queries, const TokenSet& keys, const Mask& mask);
bool allows_any(const TokenRange& queries, const TokenRange& keys, const Mask& mask);

}  // namespace spp
