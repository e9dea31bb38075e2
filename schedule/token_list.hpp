// The tokens that lie in a buffer, row after row: any sequence of tokens, kept as strided ranges.
#pragma once

#include "schedule/tokens.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spp {

/// Equal sequences have equal ranges: ranges are as if tokens were appended one by one, each
/// continuing the last range if it can (a second token sets the stride).
class TokenList {
 public:
  TokenList() = default;
  explicit TokenList(const TokenSet& tokens);

  void append(const TokenRange& range);
  void append(const TokenList& other);

  [[nodiscard]] std::int64_t count() const { return count_; }
  /// As long as the list lives.
  [[nodiscard]] std::span<const TokenRange> ranges() const& { return ranges_; }
  std::span<const TokenRange> ranges() const&& = delete;
  /// Rows [from, from + count).
  [[nodiscard]] TokenList slice(std::int64_t from, std::int64_t count) const;
  /// The first row from which on `part` lies here, row after row; nothing if it does not.
  [[nodiscard]] std::optional<std::int64_t> find(const TokenList& part) const;
  /// The same tokens by rising position. Each must be there once.
  [[nodiscard]] TokenList sorted() const;
  /// A token of `other` is here.
  [[nodiscard]] bool meets(const TokenList& other) const;
  friend bool operator==(const TokenList&, const TokenList&) = default;

 private:
  std::vector<TokenRange> ranges_;
  std::int64_t count_ = 0;
};

/// "0:64 448:64", as to_string(TokenSet) with spaces.
std::string to_string(const TokenList& tokens);

}  // namespace spp
