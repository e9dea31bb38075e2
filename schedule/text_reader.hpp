// Turns the words of one line of the text form into fields. Internal to text_parse.cpp.
#pragma once

#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "schedule/text_fields.hpp"

#include <algorithm>
#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spp::text {

/// A line's words; a word "key=value" is a field, any other a flag.
struct Word {
  std::string_view key;
  std::string_view value;
  bool is_field = false;
  bool used = false;
};

inline std::string in_quotes(std::string_view word) {
  constexpr std::size_t longest = 60;
  return word.size() > longest ? fmt::format("'{}…'", word.substr(0, longest))
                               : fmt::format("'{}'", word);
}

/// The enumerator that is written `name`.
template <class E>
E pick(std::string_view name, std::initializer_list<E> values, std::string_view where) {
  std::vector<std::string> names;
  for (const E value : values) {
    if (to_string(value) == name) {
      return value;
    }
    names.emplace_back(to_string(value));
  }
  throw InputError(where,
                   fmt::format("unknown value {}{}", in_quotes(name), did_you_mean(name, names)));
}

using BufferIds = std::unordered_map<std::string_view, BufferId>;

/// What the fields of a line are read against.
struct Context {
  const Problem& problem;
  std::int64_t most_rows = 0;  // of any tensor: the sequence's tokens, a parameter's rows
  std::int64_t ranks = 0;
  Rank rank;
  const std::vector<Buffer>& buffers;
  const BufferIds& ids;
};

/// The archive that finds each field among a line's words.
class FieldReader {
 public:
  FieldReader(std::vector<Word>& words, std::string_view where, const Context& context)
      : words_(words), where_(where), context_(context) {}

  void operator()(std::string_view key, BufferId& id) { id = buffer(get(key)); }
  void operator()(std::string_view key, BufferList& list) {
    if (const Word* word = find(key, true)) {
      const auto names = split(word->value, ',');
      constexpr std::size_t most = 8;  // of a BufferList
      if (names.size() > most) {
        fail("{} names more than {} buffers", in_quotes(word->value), most);
      }
      for (const std::string_view name : names) {
        list.push_back(buffer(name));
      }
    }
  }
  void operator()(std::string_view key, Rank& rank) {
    if (const Word* word = find(key, true)) {
      rank = Rank(static_cast<std::int32_t>(number(word->value, 0, context_.ranks - 1)));
    }
  }
  void operator()(std::string_view key, TokenSet& tokens) {
    tokens = parse_token_set(get(key), where_);
    for (const TokenRange& r : tokens.ranges()) {
      const std::int64_t rows = context_.most_rows;
      if (r.begin >= rows || r.count - 1 > (rows - 1 - r.begin) / r.stride) {
        fail("{}={} reaches beyond the sequence's {} tokens", key, to_string(tokens), rows);
      }
    }
    if (tokens.count() > context_.most_rows) {
      fail("{}={} has tokens twice", key, to_string(tokens));
    }
  }
  void operator()(std::string_view key, HeadRange& heads) {
    const auto [first, count] = pair_of(key, get(key));
    heads.begin = static_cast<int>(number(first, 0, most_heads));
    heads.end = heads.begin + static_cast<int>(number(count, 0, most_heads));
  }
  void operator()(std::string_view key, RankGroup& group) {
    const std::string_view value = get(key);
    const auto [first, rest] = pair_of(key, value);
    const auto slash = split(rest, '/');
    if (slash.size() > 2) {
      fail("{} is not a rank group first:size[/stride]", in_quotes(value));
    }
    group.first = static_cast<int>(number(first, 0, context_.ranks - 1));
    group.size = static_cast<int>(number(slash[0], 1, context_.ranks));
    group.stride = slash.size() == 2 ? static_cast<int>(number(slash[1], 1, most_ranks)) : 1;
    if (group.first + std::int64_t{group.size - 1} * group.stride >= context_.ranks) {
      fail("{}={} reaches beyond rank {}", key, value, context_.ranks - 1);
    }
    if (group.rank(group.index_of(context_.rank)) != context_.rank) {
      fail("{}={} does not contain rank {}", key, value, context_.rank.value);
    }
  }
  void operator()(std::string_view key, HeadSplit& heads, int parts) {
    const HeadPolicy policy = parse_head_policy(get(key), where_);
    const std::string reason = HeadSplit::why_not(context_.problem, parts, policy);
    if (!reason.empty()) {
      fail("{}={}: {}", key, to_string(policy), reason);
    }
    heads = HeadSplit(context_.problem, parts, policy);
  }
  void operator()(std::string_view key, bool& flag) { flag = find(key, false) != nullptr; }
  void operator()(std::string_view key, std::int64_t& value, std::int64_t min, std::int64_t max) {
    value = number(get(key), min, max);
  }
  void operator()(std::string_view key, int& value, std::int64_t min, std::int64_t max) {
    value = static_cast<int>(number(get(key), min, max));
  }
  /// Places in the sequence, rising.
  void unless_empty(std::string_view key, std::vector<std::int64_t>& places) {
    const Word* word = find(key, true);
    for (const std::string_view place :
         word == nullptr ? std::vector<std::string_view>() : split(word->value, '+')) {
      const std::int64_t least = places.empty() ? 1 : places.back() + 1;
      places.push_back(number(place, least, context_.most_rows));
    }
  }
  void unless_none(std::string_view key, std::vector<Mask>& masks) {
    const Word* word = find(key, true);
    for (const std::string_view mask :
         word == nullptr ? std::vector<std::string_view>() : split(word->value, ';')) {
      masks.push_back(parse_mask(mask, where_));
    }
    if (std::ssize(masks) > most_masks) {
      fail("{} has more than {} masks", key, most_masks);
    }
  }
  template <std::integral T>
  void unless_zero(std::string_view key, T& value, std::int64_t max) {
    const Word* word = find(key, true);
    value = word == nullptr ? 0 : static_cast<T>(number(word->value, 1, max));
  }
  void operator()(std::string_view key, CopyKind& kind) {
    using enum CopyKind;
    kind = pick(get(key), {pack, unpack, cast, reorder, deal, take, add, fold, dispatch, combine},
                where_);
  }
  void operator()(std::string_view key, GemmKind& kind) {
    using enum GemmKind;
    kind = pick(get(key), {forward, input_gradient, weight_gradient}, where_);
  }
  void operator()(std::string_view key, HeadDirection& kind) {
    using enum HeadDirection;
    kind = pick(get(key), {scatter_heads, gather_heads}, where_);
  }
  void operator()(std::string_view key, DType& v) { v = parse_dtype(get(key), where_); }
  void operator()(std::string_view key, Layout& v) { v = parse_layout(get(key), where_); }
  void operator()(std::string_view key, HeadPolicy& v) { v = parse_head_policy(get(key), where_); }
  void operator()(std::string_view key, Mask& v) { v = parse_mask(get(key), where_); }
  void operator()(std::string_view key, std::string& v) {
    v = get(key);
    if (!is_name(v)) {
      fail("{}={} is no name", key, in_quotes(v));
    }
  }

  /// The value of a field that may be missing: then "".
  std::string_view optional(std::string_view key) {
    const Word* word = find(key, true);
    return word == nullptr ? std::string_view() : word->value;
  }

  /// Every word of the line must have been asked for.
  void finish() const {
    for (const Word& word : words_) {
      if (!word.used) {
        const auto known = std::ranges::find(asked_, word.key);
        if (known != asked_.end()) {
          fail("{} stands twice, or is a flag with a value or a field without one",
               in_quotes(word.key));
        }
        fail("unknown field {}{}", in_quotes(word.key), did_you_mean(word.key, asked_));
      }
    }
  }

 private:
  const Word* find(std::string_view key, bool field) {
    asked_.emplace_back(key);
    const auto it = std::ranges::find_if(
        words_, [&](const Word& w) { return w.key == key && w.is_field == field && !w.used; });
    if (it == words_.end()) {
      return nullptr;
    }
    it->used = true;
    return &*it;
  }
  std::string_view get(std::string_view key) {
    const Word* word = find(key, true);
    if (word == nullptr) {
      for (const Word& other : words_) {
        const std::vector<std::string> expected{std::string(key)};
        if (!other.used && !nearest_name(other.key, expected).empty()) {
          fail("'{}=' is missing (did you mean it by {}?)", key, in_quotes(other.key));
        }
      }
      fail("'{}=' is missing", key);
    }
    return word->value;
  }
  std::int64_t number(std::string_view text, std::int64_t min, std::int64_t max) const {
    return parse_int(text, where_, min, max);
  }
  std::pair<std::string_view, std::string_view> pair_of(std::string_view key,
                                                        std::string_view value) const {
    const auto pieces = split(value, ':');
    if (pieces.size() != 2) {
      fail("{}={} is not first:count", key, in_quotes(value));
    }
    return {pieces[0], pieces[1]};
  }
  [[nodiscard]] BufferId buffer(std::string_view name) const {
    const auto it = context_.ids.find(name);
    if (it == context_.ids.end()) {
      constexpr std::size_t shown = 20;
      std::vector<std::string> names;
      for (std::size_t i = 0; i < std::min(shown, context_.buffers.size()); ++i) {
        names.push_back(context_.buffers[i].name);
      }
      fail("rank {} has no buffer {}{}", context_.rank.value, in_quotes(name),
           did_you_mean(name, names));
    }
    return it->second;
  }
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw InputError(where_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::vector<Word>& words_;
  std::string_view where_;
  const Context& context_;
  std::vector<std::string> asked_;
};

}  // namespace spp::text
