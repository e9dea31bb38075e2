// Documents with a few things wrong, as a slip of the hand, a broken program or an attacker writes
// them. The same seed gives the same document everywhere.
#pragma once

#include "base/json.hpp"

#include <cstdint>
#include <random>
#include <string>

namespace spp::test {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  /// Text of `document`, half the time with one number scaled, else after one to three of: a number
  /// replaced by an extreme one or scaled, a member dropped, doubled or renamed, a value of another
  /// type or another string; one time in eight also cut off, or with other bytes.
  std::string text(Json document);

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class Range>
  auto any_of(const Range& range) {
    return range[below(std::size(range))];
  }

  void mutate(Json& document);
  bool scale(Json& document);  // false: came upon no number
  void replace(Json& value);
  void mutate_member(Json& parent, std::size_t at);
  void spoil(std::string& text);
  Json extreme();

  std::mt19937_64 random_;
};

}  // namespace spp::test
