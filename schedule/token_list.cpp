#include "schedule/token_list.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp {

TokenList::TokenList(const TokenSet& tokens) {
  for (const TokenRange& range : tokens.ranges()) {
    append(range);
  }
}

void TokenList::append(const TokenRange& range) {
  TokenRange rest = range;
  count_ += range.count;
  // The first token of `rest` continues the last range or begins a new one; the others follow it as
  // far as their stride is that range's.
  while (rest.count > 0) {
    const bool continues =
        !ranges_.empty() && rest.begin > ranges_.back().last() &&
        (ranges_.back().count == 1 || rest.begin == ranges_.back().last() + ranges_.back().stride);
    if (!continues) {
      ranges_.push_back({.begin = rest.begin, .count = 1, .stride = 1});
    } else {
      TokenRange& last = ranges_.back();
      last.stride = last.count == 1 ? rest.begin - last.begin : last.stride;
      ++last.count;
    }
    rest = {.begin = rest.begin + rest.stride, .count = rest.count - 1, .stride = rest.stride};
    TokenRange& last = ranges_.back();
    if (rest.count > 0 && (last.count == 1 || last.stride == rest.stride)) {
      last.stride = rest.stride;
      last.count += rest.count;
      rest.count = 0;
    }
  }
}

void TokenList::append(const TokenList& other) {
  for (const TokenRange& range : other.ranges_) {
    append(range);
  }
}

TokenList TokenList::slice(std::int64_t from, std::int64_t count) const {
  ensure(from >= 0 && count >= 0 && from + count <= count_, "a slice beyond the end of the rows");
  TokenList result;
  for (const TokenRange& range : ranges_) {
    const std::int64_t begin = std::min(from, range.count);
    const std::int64_t taken = std::min(count, range.count - begin);
    if (taken > 0) {
      result.append({.begin = range.at(begin), .count = taken, .stride = range.stride});
    }
    from -= begin;
    count -= std::max<std::int64_t>(taken, 0);
  }
  return result;
}

std::optional<std::int64_t> TokenList::find(const TokenList& part) const {
  if (part.count() == 0) {
    return 0;
  }
  const std::int64_t first = part.ranges_.front().begin;
  std::int64_t row = 0;
  for (const TokenRange& range : ranges_) {
    if (range.contains(first)) {
      const std::int64_t at = row + (first - range.begin) / range.stride;
      if (at + part.count() <= count_ && slice(at, part.count()) == part) {
        return at;
      }
    }
    row += range.count;
  }
  return std::nullopt;
}

TokenList TokenList::sorted() const {
  std::vector<std::int64_t> tokens;
  tokens.reserve(static_cast<std::size_t>(count_));
  for (const TokenRange& range : ranges_) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      tokens.push_back(range.at(i));
    }
  }
  std::ranges::sort(tokens);
  TokenList result;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ensure(i == 0 || tokens[i] != tokens[i - 1], "rows to be sorted hold a token twice");
    result.append({.begin = tokens[i], .count = 1, .stride = 1});
  }
  return result;
}

bool TokenList::meets(const TokenList& other) const {
  return std::ranges::any_of(ranges_, [&](const TokenRange& a) {
    return std::ranges::any_of(other.ranges_, [&](const TokenRange& b) {
      if (b.last() < a.begin || a.last() < b.begin) {
        return false;
      }
      const TokenRange& fewer = a.count < b.count ? a : b;
      const TokenRange& more = a.count < b.count ? b : a;
      if (fewer.stride == 1 && more.stride == 1) {
        return true;
      }
      for (std::int64_t i = 0; i < fewer.count; ++i) {
        if (more.contains(fewer.at(i))) {
          return true;
        }
      }
      return false;
    });
  });
}

std::string to_string(const TokenList& tokens) {
  std::string text;
  for (const TokenRange& range : tokens.ranges()) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", to_string(TokenSet(range)));
  }
  return text.empty() ? "-" : text;
}

}  // namespace spp
